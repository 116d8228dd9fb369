"""The way to ZooKeeper, as checked values made from `zookeeper.*`.

Never opens anything and asks no resolver. A secret is in no text that these values make of
themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ottla.base.errors import ConfigError
from ottla.metadata.configs.broker_config import BrokerConfig

PORT_DEFAULT = 2181
_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[0-9a-zA-Z\-._]+)(?::([0-9]{1,5}))?")
_CHROOT = re.compile(r"(/[^/\s]+)*")


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """PEM files. Without `trusted` the system's certificates are trusted."""

    trusted: str | None
    own: str | None
    check_host: bool
    own_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """`hosts` is host:port,host:port; `chroot` is empty or begins with a slash."""

    hosts: str
    chroot: str
    session_timeout_ms: int
    connection_timeout_ms: int
    tls: ZooKeeperTls | None = None
    restrict: bool = False
    digest: str | None = field(default=None, repr=False)

    @property
    def host_count(self) -> int:
        return self.hosts.count(",") + 1


def parse_zookeeper(config: BrokerConfig) -> ZooKeeperSettings | None:
    """None for a broker on its own. Raises ConfigError."""
    connect = config.get_optional_str("zookeeper.connect")
    if not connect:
        return None
    hosts, chroot = parse_connect(connect)
    session_timeout_ms = config.get_int("zookeeper.session.timeout.ms")
    connection_timeout_ms = session_timeout_ms
    if config.is_set("zookeeper.connection.timeout.ms"):
        connection_timeout_ms = config.get_int("zookeeper.connection.timeout.ms")
    digest = config.get_optional_str("ottla.zookeeper.digest")
    if digest is not None and not re.fullmatch(r"[^:]+:.+", digest):
        raise ConfigError("ottla.zookeeper.digest should look like user:password")
    restrict = config.get_bool("zookeeper.set.acl")
    if restrict and digest is None:
        raise ConfigError("zookeeper.set.acl needs ottla.zookeeper.digest: who may read them?")
    return ZooKeeperSettings(
        hosts=hosts,
        chroot=chroot,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=connection_timeout_ms,
        tls=_tls(config),
        restrict=restrict,
        digest=digest,
    )


def parse_connect(connect: str) -> tuple[str, str]:
    """`h1,h2:2182/some/path` gives `h1:2181,h2:2182` and `/some/path`."""
    hosts, slash, path = connect.strip().partition("/")
    chroot = (slash + path).rstrip("/")
    parsed = []
    for host in hosts.split(","):
        match = _HOST.fullmatch(host.strip())
        port = int(match[2] or PORT_DEFAULT) if match else 0
        if match is None or not 0 < port < 65_536:
            raise ConfigError(
                f"zookeeper.connect should look like host:port,host:port/path, not {connect!r}"
            )
        parsed.append(f"{match[1]}:{port}")
    if not _CHROOT.fullmatch(chroot) or {".", ".."} & set(chroot.split("/")):
        raise ConfigError(f"zookeeper.connect: {chroot!r} is no path of ZooKeeper")
    return ",".join(parsed), chroot


def _tls(config: BrokerConfig) -> ZooKeeperTls | None:
    if not config.get_bool("zookeeper.ssl.client.enable"):
        return None
    return ZooKeeperTls(
        trusted=config.get_optional_str("zookeeper.ssl.truststore.location"),
        own=config.get_optional_str("zookeeper.ssl.keystore.location"),
        own_password=config.get_optional_str("zookeeper.ssl.keystore.password"),
        check_host=config.get_str("zookeeper.ssl.endpoint.identification.algorithm") != "",
    )
