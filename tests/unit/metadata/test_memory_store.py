"""Goal: the store in memory keeps the rules of the port, and plays elections and bad days.
Method: the tests that every store has to pass; sessions that are cut off, expire, lose answers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.memory_store import AFTER, BEFORE, Deliver, MemoryEnsemble, MemoryStore
from ottla.metadata.store import (
    ABSENT,
    Change,
    Liveness,
    StoreRefused,
    StoreUnavailable,
    Write,
)
from tests.unit.metadata.builders import registration
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


# ---------------------------------------------------------------------------------------- sessions
class Session:
    """A store, and what it was told."""

    def __init__(self, ensemble: MemoryEnsemble, deliver: Deliver | None = None) -> None:
        self.store = MemoryStore(ensemble, deliver)
        self.heard: list[int] = []
        self.told: list[str] = []
        self.store.follow(lambda change: self.heard.append(change.number))
        self.store.watch(lambda: self.told.append("liveness"), lambda: self.told.append("lost"))


def two_sessions() -> tuple[Session, Session]:
    ensemble = MemoryEnsemble()
    return Session(ensemble), Session(ensemble)


def test_sessions_share_the_nodes_and_hear_each_other() -> None:
    one, other = two_sessions()
    one.store.commit([Write("/a", b"x", ABSENT)])
    other.store.commit([Write("/a", b"y", 0)])
    assert one.heard == other.heard == [1, 2]
    assert one.store.load() == other.store.load()


def test_what_a_session_registered_ends_with_it_and_no_change_tells() -> None:
    one, other = two_sessions()
    one.store.register(1, registration(1))
    one.store.campaign(1)
    assert other.store.liveness() == Liveness(frozenset({1}), 1)
    one.store.expire()
    assert other.store.liveness() == Liveness(frozenset(), None)
    assert other.heard == [1, 2]
    assert (one.told, other.told) == (["lost"], ["liveness"])
    assert image_from_snapshot(other.store.load()).brokers[1].fenced
    one.store.register(1, registration(1))
    assert other.store.liveness().brokers == {1}


def test_two_brokers_with_one_id_are_refused() -> None:
    one, other = two_sessions()
    one.store.register(1, registration(1))
    with pytest.raises(StoreRefused, match="running already"):
        other.store.register(1, registration(1))
    one.store.close()
    other.store.register(1, registration(1))


def test_who_is_cut_off_hears_later_and_can_ask_nothing() -> None:
    one, other = two_sessions()
    one.store.cut_off()
    other.store.commit([Write("/a", b"x", None)])
    with pytest.raises(StoreUnavailable):
        one.store.load()
    assert one.heard == []
    assert one.store.is_fenced()
    one.store.heal()
    assert one.heard == [1]
    assert not one.store.is_fenced()


def test_an_expiry_is_heard_of_when_the_cut_heals() -> None:
    one, other = two_sessions()
    one.store.register(1, registration(1))
    one.store.cut_off()
    one.store.expire()
    assert other.told == ["liveness"]
    assert one.told == []
    with pytest.raises(StoreUnavailable):
        one.store.refresh()
    one.store.heal()
    assert one.told == ["lost"]


@pytest.mark.parametrize(("when", "written"), [(BEFORE, False), (AFTER, True)])
def test_an_answer_can_be_lost(when: str, written: bool) -> None:
    one, other = two_sessions()
    one.store.lose_next_answer(when)
    with pytest.raises(StoreUnavailable):
        one.store.commit([Write("/a", b"x", None)])
    assert ("/a" in other.store.load().nodes) == written
    one.store.commit([Write("/b", b"x", None)])


def test_a_registration_whose_answer_was_lost_ends_with_its_session_too() -> None:
    one, other = two_sessions()
    one.store.lose_next_answer(AFTER)
    with pytest.raises(StoreUnavailable):
        one.store.register(1, registration(1))
    one.store.expire()
    assert other.store.liveness().brokers == frozenset()


def test_a_refresh_does_not_wait_for_the_delivery() -> None:
    late: list[Callable[[], None]] = []
    ensemble = MemoryEnsemble()
    one, other = Session(ensemble, late.append), Session(ensemble)
    other.store.commit([Write("/a", b"x", None)])
    assert one.heard == []
    one.store.refresh()
    assert one.heard == [1]
    for deliver in late:
        deliver()
    assert one.heard == [1], "each once"


class Clock:
    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    wall_ms = monotonic_ms


def test_the_fence_comes_when_the_session_may_have_ended() -> None:
    clock = Clock()
    session = Session(MemoryEnsemble(clock, session_timeout_ms=1_000))
    session.store.cut_off()
    clock.now_ms = 999
    assert not session.store.is_fenced()
    clock.now_ms = 1_000
    assert session.store.is_fenced()
