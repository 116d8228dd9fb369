"""The Java client, the strictest of all: newest versions, idempotent by default, typed admin."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from ottla.client import Producer
from tests.client.reading import stored
from tests.compat import confluent
from tests.compat.java_host import JavaHost
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX
from tests.seeds import seed_for

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]

Run = Any
VALUES = [f"value {number}" for number in range(200)]


@pytest.fixture
def run(java: JavaHost, bootstrap: str) -> Run:
    return partial(java.run, bootstrap=bootstrap)


@pytest.fixture
def refusal(java: JavaHost, bootstrap: str) -> Run:
    return partial(java.refusal, bootstrap=bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> str:
    return confluent.create_topic(bootstrap)


@pytest.fixture
def broker_id(run: Run) -> int:
    return int(run("AdminScenarios.describeCluster")["nodes"][0][0])


def values(topic: str) -> dict[str, Any]:
    return {"topic": topic, "records": [{"value": value, "partition": 0} for value in VALUES]}


def read_values(run: Run, topic: str, start: int = 0) -> list[str]:
    count = len(VALUES) - start
    read = run("DataScenarios.consume", topic=topic, count=count, start=start)
    return [record["value"] for record in read]


# ------------------------------------------------------------------------------------------ data
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codec_round_trip_with_default_settings(run: Run, topic: str, codec: str) -> None:
    placed = run("DataScenarios.produce", settings={"compression.type": codec}, **values(topic))
    assert [offset for _, offset, _ in placed] == list(range(len(VALUES)))
    assert read_values(run, topic) == VALUES


def some_keys(count: int) -> list[str]:
    """Of every length up to 300 bytes, with letters of one, two and three."""
    chance = random.Random(seed_for("placement"))
    keys = []
    for number in range(count):
        size = number % 301
        letters = "".join(chance.choices("aZé漢", k=size // 3))
        keys.append(letters + "x" * (size - len(letters.encode())))
    return keys


def test_keys_go_where_the_java_client_puts_them(run: Run, bootstrap: str) -> None:
    """One by one and by the table."""
    keys = some_keys(10_000)
    topics = [confluent.create_topic(bootstrap, 12) for _ in range(3)]
    records = [{"key": key, "value": str(number)} for number, key in enumerate(keys)]
    placed = run("DataScenarios.produce", topic=topics[0], records=records)
    expected = [partition for partition, _, _ in placed]
    assert set(expected) == set(range(12))
    with Producer(bootstrap_servers=bootstrap) as producer:
        sent = [producer.send(topics[1], b"", key.encode()) for key in keys]
        table = pa.table({"key": keys, "value": [str(number) for number in range(len(keys))]})
        producer.send_table(table, topics[2], key="key").result(SECONDS_MAX)
        assert [one.result(SECONDS_MAX).partition for one in sent] == expected
    found = {int(one.value or b""): one.partition for one in stored(bootstrap, topics[2])}
    assert [found[number] for number in range(len(keys))] == expected


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_without_idempotence(run: Run, topic: str, acks: str) -> None:
    settings = {"acks": acks, "enable.idempotence": "false"}
    placed = run("DataScenarios.produce", settings=settings, **values(topic))
    assert [place[1] for place in placed] == ([-1] * 200 if acks == "0" else list(range(200)))
    assert read_values(run, topic) == VALUES


def test_record_parts_come_back(run: Run, topic: str) -> None:
    record = {
        "key": "k",
        "value": None,
        "timestamp": 1_700_000_000_123,
        "headers": [["a", "1"], ["null value"], ["empty", ""]],
    }
    assert run("DataScenarios.produce", topic=topic, records=[record]) == [
        [0, 0, 1_700_000_000_123]
    ]
    (read,) = run("DataScenarios.consume", topic=topic, count=1)
    assert read == {
        "offset": 0,
        "key": "k",
        "value": None,
        "timestamp": 1_700_000_000_123,
        "timestamp type": "CreateTime",
        "leader epoch": 0,
        "headers": record["headers"],
    }


def test_log_append_time_is_told_to_both_sides(run: Run, bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, configs={"message.timestamp.type": "LogAppendTime"})
    record = {"value": "v", "timestamp": 1000}
    ((_, _, stamped),) = run("DataScenarios.produce", topic=topic, records=[record])
    (read,) = run("DataScenarios.consume", topic=topic, count=1)
    assert stamped > 1_700_000_000_000
    assert (read["timestamp"], read["timestamp type"]) == (stamped, "LogAppendTime")


def test_seek_into_the_middle(run: Run, topic: str) -> None:
    run("DataScenarios.produce", **values(topic))
    assert read_values(run, topic, start=123) == VALUES[123:]


def test_what_a_consumer_asks_about_a_partition(run: Run, topic: str, broker_id: int) -> None:
    records = [{"value": "v", "timestamp": stamp} for stamp in (1000, 3000, 2000)]
    run("DataScenarios.produce", topic=topic, records=records)
    found = run("DataScenarios.lookUp", topic=topic, time=1001)
    assert found == {
        "begin": 0,
        "end": 3,
        "position at end": 3,
        "position at begin": 0,
        "by time": [1, 3000],
        "partitions": [[0, broker_id, 1, 1, 0]],
        "listed": True,
    }
    assert run("DataScenarios.lookUp", topic=topic, time=3001)["by time"] is None


def test_refusals_of_records_have_their_own_exceptions(run: Run, bootstrap: str) -> None:
    configs = {"cleanup.policy": "compact", "max.message.bytes": "2000"}
    topic = confluent.create_topic(bootstrap, configs=configs)
    records = [
        {"value": "no key"},
        {"key": "k", "value": "x" * 3000},
        {"key": "k", "value": "fine"},
    ]
    # One batch each: a refusal must not take its neighbours with it.
    keyless, large, fine = run(
        "DataScenarios.produce", topic=topic, records=records, one_by_one=True
    )
    assert keyless.startswith("InvalidRecordException")
    assert large.startswith("RecordTooLargeException")
    assert fine[:2] == [0, 0]


# ----------------------------------------------------------------------------------------- admin
def test_create_describe_delete_topic(run: Run, refusal: Run, broker_id: int) -> None:
    topic = confluent.new_name()
    create = partial(
        run,
        "AdminScenarios.createTopic",
        topic=topic,
        partitions=2,
        configs={"retention.ms": "60000"},
    )
    create(validate_only=True)
    assert topic not in run("AdminScenarios.listTopics")
    created = create()
    assert (created["partitions"], created["replication factor"]) == (2, 1)
    assert created["configs"]["retention.ms"] == "60000"
    assert created["configs"]["segment.bytes"] == "1073741824"
    assert refusal("AdminScenarios.createTopic", topic=topic) == "TopicExistsException"
    assert topic in run("AdminScenarios.listTopics")
    described = run("AdminScenarios.describeTopic", topic=topic)
    assert described["topic id"] == created["topic id"]
    assert described["same by id"] and not described["internal"]
    assert described["authorized operations"] == 8
    assert described["partitions"] == [
        {
            "partition": index,
            "leader": broker_id,
            "replicas": [broker_id],
            "isr": [broker_id],
            "elr": [],
        }
        for index in (0, 1)
    ]
    run("AdminScenarios.deleteTopic", topic=topic)
    wait_until(lambda: topic not in run("AdminScenarios.listTopics"), SECONDS_MAX, "gone")
    gone = "UnknownTopicOrPartitionException"
    assert refusal("AdminScenarios.describeTopic", topic=topic) == gone
    assert refusal("AdminScenarios.deleteTopic", topic=topic) == gone


def test_topic_is_deleted_by_id(run: Run, refusal: Run) -> None:
    created = run("AdminScenarios.createTopic", topic=confluent.new_name())
    run("AdminScenarios.deleteTopic", topic_id=created["topic id"])
    again = refusal("AdminScenarios.deleteTopic", topic_id=created["topic id"])
    assert again == "UnknownTopicIdException"


def test_create_partitions(run: Run, refusal: Run, topic: str) -> None:
    run("AdminScenarios.createPartitions", topic=topic, total=3)
    wait_until(
        lambda: len(run("AdminScenarios.describeTopic", topic=topic)["partitions"]) == 3,
        SECONDS_MAX,
        "three partitions",
    )
    fewer = refusal("AdminScenarios.createPartitions", topic=topic, total=2)
    assert fewer == "InvalidPartitionsException"


def test_topic_configs(run: Run, refusal: Run, topic: str) -> None:
    resource = {"type": "TOPIC", "name": topic}
    described = run("AdminScenarios.describeConfigs", **resource)
    assert len(described) == 33
    assert all(entry["documented"] for entry in described.values())
    assert described["segment.bytes"]["source"] == "DEFAULT_CONFIG"
    assert described["segment.bytes"]["type"] == "INT"
    assert described["segment.bytes"]["synonyms"] == ["log.segment.bytes=1073741824 DEFAULT_CONFIG"]
    assert described["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    changes = [
        ["SET", "segment.bytes", "2097152"],
        ["DELETE", "retention.ms"],
        ["APPEND", "cleanup.policy", "compact"],
    ]
    run("AdminScenarios.alterConfigs", changes=changes, **resource)
    described = run("AdminScenarios.describeConfigs", **resource)
    assert described["segment.bytes"]["value"] == "2097152"
    assert described["segment.bytes"]["synonyms"] == [
        "segment.bytes=2097152 DYNAMIC_TOPIC_CONFIG",
        "log.segment.bytes=1073741824 DEFAULT_CONFIG",
    ]
    assert described["retention.ms"]["value"] == "604800000"
    assert described["cleanup.policy"]["value"] == "delete,compact"
    for change in (["SET", "retention.ms", "soon"], ["SET", "no.such.config", "1"]):
        refused = refusal("AdminScenarios.alterConfigs", changes=[change], **resource)
        assert refused == "InvalidConfigurationException"


def test_broker_configs(run: Run, refusal: Run, broker_id: int) -> None:
    resource = {"type": "BROKER", "name": str(broker_id)}
    described = run("AdminScenarios.describeConfigs", **resource)
    assert len(described) > 200
    assert described["log.dirs"]["read only"]
    assert not described["num.io.threads"]["read only"]

    def shows(value: str, source: str) -> None:
        def reached() -> bool:
            entry = run("AdminScenarios.describeConfigs", **resource)["num.io.threads"]
            return (entry["value"], entry["source"]) == (value, source)

        wait_until(reached, SECONDS_MAX, f"{value} from {source}")

    run("AdminScenarios.alterConfigs", changes=[["SET", "num.io.threads", "5"]], **resource)
    shows("5", "DYNAMIC_BROKER_CONFIG")
    everyone = {"type": "BROKER", "name": ""}
    run("AdminScenarios.alterConfigs", changes=[["SET", "num.io.threads", "6"]], **everyone)
    run("AdminScenarios.alterConfigs", changes=[["DELETE", "num.io.threads"]], **resource)
    shows("6", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    run("AdminScenarios.alterConfigs", changes=[["DELETE", "num.io.threads"]], **everyone)
    read_only = refusal(
        "AdminScenarios.alterConfigs", changes=[["SET", "log.dirs", "x"]], **resource
    )
    assert read_only == "InvalidRequestException"


def test_config_resources_are_listed(run: Run, topic: str, broker_id: int) -> None:
    listed = run("AdminScenarios.listConfigResources")
    assert ["TOPIC", topic] in listed
    assert ["BROKER", str(broker_id)] in listed


def test_cluster(run: Run, bootstrap: str) -> None:
    cluster = run("AdminScenarios.describeCluster")
    ((broker_id, address, fenced),) = cluster["nodes"]
    assert (address, fenced) == (bootstrap, False)
    assert cluster["controller"] == broker_id
    assert cluster["cluster id"]
    assert cluster["authorized operations"] > 0


def test_log_dirs(run: Run, topic: str, broker_id: int) -> None:
    run("DataScenarios.produce", **values(topic))
    described = run("AdminScenarios.describeLogDirs", topic=topic, broker=broker_id)
    (directory,) = described.values()
    assert directory["error"] is None
    assert directory["size"] > 1000
    assert directory["total"] >= directory["usable"] > 0


def test_offsets_of_every_kind(run: Run, topic: str) -> None:
    records = [{"value": "v", "timestamp": stamp} for stamp in (5000, 9000, 7000)]
    run("DataScenarios.produce", topic=topic, records=records)
    assert run("AdminScenarios.listOffsets", topic=topic, time=5001) == {
        "earliest": [0, -1, 0],
        "latest": [3, -1, 0],
        "max timestamp": [1, 9000, 0],
        "earliest local": [0, -1, 0],
        "latest tiered": [-1, -1, -1],
        "earliest pending upload": [-1, -1, -1],
        "by time": [1, 9000, 0],
    }


def test_delete_records(run: Run, refusal: Run, topic: str) -> None:
    run("DataScenarios.produce", **values(topic))
    assert run("AdminScenarios.deleteRecords", topic=topic, offset=50) == 50
    assert run("AdminScenarios.deleteRecords", topic=topic, offset=-1) == 200
    past_end = refusal("AdminScenarios.deleteRecords", topic=topic, offset=201)
    assert past_end == "OffsetOutOfRangeException"


def test_elections_are_not_needed(run: Run, topic: str) -> None:
    elected = run("AdminScenarios.electLeaders", topic=topic)
    assert {kind: answer.partition(":")[0] for kind, answer in elected.items()} == {
        "PREFERRED": "ElectionNotNeededException",
        "UNCLEAN": "ElectionNotNeededException",
    }


def test_producers(run: Run, topic: str) -> None:
    run("DataScenarios.produce", **values(topic))
    ((epoch, sequence, _, in_transaction),) = run("AdminScenarios.describeProducers", topic=topic)
    assert (epoch, sequence, in_transaction) == (0, len(VALUES) - 1, False)


def test_features(run: Run, refusal: Run) -> None:
    features = run("AdminScenarios.describeFeatures")
    assert "metadata.version" in features["supported"]
    assert features["finalized"]["metadata.version"] >= 1
    unknown = refusal("AdminScenarios.updateFeature", feature="no.such.feature", level=1)
    assert unknown == "InvalidUpdateVersionException"


def test_quorum(run: Run, broker_id: int) -> None:
    assert run("AdminScenarios.describeQuorum") == {"leader": broker_id, "voters": 1}


def test_reassignment(run: Run, refusal: Run, topic: str, broker_id: int) -> None:
    assert run("AdminScenarios.reassign", topic=topic, brokers=[broker_id]) == 0
    refused = refusal("AdminScenarios.reassign", topic=topic, brokers=[broker_id + 77])
    assert refused == "InvalidReplicaAssignmentException"


def test_acls_without_an_authorizer(refusal: Run) -> None:
    assert refusal("AdminScenarios.describeAcls") == "SecurityDisabledException"
