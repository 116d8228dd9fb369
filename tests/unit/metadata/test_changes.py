"""Goal: the image follows the store, change by change, and takes nothing that is damaged.
Method: random histories of a cluster, after each step of which the image that grew must equal the
one that a fresh start loads; damaged changes, which must leave the image as it was; what is not
touched must be the same object as before.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import nodes, paths
from ottla.metadata.changes import apply, image_from_snapshot
from ottla.metadata.controller import (
    MorePartitions,
    NewTopic,
    TopicSelection,
    decide_create_partitions,
    decide_delete_topics,
    decide_elect_leaders,
    decide_producer_id_block,
)
from ottla.metadata.features import FINALIZED
from ottla.metadata.image import PartitionState
from ottla.metadata.nodes import DamagedNode, StateContent
from ottla.metadata.store import Change, NodeUpdate, Snapshot, Write
from tests.unit.metadata.builders import CLUSTER_ID, SETTINGS, Cluster, registration


def test_an_empty_store_gives_an_empty_image() -> None:
    image = image_from_snapshot(Snapshot({}, 0))
    assert image.topics == {}
    assert image.brokers == {}
    assert image.last_change == 0
    assert image.version_of("/nothing") == -1


def test_a_cluster_as_loaded() -> None:
    cluster = Cluster(brokers=(1, 2), dead=(3,))
    image = cluster.image
    assert image.cluster_id == CLUSTER_ID
    assert (image.controller_id, image.controller_epoch) == (1, 1)
    assert image.features == FINALIZED
    assert [(broker.broker_id, broker.fenced) for broker in image.brokers.values()] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert image.brokers[1].endpoints == {"PLAINTEXT": ("host1", 9092)}
    assert image.live_brokers() == [image.brokers[1], image.brokers[2]]
    assert image.is_live(1)
    assert not image.is_live(3)
    assert not image.is_live(9)


def test_a_topic() -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.create(
        NewTopic("t", assignments=[(0, (1, 2)), (1, (2, 1))], configs=[("retention.ms", "5")])
    )
    topic = cluster.image.topics["t"]
    assert topic.partitions == {
        0: PartitionState(1, 0, (1, 2), (1, 2)),
        1: PartitionState(2, 0, (2, 1), (2, 1)),
    }
    assert topic.configs == {"retention.ms": "5"}
    assert (topic.version, topic.configs_version) == (0, 0)
    assert cluster.image.topic_by_id(topic.topic_id) is topic
    assert cluster.image.topic_by_id(uuid.UUID(int=1)) is None
    assert cluster.image.partition("t", 1) is topic.partitions[1]
    assert cluster.image.partition("t", 2) is None
    assert cluster.image.partition("other", 0) is None


def test_a_change_is_taken_once() -> None:
    cluster = Cluster()
    change = cluster.store.commit([Write(paths.broker_configs("1"), nodes.configs({}), None)])
    once = apply(cluster.image, change)
    assert once is not cluster.image
    assert apply(once, change) is once


def test_what_is_not_touched_is_the_same_object() -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.create_on("a", (1, 2), (1, 2))
    cluster.create_on("b", (1, 2))
    before = cluster.image
    change = cluster.store.commit(
        [
            Write(
                paths.partition_state("a", 0),
                nodes.partition_state(1, StateContent(1, 1, (1,), (), ())),
                0,
            )
        ]
    )
    after = apply(before, change)
    assert after.topics["a"].partitions[0] == PartitionState(1, 1, (1, 2), (1,), 1)
    assert after.topics["a"].partitions[1] is before.topics["a"].partitions[1]
    assert after.topics["a"].configs is before.topics["a"].configs
    assert after.topics["b"] is before.topics["b"]
    assert after.brokers is before.brokers
    assert after.topic_names_by_id is before.topic_names_by_id
    assert after.versions is before.versions
    assert before.topics["a"].partitions[0].in_sync == (1, 2)


def test_settings_of_all_kinds() -> None:
    cluster = Cluster()
    for path, field, name in (
        (paths.broker_configs(""), "broker_configs", ""),
        (paths.broker_configs("1"), "broker_configs", "1"),
        (paths.client_metrics_configs("a/b"), "client_metrics_configs", "a/b"),
        (paths.group_configs("g g"), "group_configs", "g g"),
    ):
        change = cluster.store.commit([Write(path, nodes.configs({"k": "v"}), None)])
        image = apply(cluster.image, change)
        assert getattr(image, field)[name] == {"k": "v"}
        assert image.version_of(path) == 0
        image = apply(image, cluster.store.commit([Write(path, None, 0)]))
        assert name not in getattr(image, field)
        assert image.version_of(path) == -1


def is_fenced(cluster: Cluster, broker: int) -> bool:
    return cluster.image.brokers[broker].fenced


def test_brokers_die_come_back_and_are_forgotten() -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.store.follow(lambda change: setattr(cluster, "image", apply(cluster.image, change)))
    first_epoch = cluster.image.brokers[2].epoch
    cluster.store.unregister(2)
    assert is_fenced(cluster, 2)
    assert cluster.same_as_store()
    cluster.store.register(2, registration(2, "elsewhere"))
    assert cluster.image.brokers[2].epoch > first_epoch
    assert cluster.image.brokers[2].rack == "elsewhere"
    # What is known for good goes only with the node that says so, and not while it is alive.
    cluster.store.commit([Write(paths.broker_epoch(2), None, None)])
    assert not is_fenced(cluster, 2)
    assert cluster.same_as_store()
    cluster.store.unregister(2)
    assert 2 not in cluster.image.brokers
    cluster.store.commit([Write(paths.broker_epoch(1), None, None)])
    cluster.store.commit([Write(paths.broker_epoch(3), registration(3), None)])
    assert is_fenced(cluster, 3)
    cluster.store.commit([Write(paths.broker_epoch(3), registration(3, "r"), None)])
    assert cluster.image.brokers[3].rack == "r"
    cluster.store.commit([Write(paths.broker_epoch(3), None, None)])
    assert 3 not in cluster.image.brokers
    assert cluster.same_as_store()


def test_nodes_that_go_leave_defaults() -> None:
    cluster = Cluster()
    cluster.run(decide_producer_id_block)
    for path in (
        paths.CLUSTER_ID,
        paths.CONTROLLER,
        paths.CONTROLLER_EPOCH,
        paths.FEATURES,
        paths.PRODUCER_ID_BLOCK,
    ):
        cluster.image = apply(cluster.image, cluster.store.commit([Write(path, None, None)]))
    image = cluster.image
    assert (image.cluster_id, image.controller_id, image.controller_epoch) == ("", -1, 0)
    assert image.features == {}
    assert image.next_producer_id == 0


def test_nodes_of_others_are_left_alone() -> None:
    cluster = Cluster()
    change = cluster.store.commit([Write("/admin/delete_topics/x", b"not ours", None)])
    assert apply(cluster.image, change).topics == {}


def test_a_topic_made_again_under_its_name_is_another_one() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t", partition_count=2))
    old = cluster.image.topics["t"]
    cluster.run(lambda image: decide_delete_topics(image, [TopicSelection("t")]))
    assert cluster.image.topics == {}
    assert cluster.image.topic_names_by_id == {}
    cluster.create(NewTopic("t"))
    assert cluster.image.topics["t"].topic_id != old.topic_id
    assert cluster.image.topic_names_by_id == {cluster.image.topics["t"].topic_id: "t"}
    # A follower that missed the deletion sees another id under the same path.
    replaced = NodeUpdate(paths.topic("t"), nodes.topic(old.topic_id, {0: (1,)}, {}, {}), 0, 99)
    state = NodeUpdate(
        paths.partition_state("t", 0),
        nodes.partition_state(1, StateContent(1, 0, (1,), (), ())),
        0,
        99,
    )
    image = apply(cluster.image, Change(cluster.image.last_change + 1, (replaced, state)))
    assert image.topic_names_by_id == {old.topic_id: "t"}


def state(leader: int, in_sync: list[int]) -> bytes:
    return nodes.encode({"leader": leader, "leader_epoch": 1, "isr": in_sync})


ID = uuid.UUID(int=77)
TOPIC = nodes.topic(ID, {0: (1, 2), 1: (1, 2)}, {}, {})


@pytest.mark.parametrize(
    ("updates", "path"),
    [
        ({"/brokers/topics/t/partitions/0/state": b"garbage"}, None),
        ({"/brokers/topics/t/partitions/0/state": state(1, [])}, None),
        ({"/brokers/topics/t/partitions/0/state": state(1, [1, 9])}, None),
        ({"/brokers/topics/t/partitions/0/state": state(1, [2])}, None),
        ({"/brokers/topics/t/partitions/5/state": state(1, [1])}, None),
        ({"/brokers/topics/t/partitions/0/state": None}, None),
        ({"/brokers/topics/t/partitions/x/state": state(1, [1])}, None),
        ({"/brokers/topics/t/partitions/0": b""}, None),
        ({"/brokers/topics/u": TOPIC}, "/brokers/topics/u/partitions/0/state"),
        ({"/brokers/topics/u/partitions/0/state": state(1, [1])}, None),
        ({"/config/topics/u": nodes.configs({})}, None),
        ({"/config/topics/t": b"[]"}, None),
        (
            {
                "/brokers/topics/t": nodes.topic(ID, {0: (1, 2)}, {}, {}),
                "/brokers/topics/t/partitions/0/state": state(1, [1]),
                "/brokers/topics/t/partitions/1/state": state(1, [1]),
            },
            "/brokers/topics/t/partitions/1/state",
        ),
        (
            {"/brokers/topics/t": TOPIC, "/brokers/topics/t/partitions/0/state": None},
            "/brokers/topics/t/partitions/0/state",
        ),
        ({"/brokers/topics/t": None, "/config/topics/t": nodes.configs({})}, "/config/topics/t"),
        ({"/brokers/ids/x": registration(1)}, None),
        ({"/brokers/ids/" + "9" * 5000: registration(1)}, None),
        ({"/brokers/ids/4": b"{}"}, None),
        ({"/brokers/epochs/4": b"{}"}, None),
        ({"/controller": b"{}"}, None),
        ({"/feature": b"{}"}, None),
        ({"/config/brokers/1": b"{}"}, None),
        ({"/config/groups/%FF": nodes.configs({})}, None),
        ({"/config/client-metrics/%FF": nodes.configs({})}, None),
    ],
)
def test_a_damaged_change_is_refused_whole(updates: dict[str, bytes | None], path: Any) -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.create_on("t", (1, 2), (1, 2))
    good = NodeUpdate(paths.broker_configs("1"), nodes.configs({"a": "b"}), 0, 50)
    change = Change(
        50, (good, *(NodeUpdate(each, content, 3, 50) for each, content in updates.items()))
    )
    before = cluster.image
    with pytest.raises(DamagedNode) as damaged:
        apply(before, change)
    assert damaged.value.path == (path or next(iter(updates)))
    assert cluster.same_as_store()
    assert before.broker_configs == {}


def test_two_topics_cannot_have_one_id() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t"))
    topic_id = cluster.image.topics["t"].topic_id
    change = Change(
        50,
        (
            NodeUpdate(paths.topic("u"), nodes.topic(topic_id, {0: (1,)}, {}, {}), 0, 50),
            NodeUpdate(paths.partition_state("u", 0), state(1, [1]), 0, 50),
        ),
    )
    with pytest.raises(DamagedNode, match="same id"):
        apply(cluster.image, change)


def grow(cluster: Cluster, name: str, count: int) -> None:
    cluster.run(lambda image: decide_create_partitions(image, [MorePartitions(name, count)]))


def delete(cluster: Cluster, name: str, _: int) -> None:
    cluster.run(lambda image: decide_delete_topics(image, [TopicSelection(name)]))


def elect(cluster: Cluster, name: str, kind: int) -> None:
    cluster.run(lambda image: decide_elect_leaders(image, [(name, 0)], kind % 2, SETTINGS))


def create(cluster: Cluster, name: str, count: int) -> None:
    cluster.create(NewTopic(name, partition_count=count, replication_factor=2))


def lose(cluster: Cluster, _: str, broker: int) -> None:
    cluster.store.unregister(broker)


def register(cluster: Cluster, _: str, broker: int) -> None:
    cluster.store.register(broker, registration(broker))


def take_producer_ids(cluster: Cluster, _: str, __: int) -> None:
    cluster.run(decide_producer_id_block)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([create, grow, delete, elect, lose, register, take_producer_ids]),
        st.sampled_from("abc"),
        st.integers(1, 3),
    ),
    max_size=25,
)


@given(STEPS)
def test_the_image_that_grew_is_the_one_that_is_loaded(
    steps: list[tuple[Callable[[Cluster, str, int], None], str, int]],
) -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    # What `run` has applied already is taken once; what others commit comes in this way only.
    cluster.store.follow(lambda change: setattr(cluster, "image", apply(cluster.image, change)))
    for step, name, number in steps:
        step(cluster, name, number)
        assert cluster.same_as_store()
