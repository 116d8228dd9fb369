"""Goal: a broker that has lost replicas leaves their in-sync sets, and nothing that others know is
lost by it.
Method: decisions on a cluster in memory.
"""

from __future__ import annotations

from ottla.metadata.image import PartitionState
from ottla.metadata.offline_replicas import decide_offline_replicas
from tests.unit.metadata.builders import SETTINGS, Cluster


def offline(cluster: Cluster, broker_id: int, *lost: tuple[str, int]) -> int:
    done = cluster.run(lambda image: decide_offline_replicas(image, broker_id, lost, SETTINGS))
    assert cluster.same_as_store()
    return len(done.moved)


def state(cluster: Cluster, topic: str = "t", index: int = 0) -> PartitionState:
    found = cluster.image.partition(topic, index)
    assert found is not None
    return found


def a_cluster() -> Cluster:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", (1, 2, 3), (2, 3, 1))
    return cluster


def test_a_lost_leader_is_replaced() -> None:
    cluster = a_cluster()
    assert offline(cluster, 1, ("t", 0)) == 1
    after = state(cluster)
    assert (after.leader, after.leader_epoch, after.in_sync, after.eligible) == (2, 1, (2, 3), ())
    assert state(cluster, index=1).in_sync == (2, 3, 1)


def test_a_lost_follower_leaves_the_set() -> None:
    cluster = a_cluster()
    assert offline(cluster, 1, ("t", 1)) == 1
    after = state(cluster, index=1)
    assert (after.leader, after.leader_epoch, after.in_sync) == (2, 0, (2, 3))


def test_it_is_not_even_eligible() -> None:
    cluster = a_cluster()
    for broker in (3, 2):
        offline(cluster, broker, ("t", 0))
    after = state(cluster)
    assert (after.in_sync, after.eligible) == ((1,), ())


def test_the_only_one_that_knows_stays() -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.create_on("t", (1,))
    assert offline(cluster, 1, ("t", 0)) == 0
    assert state(cluster).leader == 1


def test_what_is_said_already_or_not_there_is_nothing_to_do() -> None:
    cluster = a_cluster()
    offline(cluster, 1, ("t", 0))
    assert offline(cluster, 1, ("t", 0), ("t", 9), ("nope", 0)) == 0
