"""Goal: topics are made, grown and deleted by writes that rest on what was decided upon.
Method: decisions over a small cluster; the writes are looked at where they matter, else the image
after them. What each refusal is told to a client is in the conversations recorded with Kafka.
"""

from __future__ import annotations

import uuid

import pytest

from ottla.base.errors import ProtocolError
from ottla.metadata import nodes, paths
from ottla.metadata.controller import (
    CreateResult,
    Decision,
    MorePartitions,
    NewTopic,
    TopicDefaults,
    TopicSelection,
    decide_alter_reassignments,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.reassignment import Reassignment
from ottla.metadata.store import ABSENT, Check, VersionConflict, Write
from ottla.metadata.topics_control import PARTITIONS_PER_REQUEST_MAX
from ottla.protocol.error_codes import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.unit.metadata.builders import SETTINGS, Cluster, Uuids, any_configs


def decide(
    image: MetadataImage, *topics: NewTopic, **options: bool
) -> Decision[list[CreateResult]]:
    return decide_create_topics(
        image,
        topics,
        defaults=TopicDefaults(3, 2),
        check_configs=any_configs,
        new_uuid=Uuids(),
        **options,
    )


def codes(results: list[CreateResult]) -> dict[str, int]:
    return {result.name: result.error_code for result in results}


def test_a_new_topic_in_the_store() -> None:
    cluster = Cluster()
    decision = decide(
        cluster.image, NewTopic("t", 1, 1, configs=[("retention.ms", "5"), ("retention.ms", "6")])
    )
    epoch_version = cluster.image.version_of(paths.CONTROLLER_EPOCH)
    check, *writes = decision.writes
    assert check == Check(paths.CONTROLLER_EPOCH, epoch_version)
    assert [
        (write.path, write.expected_version) for write in writes if isinstance(write, Write)
    ] == [
        ("/brokers/topics/t", ABSENT),
        ("/config/topics/t", ABSENT),
        ("/brokers/topics/t/partitions/0/state", ABSENT),
    ]
    (result,) = decision.response
    assert (result.error_code, result.partition_count, result.replication_factor) == (NONE, 1, 1)
    assert result.configs == {"retention.ms": "6"}
    cluster.run(lambda image: decision)
    assert cluster.image.topics["t"].topic_id == result.topic_id
    assert cluster.same_as_store()


def test_a_topic_without_settings_has_no_node_for_them() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t"))
    assert paths.topic_configs("t") not in cluster.store.load().nodes


def test_the_brokers_defaults() -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    (result,) = decide(cluster.image, NewTopic("t")).response
    assert (result.partition_count, result.replication_factor) == (3, 2)


def test_one_bad_item_spoils_no_other() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("old"))
    results = cluster.create(
        NewTopic("old"), NewTopic("bad name"), NewTopic("good"), NewTopic("none", 0)
    )
    assert codes(results) == {
        "old": TOPIC_ALREADY_EXISTS,
        "bad name": 17,
        "good": NONE,
        "none": INVALID_PARTITIONS,
    }
    assert set(cluster.image.topics) == {"old", "good"}


def test_validate_only_writes_nothing_and_tells_the_same() -> None:
    cluster = Cluster()
    real = decide(cluster.image, NewTopic("t", 2, 1), NewTopic("u", 0, 1))
    dry = decide(cluster.image, NewTopic("t", 2, 1), NewTopic("u", 0, 1), validate_only=True)
    assert dry.response == real.response
    assert dry.writes == []
    assert real.writes


def test_names_that_collide_with_one_of_the_same_request() -> None:
    cluster = Cluster()
    assert codes(cluster.create(NewTopic("a.b"), NewTopic("a_b"))) == {"a.b": NONE, "a_b": 17}


