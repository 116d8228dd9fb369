"""Goal: the figures of a cluster say what is wrong with it, and where.
Method: states made by hand; what is exposed is read back by its Prometheus names.
"""

from __future__ import annotations

from dataclasses import fields

from ottla.broker.cluster_figures import ClusterFigures, count, families
from ottla.metadata import nodes, paths
from ottla.metadata.nodes import StateContent
from ottla.metadata.store import Write
from tests.unit.metadata.builders import SETTINGS, Cluster


def a_cluster(*states: StateContent) -> Cluster:
    """Topic t with three replicas for each partition, in these states; 1 is the controller."""
    cluster = Cluster(brokers=(1, 2), dead=(3,))
    cluster.create_on("t", *[(1, 2, 3)] * len(states))
    for index, state in enumerate(states):
        content = nodes.partition_state(1, state)
        cluster.store.commit([Write(paths.partition_state("t", index), content, None)])
    cluster.reload()
    return cluster


def state(leader: int, *in_sync: int) -> StateContent:
    return StateContent(leader, 4, in_sync, (), ())


def test_partitions_are_counted_by_their_leaders() -> None:
    image = a_cluster(state(1, 1, 2, 3), state(1, 1, 2), state(1, 1), state(2, 2)).image
    one, two = count(image, 1, SETTINGS), count(image, 2, SETTINGS)
    assert (one.leaders, one.under_replicated, one.under_min_in_sync) == (3, 2, 1)
    assert (two.leaders, two.under_replicated, two.under_min_in_sync) == (1, 1, 1)
    assert (one.live_brokers, one.fenced_brokers) == (2, 1)


def test_those_without_a_leader_by_the_controller() -> None:
    image = a_cluster(state(-1, 3), state(1, 1, 2, 3)).image
    assert (count(image, 1, SETTINGS).leaderless, count(image, 2, SETTINGS).leaderless) == (1, 0)
    assert count(image, 1, SETTINGS).is_controller
    assert not count(image, 2, SETTINGS).is_controller


def test_who_is_being_added_is_not_missed() -> None:
    cluster = a_cluster(state(1, 1, 2, 3))
    topic = cluster.image.topics["t"]
    content = nodes.topic(topic.topic_id, {0: (1, 2, 3)}, {0: (3,)}, {})
    small = nodes.partition_state(1, state(1, 1, 2))
    cluster.store.commit(
        [
            Write(paths.topic("t"), content, None),
            Write(paths.partition_state("t", 0), small, None),
        ]
    )
    cluster.reload()
    figures = count(cluster.image, 1, SETTINGS)
    assert (figures.under_replicated, figures.reassigning) == (0, 1)


def test_every_figure_is_exposed() -> None:
    figures = ClusterFigures()
    for number, each in enumerate(fields(figures), 1):
        setattr(figures, each.name, number)
    exposed = {sample.name: sample.value for one in families(figures) for sample in one.samples}
    assert len(exposed) == 14
    assert sorted(exposed.values()) == list(range(1, 15))
    assert exposed["kafka_controller_kafkacontroller_activecontrollercount"] == 6
    assert exposed["kafka_server_replicamanager_underminisrpartitioncount"] == 3
    assert exposed["kafka_server_replicamanager_isrshrinks_total"] == 9
