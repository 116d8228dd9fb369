"""Goal: a damaged node costs what stands in it, never more: no topic is taken for deleted.
Method: damage of every kind of node, by a change and by a load, beside changes that are sound.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.metadata import nodes, paths
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.image import MetadataImage
from ottla.metadata.sound_changes import apply_sound, reload_sound
from ottla.metadata.store import Change, NodeUpdate, Snapshot, Write
from tests.unit.metadata.builders import Cluster, registration

DAMAGED = b"\xff{"


def a_cluster() -> Cluster:
    cluster = Cluster(brokers=(1, 2))
    cluster.create_on("t", (1, 2), (2, 1))
    cluster.create_on("u", (1,))
    cluster.store.commit(
        [
            Write(paths.topic_configs("t"), nodes.configs({"retention.ms": "5"}), None),
            Write(paths.broker_configs(""), nodes.configs({"log.retention.ms": "5"}), None),
            Write(paths.group_configs("a/b"), nodes.configs({"x": "y"}), None),
            Write(paths.client_metrics_configs("m"), nodes.configs({"x": "y"}), None),
        ]
    )
    cluster.reload()
    return cluster


PATHS = [
    paths.topic("t"),
    paths.partition_state("t", 1),
    paths.topic_configs("t"),
    paths.broker_configs(""),
    paths.group_configs("a/b"),
    paths.client_metrics_configs("m"),
    paths.broker_id(2),
    paths.CONTROLLER,
    paths.CONTROLLER_EPOCH,
    paths.CLUSTER_ID,
    paths.FEATURES,
]


@pytest.mark.parametrize("path", PATHS)
def test_beside_damage_everything_else_is_taken(path: str) -> None:
    before = a_cluster().image
    updates = (
        NodeUpdate(path, DAMAGED, 7, 1),
        NodeUpdate(paths.topic_configs("u"), nodes.configs({"retention.ms": "9"}), 0, 50),
    )
    after, damaged = apply_sound(before, Change(50, updates))
    assert [damage.path for damage in damaged] == [path]
    assert after.topics["u"].configs == {"retention.ms": "9"}
    assert after.topics["t"] is before.topics["t"]
    assert known_of(after) == known_of(before)
    assert after.last_change == 50


@pytest.mark.parametrize("path", PATHS)
def test_a_load_keeps_what_was_known_of_the_damaged(path: str) -> None:
    cluster = a_cluster()
    before = cluster.image
    cluster.store.commit([Write(path, DAMAGED, None), Write("/x", b"", None)])
    snapshot = cluster.store.load()
    after, damaged = reload_sound(before, snapshot)
    assert [damage.path for damage in damaged] == [path]
    assert after.topics == before.topics
    assert after.topic_names_by_id == before.topic_names_by_id
    assert known_of(after) == known_of(before)
    assert after.last_change == snapshot.last_change


def known_of(image: MetadataImage) -> MetadataImage:
    """All but topics, and versions, which are those of the store."""
    return replace(image, topics={}, topic_names_by_id={}, versions={}, last_change=0)


def test_it_heals_when_the_node_does() -> None:
    cluster = a_cluster()
    before = cluster.image
    sound = cluster.store.load().nodes[paths.topic("t")].content
    cluster.store.commit([Write(paths.topic("t"), DAMAGED, None)])
    image, damaged = reload_sound(before, cluster.store.load())
    assert damaged
    cluster.store.commit([Write(paths.topic("t"), sound, None)])
    image, damaged = reload_sound(image, cluster.store.load())
    assert damaged == []
    assert image == image_from_snapshot(cluster.store.load())


def test_what_nobody_knew_before_is_left_out() -> None:
    cluster = a_cluster()
    updates = (NodeUpdate(paths.topic("new"), DAMAGED, 0, 50),)
    after, damaged = apply_sound(cluster.image, Change(50, updates))
    assert len(damaged) == 1
    assert after.topics == cluster.image.topics
    cluster.store.commit([Write(paths.topic("new"), DAMAGED, None)])
    after, damaged = reload_sound(cluster.image, cluster.store.load())
    assert len(damaged) == 1
    assert after.topics == cluster.image.topics


def test_damage_that_can_not_be_placed_changes_nothing() -> None:
    cluster = a_cluster()
    topic_id = cluster.image.topics["t"].topic_id
    cluster.store.commit(
        [
            Write(paths.topic("twin"), nodes.topic(topic_id, {0: (1,)}, {}, {}), None),
            Write(
                paths.partition_state("twin", 0),
                cluster.store.load().nodes[paths.partition_state("u", 0)].content,
                None,
            ),
        ]
    )
    after, damaged = reload_sound(cluster.image, cluster.store.load())
    assert len(damaged) == 1
    assert after.topics is cluster.image.topics


def test_a_broker_beside_a_damaged_one_comes() -> None:
    cluster = a_cluster()
    cluster.store.commit([Write(paths.broker_id(2), DAMAGED, None)])
    cluster.store.register(3, registration(3))
    image, damaged = reload_sound(cluster.image, cluster.store.load())
    assert sorted(image.brokers) == [1, 2, 3]
    assert len(damaged) == 1


def test_nothing_in_the_store_is_not_damage() -> None:
    image, damaged = reload_sound(a_cluster().image, Snapshot({}, 3))
    assert damaged == []
    assert image.topics == {}