def test_settings_are_checked_before_anything_is_placed() -> None:
    def refuse(configs: object) -> None:
        raise ProtocolError(INVALID_CONFIG, f"not {configs}")

    decision = decide_create_topics(
        Cluster().image,
        [NewTopic("t", 0, 1, configs=[("a", "b")]), NewTopic("u", 1, 1, configs=[("c", None)])],
        defaults=TopicDefaults(),
        check_configs=refuse,
        new_uuid=Uuids(),
    )
    first, second = decision.response
    assert (first.error_code, first.error_message) == (INVALID_CONFIG, "not {'a': 'b'}")
    assert second.error_message == "Null value not supported for topic configs: c"
    assert decision.writes == []


def test_too_many_partitions_at_once() -> None:
    half = PARTITIONS_PER_REQUEST_MAX // 2
    manual = NewTopic("m", assignments=[(index, (1,)) for index in range(half)])
    image = Cluster().image
    enough = decide(image, manual, NewTopic("t", half, 1))
    assert codes(enough.response) == {"m": NONE, "t": NONE}
    too_many = decide(image, manual, NewTopic("t", half, 1), NewTopic("one", -1, 1))
    assert codes(too_many.response) == dict.fromkeys(("m", "t", "one"), POLICY_VIOLATION)
    assert too_many.writes == []


def test_a_state_begins_with_those_who_live() -> None:
    cluster = Cluster(brokers=(1, 2), dead=(3,))
    cluster.create_on("t", (3, 2, 1))
    state = cluster.image.topics["t"].partitions[0]
    assert (state.leader, state.in_sync, state.replicas) == (2, (2, 1), (3, 2, 1))
    (result,) = cluster.create(NewTopic("u", assignments=[(0, (3,))]))
    assert result.error_code == INVALID_REPLICA_ASSIGNMENT


def test_who_was_faster_wins() -> None:
    cluster = Cluster()
    slow = decide(cluster.image, NewTopic("t", 1, 1))
    cluster.create(NewTopic("t"))
    with pytest.raises(VersionConflict):
        cluster.store.commit(slow.writes)


def test_a_controller_that_was_replaced_writes_nothing() -> None:
    cluster = Cluster()
    late = decide(cluster.image, NewTopic("t", 1, 1))
    cluster.store.resign(cluster.image.controller_id)
    cluster.store.campaign(2)
    with pytest.raises(VersionConflict) as conflict:
        cluster.store.commit(late.writes)
    assert conflict.value.paths == (paths.CONTROLLER_EPOCH,)


def test_a_deleted_topic_leaves_nothing() -> None:
    cluster = Cluster()
    before = set(cluster.store.load().nodes)
    cluster.create(NewTopic("t", 3, configs=[("a", "b")]), NewTopic("u"))
    topic_id = cluster.image.topics["u"].topic_id
    results = cluster.run(
        lambda image: decide_delete_topics(
            image, [TopicSelection("t"), TopicSelection(None, topic_id)]
        )
    )
    assert [(result.name, result.error_code) for result in results] == [("t", NONE), ("u", NONE)]
    assert results[1].topic_id == topic_id
    assert set(cluster.store.load().nodes) == before | {paths.TOPIC_DELETIONS}
    assert cluster.same_as_store()


@pytest.mark.parametrize("configs", [[], [("a", "b")]])
def test_settings_that_are_made_meanwhile_do_not_stay_behind(
    configs: list[tuple[str, str | None]],
) -> None:
    """Without their topic they are damage, and no broker would start any more."""
    cluster = Cluster()
    cluster.create(NewTopic("t", configs=configs))
    decision = decide_delete_topics(cluster.image, [TopicSelection("t")])
    version = cluster.image.topics["t"].configs_version
    cluster.store.commit([Write(paths.topic_configs("t"), nodes.configs({"a": "c"}), version)])
    with pytest.raises(VersionConflict):
        cluster.store.commit(decision.writes)


