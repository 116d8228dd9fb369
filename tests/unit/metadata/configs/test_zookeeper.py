"""The way to ZooKeeper, from settings."""

from __future__ import annotations

import pytest

from ottla.base.errors import ConfigError
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.zookeeper import ZooKeeperSettings, parse_connect, parse_zookeeper

CONNECT = {"zookeeper.connect": "h1,h2:2182/some/path"}


def parse(**settings: str) -> ZooKeeperSettings:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    parsed = parse_zookeeper(BrokerConfig({**CONNECT, **given}))
    assert parsed is not None
    return parsed


def test_a_broker_on_its_own_has_no_way() -> None:
    assert parse_zookeeper(BrokerConfig()) is None
    assert parse_zookeeper(BrokerConfig({"zookeeper.connect": ""})) is None


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("h1,h2:2182/some/path", "h1:2181,h2:2182", "/some/path"),
        (" 127.0.0.1:21 , [::1]:22/", "127.0.0.1:21,[::1]:22", ""),
        ("zoo_1.example:2181/a/", "zoo_1.example:2181", "/a"),
    ],
)
def test_hosts_and_path(text: str, hosts: str, chroot: str) -> None:
    assert parse_connect(text) == (hosts, chroot)


@pytest.mark.parametrize(
    "text", ["h:", "h:0", "h:65536", "h:x", ",", "/p", "h//p", "h/a/../b", "h/ a", "a b:1", "h:1:2"]
)
def test_what_is_no_way(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        parse_connect(text)


def test_a_start_waits_as_long_as_a_session_lasts_unless_told() -> None:
    assert parse().session_timeout_ms == parse().connection_timeout_ms == 18_000
    assert parse(zookeeper__session__timeout__ms="6000").connection_timeout_ms == 6_000
    assert parse(zookeeper__connection__timeout__ms="500").connection_timeout_ms == 500


def test_tls() -> None:
    assert parse().tls is None
    tls = parse(
        zookeeper__ssl__client__enable="true",
        zookeeper__ssl__truststore__location="ca.pem",
        zookeeper__ssl__keystore__location="own.pem",
        zookeeper__ssl__keystore__password="secret",
        zookeeper__ssl__endpoint__identification__algorithm="",
    ).tls
    assert tls is not None
    assert (tls.trusted, tls.own, tls.own_password, tls.check_host) == (
        "ca.pem",
        "own.pem",
        "secret",
        False,
    )
    plain = parse(zookeeper__ssl__client__enable="true").tls
    assert plain is not None
    assert plain.check_host


def test_secrets_are_in_no_text() -> None:
    settings = parse(
        ottla__zookeeper__digest="user:secret",
        zookeeper__ssl__client__enable="true",
        zookeeper__ssl__keystore__password="secret",
    )
    assert settings.digest == "user:secret"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"ottla.zookeeper.digest": "nobody"},
        {"zookeeper.set.acl": "true"},
        {"zookeeper.ssl.keystore.type": "JKS"},
    ],
)
def test_what_can_not_be(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        parse_zookeeper(BrokerConfig({**CONNECT, **settings}))
