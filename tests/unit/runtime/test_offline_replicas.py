"""Goal: the cluster hears of every replica that was lost, however often it has to be told.
Method: a driver that the test answers for, virtual time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from ottla.base.deferred import Deferred
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import StoreUnavailable
from ottla.metadata.topic_settings import TopicSettings
from ottla.runtime.offline_replicas import RETRY_MS, OfflineReplicas
from sim.groups.virtual import VirtualTime
from tests.unit.metadata.builders import SETTINGS, Cluster, registration


class Driver:
    def __init__(self) -> None:
        self.cluster = Cluster(brokers=(1, 2, 3))
        self.cluster.create_on("t", (1, 2, 3), (2, 3, 1))
        self.is_away = False
        self.is_slow = False
        self.submitted = 0
        self._waiting: list[Callable[[], None]] = []

    def settings(self) -> TopicSettings:
        return SETTINGS

    def submit(self, decide: Callable[[MetadataImage], Decision[Any]]) -> Deferred[Any]:
        self.submitted += 1
        if self.is_away:
            lost: Deferred[Any] = Deferred()
            lost.fail(StoreUnavailable("away"))
            return lost
        if not self.is_slow:
            return self.cluster.submit(decide)
        answer: Deferred[Any] = Deferred()
        # Decided at once, answered later.
        decided = self.cluster.run(decide)
        self._waiting.append(lambda: answer.resolve(decided))
        return answer

    def go_on(self) -> None:
        self.is_slow = False
        while self._waiting:
            self._waiting.pop()()

    def in_sync(self, index: int) -> tuple[int, ...]:
        state = self.cluster.image.partition("t", index)
        assert state is not None
        return state.in_sync


class Lost:
    """What is lost on broker 1, and who tells of it."""

    def __init__(self) -> None:
        self.driver, self.time = Driver(), VirtualTime()
        self.indexes: frozenset[int] = frozenset()
        self.offline = OfflineReplicas(1, self.driver, self.time, self.lost)

    def lost(self) -> dict[uuid.UUID, frozenset[int]]:
        topic = self.driver.cluster.image.topics["t"]
        return {topic.topic_id: self.indexes} if self.indexes else {}

    def lose(self, *indexes: int) -> None:
        self.indexes |= set(indexes)
        self.offline.tell()

    def told(self) -> list[int]:
        image = self.driver.cluster.image
        return [index for index in (0, 1) if image.lost_by(image.topics["t"], index) == {1}]

    def on_image(self) -> None:
        self.offline.on_image(self.driver.cluster.image)


def test_told_once_until_there_is_nothing_to_write() -> None:
    on = Lost()
    on.lose(0, 1)
    driver = on.driver
    assert (driver.in_sync(0), driver.in_sync(1)) == ((2, 3), (2, 3))
    assert on.told() == [0, 1]
    assert driver.submitted == 2
    on.on_image()
    on.time.advance(10 * RETRY_MS)
    assert driver.submitted == 2


def test_told_again_while_nobody_listens() -> None:
    on = Lost()
    on.driver.is_away = True
    on.lose(0)
    on.time.advance(3 * RETRY_MS)
    assert on.driver.submitted == 4
    on.driver.is_away = False
    on.time.advance(RETRY_MS)
    assert on.driver.in_sync(0) == (2, 3)


def test_a_registration_that_does_not_say_it_any_more_is_mended() -> None:
    on = Lost()
    on.lose(0)
    cluster = on.driver.cluster
    cluster.lose(1)
    on.on_image()
    assert on.driver.submitted == 2, "nobody is there who could say it"
    cluster.store.register(1, registration(1))
    cluster.reload()
    assert on.told() == []
    on.on_image()
    assert on.told() == [0]


def test_a_replica_that_is_of_use_again_is_not_told_any_more() -> None:
    on = Lost()
    on.lose(0, 1)
    on.indexes = frozenset({1})
    on.on_image()
    assert on.told() == [1]


def test_what_is_lost_while_a_commit_is_under_way_is_told_by_the_next() -> None:
    on = Lost()
    on.driver.is_slow = True
    on.lose(0)
    on.lose(1)
    assert on.driver.submitted == 1
    on.driver.go_on()
    assert on.told() == [0, 1]


def test_closed_it_says_nothing_any_more() -> None:
    on = Lost()
    on.driver.is_away = True
    on.lose(0)
    on.offline.close()
    on.time.advance(10 * RETRY_MS)
    assert on.driver.submitted == 1
