"""Goal: other brokers are reached where the image says, on one connection for each purpose.
Method: connections that the test makes.
"""

from __future__ import annotations

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import PeerLost
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.runtime.peers import Address, Peers


class Connection:
    def __init__(self, address: Address, purpose: str) -> None:
        self.address = address
        self.purpose = purpose
        self.is_closed = False

    def request(self, api_key: int, version: int, body: bytes) -> Deferred[memoryview]:
        answer: Deferred[memoryview] = Deferred()
        answer.resolve(memoryview(body))
        return answer

    def close(self) -> None:
        self.is_closed = True


class Setting:
    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.move(2, 9000)
        self.peers = Peers(lambda: self.image, "REPLICATION", self._connect)

    def _connect(self, address: Address, purpose: str) -> Connection:
        self.made.append(Connection(address, purpose))
        return self.made[-1]

    def move(self, broker_id: int, port: int) -> None:
        endpoints = {"REPLICATION": ("host", port), "PLAINTEXT": ("host", 1)}
        broker = BrokerRegistration(broker_id, 7, endpoints)
        self.image = MetadataImage(brokers={broker_id: broker})

    def ask(self, broker_id: int = 2, purpose: str = "replica") -> bytes:
        return bytes(self.peers.request(broker_id, purpose, 1, 17, b"body").result())


def test_one_connection_for_each_purpose() -> None:
    setting = Setting()
    for _ in range(2):
        assert setting.ask() == b"body"
        assert setting.ask(purpose="markers") == b"body"
    assert [(one.address, one.purpose) for one in setting.made] == [
        (("host", 9000), "replica"),
        (("host", 9000), "markers"),
    ]


def test_a_broker_that_moved() -> None:
    setting = Setting()
    setting.ask()
    setting.move(2, 9001)
    setting.ask()
    assert [(one.address[1], one.is_closed) for one in setting.made] == [
        (9000, True),
        (9001, False),
    ]


def test_a_broker_that_nobody_knows() -> None:
    with pytest.raises(PeerLost):
        Setting().ask(broker_id=9)


def test_closing() -> None:
    setting = Setting()
    setting.ask()
    setting.ask(purpose="markers")
    setting.peers.close(2, "replica")
    assert [one.is_closed for one in setting.made] == [True, False]
    setting.peers.close()
    assert all(one.is_closed for one in setting.made)
    with pytest.raises(PeerLost):
        setting.ask()
    assert len(setting.made) == 2


def test_who_hears_of_the_end_and_asks_for_what_is_next_makes_no_connection() -> None:
    setting = Setting()
    setting.ask()
    lost: list[Deferred[memoryview]] = []

    class Asker(Connection):
        def close(self) -> None:
            super().close()
            lost.append(setting.peers.request(2, "replica", 1, 17, b"next"))

    setting.made[0].__class__ = Asker
    setting.peers.close()
    assert isinstance(lost[0].error(), PeerLost)
    assert [one.is_closed for one in setting.made] == [True]
