"""Goal: clients of the same machine are sent to without pacing, and nobody else.
Method: a socket that is played, since not every system paces; then real ones, by a real broker.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, cast

import pytest

from ottla.net.nearby import is_nearby, send_unpaced, wants_pace
from ottla.testing import Broker
from tests.unit.net.test_connection import framed

JAVA = ("apache-kafka-java", "4.3.1")
CONFLUENT = ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")


@pytest.mark.parametrize(
    ("address", "nearby"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.127.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("::2", False),
    ],
)
def test_loopback_is_nearby(address: str, nearby: bool) -> None:
    assert is_nearby(address) is nearby


@pytest.mark.parametrize(
    ("named", "wanted"), [(JAVA, False), (CONFLUENT, True), (("librdkafka", "2.0.2"), True)]
)
def test_librdkafka_is_better_off_paced(named: tuple[str, str], wanted: bool) -> None:
    assert wants_pace(*named) is wanted


class Played:
    def __init__(self, congestion: bytes, *, refuses: bool = False) -> None:
        self.congestion = congestion
        self.refuses = refuses

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self.congestion.ljust(size, b"\0")

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        if self.refuses:
            raise PermissionError
        self.congestion = value


@pytest.mark.parametrize(
    ("congestion", "then"), [(b"bbr", b"reno"), (b"bbr2", b"reno"), (b"cubic", b"cubic")]
)
def test_only_what_paces_is_changed(congestion: bytes, then: bytes) -> None:
    played = Played(congestion)
    assert send_unpaced(cast(socket.socket, played)) is (then != congestion)
    assert played.congestion == then


def test_a_system_that_refuses_is_left_as_it_is() -> None:
    played = Played(b"bbr", refuses=True)
    assert send_unpaced(cast(socket.socket, played)) is False


def test_a_system_without_a_choice_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_CONGESTION", raising=False)
    assert send_unpaced(cast(socket.socket, Played(b"bbr"))) is False


def api_versions(name: str, version: str) -> bytes:
    header = struct.pack(">hhih", 18, 3, 1, -1) + b"\0"
    words = b"".join(bytes([len(word) + 1]) + word.encode() for word in (name, version))
    return framed(header + words + b"\0")


def test_who_says_what_it_is_gets_what_suits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unpaced: list[Any] = []
    monkeypatch.setattr("ottla.net.connection.send_unpaced", unpaced.append)
    with Broker() as broker:
        host, port = broker.bootstrap.split(":")
        for named, count in ((CONFLUENT, 0), (JAVA, 1)):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(api_versions(*named))
                assert client.recv(1)
                assert len(unpaced) == count
