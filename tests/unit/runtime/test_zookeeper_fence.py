"""When a broker is fenced: heartbeats that are answered late, never, or in another session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.runtime.zookeeper_connection import ZooKeeperConnection
from ottla.runtime.zookeeper_fence import Fence, Heartbeat

TIMEOUT_MS = 9_000


class StillClock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Answer:
    def __init__(self) -> None:
        self.good = True
        self._callback: Callable[[Answer], None]

    def rawlink(self, callback: Callable[[Answer], None]) -> None:
        self._callback = callback

    def successful(self) -> bool:
        return self.good

    def come(self, *, good: bool = True) -> None:
        self.good = good
        self._callback(self)


class Connection:
    """As much of one as a heartbeat needs."""

    def __init__(self) -> None:
        self.connected = threading.Event()
        self.connected.set()
        self.session_count = 0
        self.session_timeout_ms = TIMEOUT_MS
        self.asked: list[Answer] = []
        self.drops = 0

    def revive(self) -> None:
        pass

    def drop(self) -> None:
        self.drops += 1

    def sync_later(self) -> Any:
        self.asked.append(Answer())
        return self.asked[-1]


class World:
    def __init__(self) -> None:
        self.clock = StillClock()
        self.connection = Connection()
        self.fence = Fence(self.clock, lambda: self.connection.session_timeout_ms)
        self.heartbeat = Heartbeat(
            cast(ZooKeeperConnection, self.connection), self.fence, self.clock
        )

    def beat(self) -> Answer:
        self.heartbeat._beat()
        return self.connection.asked[-1]


@pytest.fixture
def world() -> World:
    one = World()
    one.fence.registered()
    return one


def test_an_answer_proves_the_moment_of_its_question(world: World) -> None:
    question = world.beat()
    world.clock.now_ms += 6_000
    question.come()
    assert not world.fence.is_fenced()
    world.clock.now_ms += 3_000
    assert not world.fence.is_fenced()
    world.clock.now_ms += 1
    assert world.fence.is_fenced()


def test_answers_that_come_in_another_order_prove_the_latest(world: World) -> None:
    first = world.beat()
    world.clock.now_ms += 2_000
    world.beat().come()
    first.come()
    world.clock.now_ms += 9_000
    assert not world.fence.is_fenced()


def test_an_answer_of_another_session_proves_nothing(world: World) -> None:
    question = world.beat()
    world.connection.session_count += 1
    question.come()
    assert world.fence.is_fenced()


def test_a_failure_proves_nothing(world: World) -> None:
    world.beat().come(good=False)
    assert world.fence.is_fenced()


def test_a_session_that_did_not_register_is_fenced() -> None:
    world = World()
    world.beat().come()
    assert world.fence.is_fenced()
    world.fence.registered()
    assert not world.fence.is_fenced()
    world.fence.session_lost()
    world.beat().come()
    assert world.fence.is_fenced()


def test_nobody_is_alive_after_the_end(world: World) -> None:
    world.beat().come()
    world.fence.close()
    assert world.fence.is_fenced()


def test_silence_for_two_thirds_of_the_time_out_drops_the_connection(world: World) -> None:
    world.beat()
    world.clock.now_ms += 3_000
    world.beat()
    assert world.connection.drops == 0
    world.clock.now_ms += 3_000
    world.heartbeat._beat()
    assert world.connection.drops == 1
    assert len(world.connection.asked) == 2  # into a connection that is being dropped: nothing


def test_an_answer_ends_the_silence(world: World) -> None:
    question = world.beat()
    world.clock.now_ms += 3_000
    question.come()
    world.beat()
    world.clock.now_ms += 3_000
    world.beat()
    assert world.connection.drops == 0


def test_without_a_connection_nothing_is_asked_and_nothing_counts_as_silence(world: World) -> None:
    world.beat()
    world.connection.connected.clear()
    world.clock.now_ms += 60_000
    world.heartbeat._beat()
    world.connection.connected.set()
    world.beat()
    assert world.connection.drops == 0
    assert len(world.connection.asked) == 2


def test_a_silence_is_told_while_it_lasts_and_when_it_has_ended(world: World) -> None:
    assert world.fence.last_silence_ms() is None
    world.beat().come()
    world.clock.now_ms += 6_000
    assert world.fence.last_silence_ms() is None, "a heartbeat may be late"
    world.clock.now_ms += 1
    assert not world.fence.is_fenced()
    assert world.fence.last_silence_ms() == world.clock.now_ms
    world.beat().come()
    ended_ms = world.clock.now_ms
    world.clock.now_ms += 3_000
    world.beat().come()
    assert world.fence.last_silence_ms() == ended_ms


def test_heartbeats_that_are_answered_are_no_silence(world: World) -> None:
    for _ in range(10):
        world.beat().come()
        world.clock.now_ms += 3_000
    assert world.fence.last_silence_ms() is None
