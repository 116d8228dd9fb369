"""Goal: the store in memory keeps the rules of the port, and plays an election.
Method: the tests that every store has to pass, and the one thing that only this store can do.
"""

from __future__ import annotations

import pytest

from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Change, Write
from tests.unit.metadata.store_contract import KeepsItsChanges, StoreContract


class TestMemoryStore(StoreContract, KeepsItsChanges):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


def test_there_is_one_controller_until_it_resigns() -> None:
    store = MemoryStore()
    assert store.campaign(1) is not None
    assert store.campaign(2) is None
    store.resign(1)
    assert store.campaign(2) is not None
    image = image_from_snapshot(store.load())
    assert (image.controller_id, image.controller_epoch) == (2, 2)


def test_a_broker_that_is_not_registered_can_say_goodbye() -> None:
    store = MemoryStore()
    store.unregister(7)
    assert store.load().last_change == 0


def test_nobody_follows_a_closed_store() -> None:
    store = MemoryStore()
    heard: list[Change] = []
    store.follow(heard.append)
    store.close()
    store.commit([Write("/a", b"", None)])
    assert heard == []
