"""Goal: the cluster hears of every replica that was lost, however often it has to be told.
Method: a driver that the test answers for, virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.deferred import Deferred
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import StoreUnavailable
from ottla.metadata.topic_settings import TopicSettings
from ottla.runtime.offline_replicas import RETRY_MS, OfflineReplicas
from sim.groups.virtual import VirtualTime
from tests.unit.metadata.builders import SETTINGS, Cluster


class Driver:
    def __init__(self) -> None:
        self.cluster = Cluster(brokers=(1, 2, 3))
        self.cluster.create_on("t", (1, 2, 3), (2, 3, 1))
        self.is_away = False
        self.submitted = 0

    def settings(self) -> TopicSettings:
        return SETTINGS

    def submit(self, decide: Callable[[MetadataImage], Decision[Any]]) -> Deferred[Any]:
        self.submitted += 1
        if self.is_away:
            lost: Deferred[Any] = Deferred()
            lost.fail(StoreUnavailable("away"))
            return lost
        return self.cluster.submit(decide)

    def in_sync(self, index: int) -> tuple[int, ...]:
        state = self.cluster.image.partition("t", index)
        assert state is not None
        return state.in_sync


def test_told_once_until_there_is_nothing_to_write() -> None:
    driver, time = Driver(), VirtualTime()
    offline = OfflineReplicas(1, driver, time)
    offline.add([("t", 0), ("t", 1)])
    assert (driver.in_sync(0), driver.in_sync(1)) == ((2, 3), (2, 3))
    assert driver.submitted == 2
    time.advance(10 * RETRY_MS)
    assert driver.submitted == 2


def test_told_again_while_nobody_listens() -> None:
    driver, time = Driver(), VirtualTime()
    driver.is_away = True
    offline = OfflineReplicas(1, driver, time)
    offline.add([("t", 0)])
    time.advance(3 * RETRY_MS)
    assert driver.submitted == 4
    driver.is_away = False
    time.advance(RETRY_MS)
    assert driver.in_sync(0) == (2, 3)


def test_closed_it_says_nothing_any_more() -> None:
    driver, time = Driver(), VirtualTime()
    driver.is_away = True
    offline = OfflineReplicas(1, driver, time)
    offline.add([("t", 0)])
    offline.close()
    time.advance(10 * RETRY_MS)
    assert driver.submitted == 1
