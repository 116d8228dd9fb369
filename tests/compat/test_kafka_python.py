"""kafka-python: idempotent by default, and an admin client that shows the answers nearly raw."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import InvalidPartitionsError, TopicAlreadyExistsError

from tests.compat import confluent
from tests.patience import SECONDS_MAX

VALUES = [b"value %d" % number for number in range(300)]
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def send_all(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> list[Any]:
    sender = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    futures = [sender.send(topic, value, partition=0) for value in values]
    delivered = [future.get(timeout=SECONDS_MAX) for future in futures]
    sender.close()
    return delivered


def read_all(bootstrap: str, topic: str, count: int, start: int = 0) -> list[Any]:
    reader = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, consumer_timeout_ms=120_000)
    reader.assign([TopicPartition(topic, 0)])
    reader.seek(TopicPartition(topic, 0), start)
    records = list(islice(reader, count))
    reader.close()
    return records


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_codec_round_trip(bootstrap: str, codec: str | None) -> None:
    topic = confluent.create_topic(bootstrap)
    delivered = send_all(bootstrap, topic, VALUES, compression_type=codec)
    assert [record.offset for record in delivered] == list(range(len(VALUES)))
    assert [record.value for record in read_all(bootstrap, topic, len(VALUES))] == VALUES


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_without_idempotence(bootstrap: str, acks: int) -> None:
    topic = confluent.create_topic(bootstrap)
    send_all(bootstrap, topic, VALUES[:20], acks=acks, enable_idempotence=False)
    assert [record.value for record in read_all(bootstrap, topic, 20)] == VALUES[:20]


def test_key_headers_and_timestamp_come_back(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    headers = [("a", b"1"), ("b", b"")]
    sender.send(topic, b"v", b"k", headers=headers, timestamp_ms=1_700_000_000_000).get(
        timeout=SECONDS_MAX
    )
    sender.close()
    (record,) = read_all(bootstrap, topic, 1)
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", 1_700_000_000_000)
    assert [tuple(header) for header in record.headers] == headers


def test_offsets_by_time_begin_and_end(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    for stamp in (1000, 2000, 3000):
        sender.send(topic, b"v", partition=0, timestamp_ms=stamp).get(timeout=SECONDS_MAX)
    sender.close()
    part = TopicPartition(topic, 0)
    reader = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    assert reader.beginning_offsets([part]) == {part: 0}
    assert reader.end_offsets([part]) == {part: 3}
    found = reader.offsets_for_times({part: 1500})[part]
    assert (found.offset, found.timestamp) == (1, 2000)
    assert reader.offsets_for_times({part: 3001}) == {part: None}
    reader.close()


def test_list_offsets_of_every_kind(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap)
    for stamp in (5000, 9000, 7000):
        confluent.send(confluent.producer(bootstrap), topic, [{"value": b"v", "timestamp": stamp}])
    part = TopicPartition(topic, 0)

    def listed(spec: int) -> tuple[int, int]:
        answer = admin.list_partition_offsets({part: spec})[part]
        return answer.offset, answer.timestamp

    assert listed(LATEST) == (3, -1)
    assert listed(EARLIEST) == (0, -1)
    assert listed(EARLIEST_LOCAL) == (0, -1)
    assert listed(MAX_TIMESTAMP) == (1, 9000)


def test_topics(bootstrap: str, admin: Any) -> None:
    topic = confluent.new_name()
    options = {topic: {"num_partitions": 2, "configs": {"retention.ms": "1000"}}}
    admin.create_topics(options, validate_only=True)
    assert topic not in admin.list_topics()
    admin.create_topics(options, wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(options)
    admin.create_partitions({topic: 3})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 2})
    (described,) = admin.describe_topics([topic])
    assert described["name"] == topic
    assert not described["is_internal"]
    admin.delete_topics([topic])


def test_topic_by_id(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap)
    (by_name,) = admin.describe_topics([topic])
    topic_id = UUID(by_name["topic_id"])
    assert topic_id.int != 0
    (by_id,) = admin.describe_topics([topic_id])
    assert by_id["name"] == topic
    admin.delete_topics([topic_id])


def test_describe_topic_partitions_pages(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap, partitions=5)
    first = admin.describe_topic_partitions([topic], response_partition_limit=3)
    assert first["next_cursor"]["topic_name"] == topic
    assert first["next_cursor"]["partition_index"] == 3
    rest = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert rest["next_cursor"] is None
    pages = first["topics"][0]["partitions"] + rest["topics"][0]["partitions"]
    assert [part["partition_index"] for part in pages] == [0, 1, 2, 3, 4]
    assert all(part["eligible_leader_replicas"] in (None, []) for part in pages)


def test_configs(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap)

    def value_of(name: str) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, [name])
        described = admin.describe_configs([resource], config_filter="all", include_synonyms=True)
        return described["topic"][topic][name]

    change = {"retention.ms": "5000"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)])
    assert value_of("retention.ms")["value"] == "5000"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    assert value_of("retention.ms")["value"] == "604800000"


def test_log_dirs_grow_with_the_log(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap)

    def size() -> int:
        (broker,) = admin.describe_log_dirs([topic])
        parts = [
            part
            for log_dir in broker["log_dirs"]
            for described in log_dir["topics"]
            for part in described["partitions"]
        ]
        return sum(part["partition_size"] for part in parts)

    assert size() == 0
    confluent.send_values(bootstrap, topic, [b"x" * 10_000])
    assert size() > 10_000


def test_delete_records(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap)
    confluent.send_values(bootstrap, topic, VALUES)
    part = TopicPartition(topic, 0)
    answer = admin.delete_records({part: 100})
    assert answer[part]["low_watermark"] == 100
    assert [record.value for record in read_all(bootstrap, topic, 5, 100)] == VALUES[100:105]


def test_describe_producers(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap)
    send_all(bootstrap, topic, VALUES)
    part = TopicPartition(topic, 0)
    (producer,) = admin.describe_producers([part])[part].active_producers
    assert producer.last_sequence == len(VALUES) - 1
    assert producer.producer_epoch == 0


def test_cluster_features_and_quorum(bootstrap: str, admin: Any) -> None:
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert len(cluster["brokers"]) == 1
    assert "metadata.version" in admin.describe_features()
    (topic,) = admin.describe_metadata_quorum()["topics"]
    assert topic["topic_name"] == "__cluster_metadata"
    assert topic["partitions"][0]["leader_id"] == cluster["brokers"][0]["broker_id"]


def test_list_config_resources(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap)
    listed = admin.list_config_resources(["TOPIC"])
    assert topic in {name for names in listed.values() for name in names}


def test_reassignments_and_elections(bootstrap: str, admin: Any) -> None:
    topic = confluent.create_topic(bootstrap)
    part, broker_id = TopicPartition(topic, 0), admin.describe_cluster()["brokers"][0]["broker_id"]
    assert admin.list_partition_reassignments() == {}
    assert admin.alter_partition_reassignments({part: [broker_id]}) == {part: None}
    refused = admin.alter_partition_reassignments({part: [broker_id + 77]})
    assert refused[part].__name__ == "InvalidReplicationAssignmentError"
    answer = admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
    assert "84" in str(answer)  # ELECTION_NOT_NEEDED
