"""TLS with certificates of both sides, and a digest that keeps others out, on a real server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from ottla.base.errors import ConfigError
from ottla.metadata.configs.zookeeper import ZooKeeperSettings, ZooKeeperTls
from ottla.metadata.store import ABSENT, StoreRefused, StoreUnavailable, Write
from ottla.runtime.clocks import SystemClock
from ottla.runtime.zookeeper_server import ZooKeeperServers, free_ports
from ottla.runtime.zookeeper_store import ZooKeeperStore
from tests.cluster.zookeeper import SESSION_TIMEOUT_MS, ZooKeeper
from tests.unit.metadata.builders import registration


class Certificates:
    """One authority; the server's certificate is for 127.0.0.1, the broker's for nobody."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trusted = directory / "authority.pem"
        self.server = directory / "server.pem"
        self.broker = directory / "broker.pem"
        self._run(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority"
            " -keyout authority.key -out authority.pem"
        )
        self._sign("server", "subjectAltName=IP:127.0.0.1")
        self._sign("broker", "subjectAltName=DNS:nobody.invalid")

    def _sign(self, name: str, extension: str) -> None:
        (self.directory / f"{name}.ext").write_text(extension + "\n")
        self._run(
            f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        )
        self._run(
            f"x509 -req -in {name}.csr -CA authority.pem -CAkey authority.key -CAcreateserial"
            f" -days 2 -extfile {name}.ext -out {name}.crt"
        )
        both = (self.directory / f"{name}.key").read_text() + (
            self.directory / f"{name}.crt"
        ).read_text()
        (self.directory / f"{name}.pem").write_text(both)

    def _run(self, command: str) -> None:
        subprocess.run(
            ["openssl", *command.split()], cwd=self.directory, check=True, capture_output=True
        )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[ZooKeeperSettings]:
    """A server that wants a certificate of whoever comes by TLS."""
    (port,) = free_ports(1)
    servers = ZooKeeperServers(
        tmp_path_factory.mktemp("secure"),
        durable=False,
        settings={
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": str(port),
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": str(certificates.server),
            "ssl.trustStore.location": str(certificates.trusted),
            "ssl.clientAuth": "need",
            "ssl.hostnameVerification": "false",
        },
    )
    servers.start()
    yield ZooKeeperSettings(
        hosts=f"127.0.0.1:{port}",
        chroot="/secure",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        connection_timeout_ms=60_000,
        tls=ZooKeeperTls(
            trusted=str(certificates.trusted), own=str(certificates.broker), check_host=True
        ),
    )
    servers.stop()


def test_tls_with_certificates_of_both_sides(secure: ZooKeeperSettings) -> None:
    store = ZooKeeperStore(secure, SystemClock())
    try:
        store.register(1, registration(1))
        content = b"x" * 200_000  # more than one record of TLS
        change = store.commit([Write("/a", content, ABSENT)])
        assert store.load().nodes["/a"].content == content
        assert store.load().last_change == change.number
        assert not store.is_fenced()
    finally:
        store.close()


def test_a_server_that_is_not_trusted_is_not_talked_to(
    secure: ZooKeeperSettings, certificates: Certificates
) -> None:
    assert secure.tls is not None
    stranger = replace(secure.tls, trusted=str(certificates.broker))
    with pytest.raises(StoreUnavailable, match="unable to get local issuer certificate"):
        ZooKeeperStore(replace(secure, tls=stranger), SystemClock())


def test_a_name_that_is_not_in_the_certificate(secure: ZooKeeperSettings) -> None:
    elsewhere = replace(secure, hosts=secure.hosts.replace("127.0.0.1", "localhost"))
    with pytest.raises(StoreUnavailable, match="Hostname mismatch"):
        ZooKeeperStore(elsewhere, SystemClock())
    assert secure.tls is not None
    unchecked = replace(elsewhere, tls=replace(secure.tls, check_host=False))
    ZooKeeperStore(unchecked, SystemClock()).close()


def test_who_shows_no_certificate_is_not_let_in(secure: ZooKeeperSettings) -> None:
    assert secure.tls is not None
    nobody = replace(secure.tls, own=None)
    with pytest.raises(StoreUnavailable):
        ZooKeeperStore(replace(secure, tls=nobody, connection_timeout_ms=500), SystemClock())


def test_files_that_hold_no_certificate(secure: ZooKeeperSettings, tmp_path: Path) -> None:
    assert secure.tls is not None
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl"):
        ZooKeeperStore(replace(secure, tls=replace(secure.tls, own="missing.pem")), SystemClock())


def test_a_digest_keeps_others_out(zookeeper: ZooKeeper) -> None:
    settings = replace(zookeeper.settings(), digest="ottla:secret", restrict=True)
    store = ZooKeeperStore(settings, SystemClock())
    try:
        store.register(1, registration(1))
        store.commit([Write("/a", b"x", ABSENT)])
        for path in ("/a", "/brokers/ids/1", "/changes"):
            with pytest.raises(NoAuthError):
                zookeeper.client.get(path)
        stranger = zookeeper.store
        with pytest.raises(StoreRefused, match="digest"):
            stranger().load()
        friend = ZooKeeperStore(settings, SystemClock())
        assert friend.load().nodes["/a"].content == b"x"
        friend.close()
    finally:
        store.close()
        clean = KazooClient(zookeeper.servers.connect, auth_data=[("digest", "ottla:secret")])
        clean.start(60)
        clean.delete(zookeeper.chroot, recursive=True)
        clean.stop()
        clean.close()
