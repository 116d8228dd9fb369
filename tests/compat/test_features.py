"""The promises of a Kafka broker, row by row as the feature list numbers them.

Each test checks one row with stock clients over real sockets, as far as one node can show it.
Rows about files, restarts and kills are in test_feature_files.py.
"""

from __future__ import annotations

import json
import resource
import socket
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient, KafkaProducer
from kafka.partitioner.default import murmur2

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.java_host import JavaHost
from tests.compat.test_raw_wire import api_versions, ranges
from tests.compat.wire import (
    CODECS,
    GZIP,
    NO_CODEC,
    ZSTD,
    Wire,
    batch_of,
    batches_in,
    fetch,
    produce,
    produce_request,
    stored_bytes,
)
from tests.patience import SECONDS_MAX

IDLE_CONNECTIONS = 1000


def parts_of(message: Message) -> tuple[Any, ...]:
    return (
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp(),
    )


def everything(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    return [parts_of(message) for message in confluent.read(bootstrap, topic)]


# ------------------------------------------------------------------------ topics and partitions
def test_row_03_metadata_names_brokers_leaders_and_replicas(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, partitions=2)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    cluster = admin.describe_cluster()
    (described,) = admin.describe_topics([topic])
    admin.close()
    (broker,) = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert "rack" in broker
    assert cluster["cluster_id"]
    assert cluster["controller_id"] == broker["broker_id"]
    for index, part in enumerate(described["partitions"]):
        assert part["partition_index"] == index
        assert part["leader_id"] == broker["broker_id"]
        assert part["leader_epoch"] == 0
        assert part["replica_nodes"] == part["isr_nodes"] == [broker["broker_id"]]
        assert part["offline_replicas"] == []


def test_row_04_offsets_follow_each_other_without_gap(bootstrap: str, make_node: MakeNode) -> None:
    node = make_node()
    topic, expected = confluent.create_topic(node.bootstrap), 0
    for restart in (None, node.stop, node.kill):
        if restart is not None:
            restart()
            node.start()
        with Wire(node.bootstrap) as wire:
            for count in (1, 7, 300, 2):
                answer = produce(wire, topic, batch_of([b"v"] * count))
                assert (int(answer.error_code), answer.base_offset) == (0, expected)
                expected += count
    assert confluent.watermarks(node.bootstrap, topic) == (0, expected)


def test_row_05_a_partition_is_ordered_and_immutable(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    records = (
        {"key": b"%d" % number, "value": b"v%d" % number, "headers": [("h", b"%d" % number)]}
        for number in range(1000)
    )
    confluent.send(confluent.producer(bootstrap), topic, records)
    first = everything(bootstrap, topic)
    confluent.send_values(bootstrap, topic, [b"later"])
    assert everything(bootstrap, topic)[:1000] == first
    assert [part[0] for part in first] == list(range(1000))


def test_row_06_partitions_can_be_added_and_not_taken_away(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, partitions=6)
    admin = confluent.admin_client(bootstrap)
    confluent.result_of(admin.create_partitions([NewPartitions(topic, 8)]))
    listed = admin.list_topics(topic, timeout=SECONDS_MAX)
    assert sorted(listed.topics[topic].partitions) == list(range(8))
    (broker_id,) = listed.brokers
    assert {part.leader for part in listed.topics[topic].partitions.values()} == {broker_id}
    fewer = admin.create_partitions([NewPartitions(topic, 5)])
    assert confluent.error_of(fewer) == "INVALID_PARTITIONS"


def test_row_07_replicas_need_a_broker_each(bootstrap: str) -> None:
    new = NewTopic(confluent.new_name(), 1, 2)
    refused = confluent.admin_client(bootstrap).create_topics([new])
    assert confluent.error_of(refused) == "INVALID_REPLICATION_FACTOR"


# ------------------------------------------------------------------------------------------ acks
def test_row_10_acks_0_is_never_answered(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    with Wire(bootstrap) as wire:
        wire.send(produce_request(topic, batch_of([b"unanswered"]), acks=0))
        # The next answer on the connection belongs to the next request, so there was none before.
        assert int(wire.call(api_versions(3)).error_code) == 0
        wire.send(produce_request(confluent.new_name("missing"), batch_of([b"v"]), acks=0))
        assert wire.receive_frame() is None, "an error can only be told by closing"
    assert confluent.read_values(bootstrap, topic) == [b"unanswered"]
    (delivered,) = confluent.send_values(bootstrap, topic, [b"v"], {"acks": "0"})
    assert delivered.offset() in (None, -1, OFFSET_INVALID)


def test_row_11_acks_1_is_answered_after_the_append(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    with Wire(bootstrap) as wire:
        answer = produce(wire, topic, batch_of([b"a", b"b"]), acks=1)
        assert (int(answer.error_code), answer.base_offset) == (0, 0)
    assert confluent.read_values(bootstrap, topic) == [b"a", b"b"]


def test_row_12_acks_all_is_answered_when_the_record_is_committed(bootstrap: str) -> None:
    configs = {"min.insync.replicas": "2"}  # more than there are replicas: capped by their number
    topic = confluent.create_topic(bootstrap, configs=configs)
    with Wire(bootstrap) as wire:
        answer = produce(wire, topic, batch_of([b"a", b"b"]), acks=-1)
        assert (int(answer.error_code), answer.base_offset) == (0, 0)
        assert fetch(wire, topic, 0).high_watermark == 2


@pytest.mark.parametrize("acks", [2, -2])
def test_row_13_other_acks_are_refused(bootstrap: str, acks: int) -> None:
    topic = confluent.create_topic(bootstrap)
    with Wire(bootstrap) as wire:
        assert int(produce(wire, topic, batch_of([b"a"]), acks=acks).error_code) == 21
        assert fetch(wire, topic, 0).high_watermark == 0, "nothing was appended"


# --------------------------------------------------------------------------------------- producer
def test_row_33_a_send_tells_where_the_record_is(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, partitions=3)
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    placed = sender.send(topic, b"v", partition=2, timestamp_ms=1_700_000_000_000).get(
        timeout=SECONDS_MAX
    )
    sender.close()
    assert (placed.topic, placed.partition, placed.offset) == (topic, 2, 0)
    assert placed.timestamp == 1_700_000_000_000
    assert confluent.read_values(bootstrap, topic, partitions=[2], start=placed.offset) == [b"v"]


def test_row_34_a_send_without_broker_fails_in_time(make_node: MakeNode) -> None:
    node = make_node()
    topic = confluent.create_topic(node.bootstrap)
    confluent.send_values(node.bootstrap, topic, [b"while it is up"])
    sender = confluent.producer(node.bootstrap, {"message.timeout.ms": 1000})
    # It knows the broker and the partition. It sends nothing yet: on a busy machine a second may be
    # too short for that.
    assert topic in sender.list_topics(topic, timeout=SECONDS_MAX).topics
    node.stop()
    with pytest.raises(KafkaException) as refusal:
        confluent.send(sender, topic, [{"value": b"too late"}])
    assert refusal.value.args[0].code() == KafkaError._MSG_TIMED_OUT


def test_row_35_callbacks_come_in_the_order_of_the_sends(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    values = [b"%d" % number for number in range(2000)]
    delivered = confluent.send_values(bootstrap, topic, values, {"batch.num.messages": 50})
    assert [message.value() for message in delivered] == values
    assert [message.offset() for message in delivered] == list(range(2000))


def batches_of(bootstrap: str, topic: str, end_offset: int) -> list[Any]:
    with Wire(bootstrap) as wire:
        return batches_in(stored_bytes(wire, topic, end_offset))


def test_row_36_sends_one_by_one_are_requests_one_by_one(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    offsets = [
        sender.send(topic, b"v", partition=0).get(timeout=SECONDS_MAX).offset for _ in range(20)
    ]
    sender.close()
    assert offsets == list(range(20))
    assert [batch.record_count for batch in batches_of(bootstrap, topic, 20)] == [1] * 20


def test_row_37_batches_hold_many_records_up_to_their_limit(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    settings = {"linger.ms": 50, "batch.size": 16_384}
    confluent.send_values(bootstrap, topic, [b"x" * 100] * 1000, settings)
    batches = batches_of(bootstrap, topic, 1000)
    assert len(batches) < 100
    assert max(batch.size for batch in batches) <= 16_384
    with Wire(bootstrap) as wire:
        # The limit is on the batch: 1,048,588 bytes with its header.
        overhead = len(batch_of([b"x" * 1_000_000])) - 1_000_000
        fits, too_large = (batch_of([b"x" * (size - overhead)]) for size in (1_048_588, 1_048_589))
        assert (len(fits), len(too_large)) == (1_048_588, 1_048_589)
        assert int(produce(wire, topic, too_large).error_code) == 10
        assert int(produce(wire, topic, fits).error_code) == 0


def test_row_38_how_long_to_linger_is_up_to_the_client(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    # Only the flush ends it, however long the sends take.
    confluent.send_values(bootstrap, topic, [b"v"] * 50, {"linger.ms": 60_000})
    sender = confluent.producer(bootstrap, {"linger.ms": 0})
    for _ in range(5):
        confluent.send(sender, topic, [{"value": b"v"}])
    counts = [batch.record_count for batch in batches_of(bootstrap, topic, 55)]
    assert counts == [50, 1, 1, 1, 1, 1]


def librdkafka_codecs(bootstrap: str) -> list[str]:
    """It sends lz4 only to brokers that know groups: its way to tell the framing of Kafka 0.9."""
    find_coordinator = 10
    with Wire(bootstrap) as wire:
        groups = find_coordinator in ranges(wire)
    return [codec for codec in CODECS if codec != "lz4" or groups]


@pytest.mark.java
@pytest.mark.xdist_group("java")
@pytest.mark.parametrize("codec", list(CODECS))
def test_row_39_codecs_cross_clients_and_are_kept(
    java: JavaHost, bootstrap: str, codec: str
) -> None:
    values = [f"value {number} " * 10 for number in range(100)]
    from_java, from_c = (confluent.create_topic(bootstrap) for _ in range(2))
    java.run(
        "DataScenarios.produce",
        bootstrap=bootstrap,
        topic=from_java,
        records=[{"value": value} for value in values],
        settings={"compression.type": codec, "linger.ms": "100"},
    )
    sent = [value.encode() for value in values]
    confluent.send_values(bootstrap, from_c, sent, {"compression.type": codec, "linger.ms": 100})
    assert confluent.read_values(bootstrap, from_java) == sent
    read = java.run("DataScenarios.consume", bootstrap=bootstrap, topic=from_c, count=100)
    assert [record["value"] for record in read] == values
    assert {batch.codec for batch in batches_of(bootstrap, from_java, 100)} == {CODECS[codec]}
    kept = CODECS[codec] if codec in librdkafka_codecs(bootstrap) else NO_CODEC
    assert {batch.codec for batch in batches_of(bootstrap, from_c, 100)} == {kept}


@pytest.mark.parametrize("codec", list(CODECS))
def test_row_39_a_topic_may_want_its_own_codec(bootstrap: str, codec: str) -> None:
    topic_codec = "uncompressed" if codec == "none" else codec
    topic = confluent.create_topic(bootstrap, configs={"compression.type": topic_codec})
    with Wire(bootstrap) as wire:
        for sent_codec in (NO_CODEC, GZIP, ZSTD):
            batch = batch_of([b"v" * 200] * 20, codec=sent_codec)
            assert int(produce(wire, topic, batch).error_code) == 0
    assert [batch.codec for batch in batches_of(bootstrap, topic, 60)] == [CODECS[codec]] * 3
    assert confluent.read_values(bootstrap, topic) == [b"v" * 200] * 60


def test_row_39_zstd_needs_a_version_that_knows_it(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    with Wire(bootstrap) as wire:
        batch = batch_of([b"v" * 200], codec=ZSTD)
        assert int(produce(wire, topic, batch, version=6).error_code) == 76
        assert int(produce(wire, topic, batch, version=7).error_code) == 0


def test_row_40_zstd_is_smallest_on_disk(bootstrap: str) -> None:
    document = {"name": "order", "items": [{"sku": "A-1", "price": 9.5}], "note": "x"}
    values = [json.dumps({**document, "id": number * 7919}).encode() for number in range(3000)]
    sizes = {}
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    for codec in CODECS:
        topic = confluent.create_topic(bootstrap)
        sender = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=50,
            batch_size=100_000,
        )
        for value in values:
            sender.send(topic, value, partition=0)
        sender.close()
        (broker,) = admin.describe_log_dirs([topic])
        (described,) = [part for one in broker["log_dirs"] for part in one["topics"]]
        sizes[codec] = described["partitions"][0]["partition_size"]
    admin.close()
    assert sizes["zstd"] < sizes["gzip"] < min(sizes["lz4"], sizes["snappy"])
    assert max(sizes["lz4"], sizes["snappy"]) < sizes["none"]


# --------------------------------------------------------------------------------- network, keys
def test_row_48_any_offset_and_any_time_is_found(bootstrap: str) -> None:
    topic, count = confluent.create_topic(bootstrap), 50_000
    settings = {"queue.buffering.max.messages": count, "batch.num.messages": 500}
    records = (
        {"value": b"%d" % number, "timestamp": 10 * number + 1000} for number in range(count)
    )
    confluent.send(confluent.producer(bootstrap, settings), topic, records)
    with Wire(bootstrap) as wire:
        for offset in (0, 1, 499, 500, 12_345, 33_333, count - 1):
            first = batches_in(bytes(fetch(wire, topic, offset, bytes_max=20_000).records))[0]
            assert first.base_offset <= offset < first.next_offset
    reader = confluent.consumer(bootstrap)
    for offset in (0, 1, 499, 500, 12_345, 33_333, count - 1):
        for time_ms in (10 * offset + 997, 10 * offset + 1000):
            asked = [TopicPartition(topic, 0, time_ms)]
            (found,) = reader.offsets_for_times(asked, timeout=SECONDS_MAX)
            assert found.offset == offset
    reader.close()


def test_row_50_a_thousand_idle_connections_and_one_busy_client(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    host, port = bootstrap.rsplit(":", 1)
    idle = [socket.create_connection((host, int(port))) for _ in range(IDLE_CONNECTIONS)]
    try:
        values = [b"%d" % number for number in range(5000)]
        confluent.send_values(bootstrap, topic, values)
        assert confluent.read_values(bootstrap, topic) == values
    finally:
        for connection in idle:
            connection.close()


def test_row_50_the_pool_is_resized_while_requests_go_on(bootstrap: str) -> None:
    admin, topic = confluent.admin_client(bootstrap), confluent.create_topic(bootstrap)
    broker_id = next(iter(admin.list_topics(timeout=SECONDS_MAX).brokers))
    sender = confluent.producer(bootstrap)
    for value in ("4", "7", None):  # Kafka allows half to double of what it is
        kind = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
        entry = ConfigEntry("num.io.threads", value, incremental_operation=kind)
        change = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry])
        confluent.result_of(admin.incremental_alter_configs([change]))
        confluent.send(sender, topic, [{"value": b"still served"}] * 10)
    assert len(confluent.read_values(bootstrap, topic)) == 30


def test_row_51_a_producer_may_choose_the_partition(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, partitions=3)
    (delivered,) = confluent.send(
        confluent.producer(bootstrap), topic, [{"value": b"v", "partition": 2}]
    )
    assert delivered.partition() == 2
    assert confluent.read_values(bootstrap, topic, partitions=[2]) == [b"v"]
    with Wire(bootstrap) as wire:
        assert int(produce(wire, topic, batch_of([b"v"]), partition=3).error_code) == 3
    with pytest.raises(KafkaException) as refusal:
        confluent.send(confluent.producer(bootstrap), topic, [{"value": b"v", "partition": 3}])
    assert refusal.value.args[0].name() == "_UNKNOWN_PARTITION"


@pytest.mark.java
@pytest.mark.xdist_group("java")
def test_row_52_the_same_key_meets_the_same_partition_in_every_client(
    java: JavaHost, bootstrap: str
) -> None:
    topic, count = confluent.create_topic(bootstrap, partitions=7), 7
    assert murmur2(b"21") & 0xFFFFFFFF == -973932308 & 0xFFFFFFFF
    keys = [f"key-{number}" for number in range(50)]
    expected = [(murmur2(key.encode()) & 0x7FFFFFFF) % count for key in keys]
    placed = java.run(
        "DataScenarios.produce",
        bootstrap=bootstrap,
        topic=topic,
        records=[{"key": key, "value": "java"} for key in keys],
    )
    assert [place[0] for place in placed] == expected
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    futures = [sender.send(topic, b"kafka-python", key.encode()) for key in keys]
    assert [future.get(timeout=SECONDS_MAX).partition for future in futures] == expected
    sender.close()
    murmur = confluent.producer(bootstrap, {"partitioner": "murmur2_random"})
    records = [{"key": key, "value": b"librdkafka", "partition": -1} for key in keys]
    delivered = confluent.send(murmur, topic, records)
    where = {(message.key() or b"").decode(): message.partition() for message in delivered}
    assert [where[key] for key in keys] == expected


@pytest.mark.java
@pytest.mark.xdist_group("java")
def test_row_53_records_without_key_stick_to_a_partition_per_batch(
    java: JavaHost, bootstrap: str
) -> None:
    topic = confluent.create_topic(bootstrap, partitions=3)

    def partitions_of(settings: dict[str, str]) -> set[int]:
        records = [{"value": "v"}] * 60
        placed = java.run(
            "DataScenarios.produce",
            bootstrap=bootstrap,
            topic=topic,
            records=records,
            settings=settings,
        )
        return {place[0] for place in placed}

    assert len(partitions_of({"linger.ms": "500"})) == 1
    rotating = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    assert partitions_of({"partitioner.class": rotating}) == {0, 1, 2}
