"""Goal: what was acknowledged with acks=all survives whatever happens to a minority of brokers, and
every replica ends with the same bytes (features, rows 9 to 31).
Method: three brokers in this process over real sockets and files, clients of confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Cluster
from tests.cluster.replicated import Replicated


@pytest.fixture
def replicated() -> Iterator[Replicated]:
    with Cluster(3) as cluster:
        yield Replicated(cluster)


def test_a_killed_leader_loses_nothing(replicated: Replicated) -> None:
    replicated.create()
    producer = replicated.producer()
    for _ in range(3):
        replicated.send(producer, 30)
        killed = replicated.kill_leader()
        replicated.send(producer, 30)
        replicated.flush(producer)
        replicated.cluster.start(killed)
        replicated.until_in_sync(1, 2, 3)
    assert not replicated.failed
    replicated.check_nothing_lost()
    replicated.until_alike(1, 2, 3)


def test_a_follower_that_was_away_catches_up_by_itself(replicated: Replicated) -> None:
    replicated.create()
    producer = replicated.producer()
    replicated.send(producer, 5)
    follower = next(one for one in (1, 2, 3) if one != replicated.leader())
    replicated.cluster.kill(follower)
    replicated.send(producer, 50)
    replicated.flush(producer)
    assert follower not in replicated.cluster.in_sync("orders")
    replicated.cluster.start(follower)
    replicated.until_in_sync(1, 2, 3)
    replicated.until_alike(1, 2, 3)
    assert len(replicated.acked) == 55
