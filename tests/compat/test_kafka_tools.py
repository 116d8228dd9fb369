"""Kafka's own command-line tools, each run as its shell script would run it, in one JVM."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.compat import confluent
from tests.compat.java_host import JavaHost, ToolRun
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]

Tool = Any


@pytest.fixture
def tool(java: JavaHost, bootstrap: str) -> Tool:
    """Runs a tool on the broker under test and returns its output; it must end with status 0."""

    def run(main_class: str, *arguments: str, given: str = "") -> str:
        done = java.tool(main_class, "--bootstrap-server", bootstrap, *arguments, given=given)
        assert done.status == 0, done
        return done.output

    return run


@pytest.fixture
def refused(java: JavaHost, bootstrap: str) -> Tool:
    def run(main_class: str, *arguments: str) -> ToolRun:
        done = java.tool(main_class, "--bootstrap-server", bootstrap, *arguments)
        assert done.status != 0, done
        return done

    return run


@pytest.fixture
def topic(bootstrap: str) -> str:
    return confluent.create_topic(bootstrap)


def test_kafka_topics(tool: Tool, refused: Tool) -> None:
    topic = confluent.new_name()
    topics = partial(tool, "TopicCommand")
    made = topics(
        "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=7000"
    )
    assert f"Created topic {topic}." in made
    wait_until(lambda: topic in topics("--list").splitlines(), SECONDS_MAX, "it is listed")
    described = topics("--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=7000" in described
    assert (
        len(re.findall(r"Partition: \d\s+Leader: (\d+)\s+Replicas: \1\s+Isr: \1", described)) == 3
    )
    topics("--alter", "--topic", topic, "--partitions", "4")
    wait_until(
        lambda: "PartitionCount: 4" in topics("--describe", "--topic", topic),
        SECONDS_MAX,
        "four partitions",
    )
    fewer = refused("TopicCommand", "--alter", "--topic", topic, "--partitions", "2")
    assert "InvalidPartitionsException" in fewer.output + fewer.errors
    again = refused("TopicCommand", "--create", "--topic", topic)
    assert f"Topic '{topic}' already exists" in again.output
    assert topics("--describe", "--unavailable-partitions") == ""
    assert topics("--describe", "--under-replicated-partitions") == ""
    topics("--delete", "--topic", topic)
    wait_until(lambda: topic not in topics("--list").splitlines(), SECONDS_MAX, "it is gone")


def test_kafka_configs_of_a_topic(tool: Tool, topic: str) -> None:
    configs = partial(tool, "kafka.admin.ConfigCommand", "--entity-type", "topics")
    configs("--entity-name", topic, "--alter", "--add-config", "max.message.bytes=2000")
    described = configs("--entity-name", topic, "--describe")
    assert "max.message.bytes=2000" in described
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000" in described
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in described
    configs("--entity-name", topic, "--alter", "--delete-config", "max.message.bytes")
    wait_until(
        lambda: "max.message.bytes" not in configs("--entity-name", topic, "--describe"),
        SECONDS_MAX,
        "the setting is gone",
    )
    assert "segment.bytes=1073741824" in configs("--entity-name", topic, "--describe", "--all")


def test_kafka_configs_of_brokers(tool: Tool) -> None:
    configs = partial(tool, "kafka.admin.ConfigCommand", "--entity-type", "brokers")
    configs("--entity-default", "--alter", "--add-config", "log.cleaner.threads=2")
    wait_until(
        lambda: "log.cleaner.threads=2" in configs("--entity-default", "--describe"),
        SECONDS_MAX,
        "the cluster's value",
    )
    configs("--entity-default", "--alter", "--delete-config", "log.cleaner.threads")


def test_kafka_console_producer(tool: Tool, bootstrap: str, topic: str) -> None:
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("ConsoleProducer", "--topic", topic, *properties, given="a:1\nb:2\n")
    messages = confluent.read(bootstrap, topic)
    assert [(one.key(), one.value()) for one in messages] == [(b"a", b"1"), (b"b", b"2")]


def test_kafka_console_consumer_of_one_partition(tool: Tool, bootstrap: str, topic: str) -> None:
    """With a partition and an offset it assigns itself; no group is needed."""
    confluent.send_values(bootstrap, topic, [b"one", b"two", b"three"])
    place = ("--topic", topic, "--partition", "0", "--offset", "1", "--max-messages", "2")
    shown = tool("consumer.ConsoleConsumer", *place, "--timeout-ms", "120000")
    assert shown == "two\nthree\n"


def test_kafka_get_offsets(tool: Tool, bootstrap: str, topic: str) -> None:
    stamps = ({"value": b"v", "timestamp": 1000 + number} for number in range(10))
    confluent.send(confluent.producer(bootstrap), topic, stamps)
    offsets = partial(tool, "GetOffsetShell", "--topic", topic, "--time")
    assert offsets("latest") == f"{topic}:0:10\n"
    assert offsets("earliest") == f"{topic}:0:0\n"
    assert offsets("max-timestamp") == f"{topic}:0:9\n"
    assert offsets("1004") == f"{topic}:0:4\n"


def test_kafka_log_dirs(tool: Tool, bootstrap: str, topic: str) -> None:
    confluent.send_values(bootstrap, topic, [b"x" * 5000])
    text = tool("LogDirsCommand", "--describe", "--topic-list", topic)
    described = json.loads(text.strip().splitlines()[-1])
    (directory,) = described["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert directory["partitions"][0]["partition"] == f"{topic}-0"
    assert directory["partitions"][0]["size"] > 5000


def test_kafka_delete_records(tool: Tool, bootstrap: str, topic: str, tmp_path: Path) -> None:
    confluent.send_values(bootstrap, topic, [b"%d" % number for number in range(20)])
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 15}], "version": 1}
    (tmp_path / "wanted.json").write_text(json.dumps(wanted))
    text = tool("DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "wanted.json"))
    assert "low_watermark: 15" in text
    assert confluent.read_values(bootstrap, topic) == [b"15", b"16", b"17", b"18", b"19"]


def test_kafka_broker_api_versions(tool: Tool) -> None:
    text = tool("BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 13" in text
    assert "Fetch(1): 4 to 18" in text


def test_kafka_metadata_quorum(tool: Tool) -> None:
    text = tool("MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId:\s+\d+", text)


def test_kafka_features(tool: Tool) -> None:
    feature = "eligible.leader.replicas.version"

    def levels() -> dict[str, list[str]]:
        """Supported from and to, and finalized."""
        lines = [re.findall(r": *(\S+)", line) for line in features("describe").splitlines()]
        return {line[0]: line[1:4] for line in lines if len(line) == 5}

    features = partial(tool, "FeatureCommand")
    told = levels()
    assert told["metadata.version"][1:] == ["4.3-IV0", "4.3-IV0"]
    assert told["group.version"] == ["0", "1", "1"]
    assert told["transaction.version"] == ["0", "2", "2"]
    assert told[feature] == ["0", "1", "1"]
    down = features("downgrade", "--feature", f"{feature}=0")
    assert f"{feature} was downgraded to 0." in down
    assert levels()[feature] == ["0", "1", "0"]
    assert f"{feature} was upgraded to 1." in features("upgrade", "--feature", f"{feature}=1")
    assert levels() == told


def test_kafka_leader_election(tool: Tool, topic: str) -> None:
    text = tool(
        "LeaderElectionCommand",
        "--election-type",
        "preferred",
        "--topic",
        topic,
        "--partition",
        "0",
    )
    assert f"Valid replica already elected for partitions {topic}-0" in text


def test_kafka_reassign_partitions(tool: Tool, topic: str, tmp_path: Path) -> None:
    described = tool("TopicCommand", "--describe", "--topic", topic)
    (broker,) = re.findall(r"Leader: (\d+)", described)
    moves = {
        "partitions": [{"topic": topic, "partition": 0, "replicas": [int(broker)]}],
        "version": 1,
    }
    path = tmp_path / "moves.json"
    path.write_text(json.dumps(moves))
    command = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(path))
    assert "Successfully started partition reassignment" in tool(*command, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed" in tool(*command, "--verify")


def test_kafka_producer_perf_test(java: JavaHost, bootstrap: str, topic: str) -> None:
    done = java.tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "200"),
        *("--throughput", "-1", "--bootstrap-server", bootstrap),
    )
    assert done.status == 0, done
    assert "20000 records sent" in done.output
    assert confluent.watermarks(bootstrap, topic) == (0, 20000)