def test_what_cannot_be_deleted() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t"), NewTopic("u"))
    known, unknown = cluster.image.topics["t"].topic_id, uuid.UUID(int=5)
    selections = [
        TopicSelection("nope"),
        TopicSelection(None, unknown),
        TopicSelection(),
        TopicSelection("t", known),
        TopicSelection("u"),
        TopicSelection("u"),
        TopicSelection("t"),
        TopicSelection(None, known),
    ]
    decision = decide_delete_topics(cluster.image, selections)
    assert decision.writes == []
    assert [
        (result.name, result.topic_id.int, result.error_code) for result in decision.response
    ] == [
        ("nope", 0, UNKNOWN_TOPIC_OR_PARTITION),
        (None, 5, UNKNOWN_TOPIC_ID),
        (None, 0, INVALID_REQUEST),
        ("t", known.int, INVALID_REQUEST),
        ("u", 0, INVALID_REQUEST),
        ("t", known.int, INVALID_REQUEST),
    ]


def test_a_topic_that_grows_meanwhile_is_not_half_deleted() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t"))
    deletion = decide_delete_topics(cluster.image, [TopicSelection("t")])
    cluster.run(lambda image: decide_create_partitions(image, [MorePartitions("t", 2)]))
    with pytest.raises(VersionConflict):
        cluster.store.commit(deletion.writes)


def test_more_partitions() -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", (2,), (3,))
    old = cluster.image.topics["t"]
    cluster.run(lambda image: decide_create_partitions(image, [MorePartitions("t", 5)]))
    topic = cluster.image.topics["t"]
    assert topic.topic_id == old.topic_id
    assert [topic.partitions[index].leader for index in range(5)] == [2, 3, 1, 2, 3]
    assert topic.partitions[0] is old.partitions[0]
    assert topic.version == old.version + 1
    assert cluster.same_as_store()


def test_more_partitions_by_hand() -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.create_on("t", (1, 2))
    results = cluster.run(
        lambda image: decide_create_partitions(
            image, [MorePartitions("t", 3, [(2, 1), (1, 2)])], validate_only=True
        )
    )
    assert results[0].error_code == NONE
    assert len(cluster.image.topics["t"].partitions) == 1
    cluster.run(
        lambda image: decide_create_partitions(image, [MorePartitions("t", 3, [(2, 1), (1, 2)])])
    )
    assert cluster.image.topics["t"].partitions[1].replicas == (2, 1)


def test_partitions_while_a_move_is_under_way() -> None:
    cluster = Cluster(brokers=(1, 2), dead=(3,))
    cluster.create_on("t", (1,))
    cluster.run(
        lambda image: decide_alter_reassignments(image, [Reassignment("t", 0, (3,))], SETTINGS)
    )
    cluster.run(lambda image: decide_create_partitions(image, [MorePartitions("t", 2)]))
    topic = cluster.image.topics["t"]
    assert len(topic.partitions[1].replicas) == 1, "the move's extra replica is not counted"
    assert topic.partitions[0].adding == (3,), "the move goes on"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (MorePartitions("t", 2), INVALID_PARTITIONS),
        (MorePartitions("t", 1), INVALID_PARTITIONS),
        (MorePartitions("t", -5), INVALID_PARTITIONS),
        (MorePartitions("t", 2 + PARTITIONS_PER_REQUEST_MAX + 1), POLICY_VIOLATION),
        (MorePartitions("t", 3, []), INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [(9,)]), INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [(1, 2)]), INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [()]), INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [(1, 1)]), INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("nope", 3), UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partitions_refused(wanted: MorePartitions, code: int) -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.create_on("t", (1,), (2,))
    decision = decide_create_partitions(cluster.image, [wanted])
    assert decision.response[0].error_code == code
    assert decision.writes == []


def test_a_topic_named_twice_does_not_grow() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t"), NewTopic("u"))
    results = cluster.run(
        lambda image: decide_create_partitions(
            image, [MorePartitions("t", 2), MorePartitions("u", 2), MorePartitions("t", 3)]
        )
    )
    assert [(each.name, each.error_code) for each in results] == [("t", INVALID_REQUEST), ("u", 0)]
    assert len(cluster.image.topics["t"].partitions) == 1
    assert len(cluster.image.topics["u"].partitions) == 2
