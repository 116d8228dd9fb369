"""confluent-kafka (librdkafka): produce, assign-based consuming and admin work."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.compat import confluent
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX

VALUES = [b"value %d" % number for number in range(500)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codec_round_trip(bootstrap: str, codec: str) -> None:
    topic = confluent.create_topic(bootstrap)
    sent = confluent.send_values(bootstrap, topic, VALUES, {"compression.type": codec})
    assert [message.offset() for message in sent] == list(range(len(VALUES)))
    assert confluent.read_values(bootstrap, topic) == VALUES


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, acks: str) -> None:
    topic = confluent.create_topic(bootstrap)
    confluent.send_values(bootstrap, topic, VALUES, {"acks": acks})
    if acks == "0":  # what was sent may still be on its way
        wait_until(
            lambda: confluent.watermarks(bootstrap, topic) == (0, len(VALUES)),
            SECONDS_MAX,
            "everything has arrived",
        )
    assert confluent.read_values(bootstrap, topic) == VALUES


def test_idempotent_producer(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    confluent.send_values(bootstrap, topic, VALUES, {"enable.idempotence": True})
    assert confluent.read_values(bootstrap, topic) == VALUES


def test_key_headers_and_timestamp_come_back(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None)]
    record = {
        "key": b"k\x00\xff",
        "value": None,
        "headers": headers,
        "timestamp": 1_700_000_000_123,
    }
    confluent.send(confluent.producer(bootstrap), topic, [record])
    (message,) = confluent.read(bootstrap, topic)
    assert (message.key(), message.value()) == (b"k\x00\xff", None)
    assert message.headers() == headers
    assert message.timestamp() == (1, 1_700_000_000_123)
    assert message.leader_epoch() == 0


def test_log_append_time(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, configs={"message.timestamp.type": "LogAppendTime"})
    confluent.send(confluent.producer(bootstrap), topic, [{"value": b"v", "timestamp": 1000}])
    (message,) = confluent.read(bootstrap, topic)
    kind, timestamp_ms = message.timestamp()
    assert kind == 2
    assert timestamp_ms > 1_700_000_000_000


def test_seek_and_read_from_the_middle(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    confluent.send_values(bootstrap, topic, VALUES)
    assert confluent.read_values(bootstrap, topic, start=437) == VALUES[437:]


def test_offset_out_of_range_resets(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    confluent.send_values(bootstrap, topic, VALUES)
    with pytest.raises(KafkaException) as refusal:
        confluent.read(bootstrap, topic, start=9_999)
    assert refusal.value.args[0].name() == "_AUTO_OFFSET_RESET"
    settings = {"auto.offset.reset": "earliest"}
    assert confluent.read_values(bootstrap, topic, start=9_999, settings=settings) == VALUES


def test_message_too_large_for_the_topic(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, configs={"max.message.bytes": "2000"})
    with pytest.raises(KafkaException) as refusal:
        confluent.send_values(bootstrap, topic, [b"x" * 3000])
    assert refusal.value.args[0].name() == "MSG_SIZE_TOO_LARGE"
    confluent.send_values(bootstrap, topic, [b"x" * 1000])
    assert confluent.read_values(bootstrap, topic) == [b"x" * 1000]


def test_keyless_record_on_a_compacted_topic_is_refused(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, configs={"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as refusal:
        confluent.send_values(bootstrap, topic, [b"no key"])
    assert refusal.value.args[0].name() == "INVALID_RECORD"


def test_list_offsets_of_every_kind(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    stamps = [5_000, 9_000, 7_000]
    for stamp in stamps:
        confluent.send(confluent.producer(bootstrap), topic, [{"value": b"v", "timestamp": stamp}])
    admin = confluent.admin_client(bootstrap)

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        answer = confluent.result_of(admin.list_offsets({TopicPartition(topic, 0): spec}))
        return answer.offset, answer.timestamp

    assert listed(OffsetSpec.earliest()) == (0, -1)
    assert listed(OffsetSpec.latest()) == (3, -1)
    assert listed(OffsetSpec.max_timestamp()) == (1, 9_000)
    assert listed(OffsetSpec.for_timestamp(5_001)) == (1, 9_000)
    assert listed(OffsetSpec.for_timestamp(9_001)) == (-1, -1)


def test_topics_are_created_described_grown_and_deleted(bootstrap: str) -> None:
    admin, topic = confluent.admin_client(bootstrap), confluent.new_name()
    new = NewTopic(topic, 2, 1, config={"retention.ms": "60000"})
    confluent.result_of(admin.create_topics([new], validate_only=True))
    assert not confluent.topic_exists(bootstrap, topic)
    confluent.result_of(admin.create_topics([new]))
    assert confluent.error_of(admin.create_topics([new])) == "TOPIC_ALREADY_EXISTS"
    confluent.result_of(admin.create_partitions([NewPartitions(topic, 5)]))
    listed = admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic]
    assert sorted(listed.partitions) == [0, 1, 2, 3, 4]
    confluent.result_of(admin.delete_topics([topic]))
    wait_until(lambda: not confluent.topic_exists(bootstrap, topic), SECONDS_MAX, "gone")
    assert confluent.error_of(admin.delete_topics([topic])) == "UNKNOWN_TOPIC_OR_PART"


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "configs", "error"),
    [
        ("bad/name", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("..", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("t" * 250, 1, 1, {}, "TOPIC_EXCEPTION"),
        ("fine", 0, 1, {}, "INVALID_PARTITIONS"),
        ("fine", 1, 2, {}, "INVALID_REPLICATION_FACTOR"),
        ("fine", 1, 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        ("fine", 1, 1, {"no.such.config": "1"}, "INVALID_CONFIG"),
        ("fine", 1, 1, {"segment.bytes": "10"}, "INVALID_CONFIG"),
    ],
)
def test_create_topic_refusals(
    bootstrap: str, name: str, partitions: int, replicas: int, configs: dict[str, str], error: str
) -> None:
    new = NewTopic(name, partitions, replicas, config=configs)
    assert confluent.error_of(confluent.admin_client(bootstrap).create_topics([new])) == error


def test_topic_configs_are_described_and_altered(bootstrap: str) -> None:
    admin = confluent.admin_client(bootstrap)
    topic = confluent.create_topic(bootstrap, configs={"retention.ms": "60000"})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = confluent.result_of(admin.describe_configs([resource]))
    assert described["retention.ms"].value == "60000"
    assert described["segment.bytes"].value == "1073741824"
    assert described["segment.bytes"].is_default
    entries = [
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    confluent.result_of(admin.incremental_alter_configs([change]))
    described = confluent.result_of(admin.describe_configs([resource]))
    assert described["retention.ms"].value == "604800000"
    assert described["segment.bytes"].value == "2000000"
    assert described["cleanup.policy"].value == "delete,compact"


def test_describe_topics_and_cluster(bootstrap: str) -> None:
    admin = confluent.admin_client(bootstrap)
    topic = confluent.create_topic(bootstrap, partitions=3)
    cluster = admin.describe_cluster().result(SECONDS_MAX)
    assert cluster.cluster_id and len(cluster.nodes) == 1
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == bootstrap
    described = confluent.result_of(admin.describe_topics(TopicCollection([topic])))
    assert [part.id for part in described.partitions] == [0, 1, 2]
    for part in described.partitions:
        assert part.leader.id == cluster.nodes[0].id
        assert [node.id for node in part.isr] == [cluster.nodes[0].id]


def test_delete_records_moves_the_start(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    confluent.send_values(bootstrap, topic, VALUES)
    admin = confluent.admin_client(bootstrap)
    deleted = confluent.result_of(admin.delete_records([TopicPartition(topic, 0, 123)]))
    assert deleted.low_watermark == 123
    assert confluent.watermarks(bootstrap, topic) == (123, 500)
    assert confluent.read_values(bootstrap, topic) == VALUES[123:]
    past_end = admin.delete_records([TopicPartition(topic, 0, 501)])
    assert confluent.error_of(past_end) == "OFFSET_OUT_OF_RANGE"


def test_producing_to_an_unknown_topic_creates_it(bootstrap: str) -> None:
    topic = confluent.new_name()
    confluent.send_values(bootstrap, topic, [b"first"])
    assert confluent.read_values(bootstrap, topic) == [b"first"]
