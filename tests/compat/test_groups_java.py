"""Groups of Java consumers, and Kafka's own tools for groups."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest

from tests.compat import confluent
from tests.compat.group_members import committed
from tests.compat.group_nodes import group_node, groups_at  # noqa: F401
from tests.compat.group_wire import GroupWire
from tests.compat.internal_topics import everything_about
from tests.compat.java_host import JavaHost
from tests.compat.test_groups_rows import spread
from tests.patience import SESSION_MS

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]

ASSIGNORS = "org.apache.kafka.clients.consumer"
TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def at(groups_at: str) -> str:  # noqa: F811
    return groups_at


@pytest.fixture
def tool(java: JavaHost, at: str) -> Any:
    def run(main_class: str, *arguments: str) -> str:
        done = java.tool(main_class, "--bootstrap-server", at, *arguments)
        assert done.status == 0, done
        return done.output

    return run


def share(java: JavaHost, at: str, topic: str, group: str, **arguments: Any) -> list[Any]:
    told: list[Any] = java.run(
        "GroupScenarios.share", bootstrap=at, topics=[topic], group=group, **arguments
    )
    assert [member["failure"] for member in told] == [None] * len(told)
    return told


@pytest.mark.parametrize(
    "assignor",
    ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"],
)
def test_three_members_share_a_topic(java: JavaHost, at: str, assignor: str) -> None:
    topic, group = confluent.create_topic(at, partitions=6), confluent.new_name()
    sent = spread(at, topic, 6, 600)
    told = share(
        java,
        at,
        topic,
        group,
        members=3,
        partitions=6,
        count=600,
        settings={"partition.assignment.strategy": f"{ASSIGNORS}.{assignor}"},
    )
    assert sorted(len(member["owned"]) for member in told) == [2, 2, 2]
    assert len({place for member in told for place in member["owned"]}) == 6
    assert {value.encode() for member in told for value in member["values"]} == sent
    if assignor.startswith("Cooperative"):
        # Nobody lost what it was to keep: six became three and three, then two each.
        first, second, _ = told
        assert [len(gone) for gone in first["revoked"] if gone] == [3, 1]
        assert [len(gone) for gone in second["revoked"] if gone] == [1]


def test_static_members_come_back(java: JavaHost, at: str) -> None:
    """Java does not send LeaveGroup for them: the second time they find their old place."""
    topic, group = confluent.create_topic(at, partitions=2), confluent.new_name()
    settings = {"group.instance.id": "static", "session.timeout.ms": str(SESSION_MS)}
    ask = partial(share, java, at, topic, group, partitions=2, count=0, settings=settings)
    before = ask(members=1)
    with GroupWire(at, group) as wire:
        generation = len(wire.describe().members)
        after = ask(members=1)
        assert len(wire.describe().members) == generation == 1
    assert before[0]["owned"] == after[0]["owned"] == [f"{topic}-0", f"{topic}-1"]


def test_kafka_consumer_groups(tool: Any, java: JavaHost, at: str) -> None:
    topic, group = confluent.create_topic(at, partitions=2), confluent.new_name()
    spread(at, topic, 2, 100)
    share(java, at, topic, group, members=1, partitions=2, count=100)
    groups = partial(tool, f"{TOOLS}.consumer.group.ConsumerGroupCommand")
    assert group in groups("--list").splitlines()
    assert re.search(rf"{group}\s+Empty", groups("--list", "--state"))
    described = groups("--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sorted((row[1], row[2], row[3], row[4], row[5]) for row in rows) == [
        (topic, "0", "50", "50", "0"),
        (topic, "1", "50", "50", "0"),
    ]
    assert re.search(rf"{group}\s.*Empty\s+0", groups("--describe", "--group", group, "--state"))
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    groups(*reset, "--shift-by", "-20", "--execute")
    assert committed(at, group, topic, 0).offset == 30
    groups("--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert committed(at, group, topic, 0).offset < 0
    groups("--delete", "--group", group)
    assert group not in groups("--list").splitlines()


def test_kafka_verifiable_consumer(tool: Any, at: str) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    spread(at, topic, 1, 200)
    told = tool(
        "VerifiableConsumer",
        *("--topic", topic, "--group-id", group),
        *("--max-messages", "200", "--reset-policy", "earliest", "--verbose"),
    )
    events = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    read = [event["offset"] for event in events if event["name"] == "record_data"]
    assert read == list(range(200))
    assert committed(at, group, topic).offset == 200


def test_kafka_reads_the_records_of_the_coordinator(tool: Any, java: JavaHost, at: str) -> None:
    """With the formatters that Kafka has for its own topic."""
    topic, group = confluent.create_topic(at), confluent.new_name()
    spread(at, topic, 1, 10)
    share(java, at, topic, group, members=1, partitions=1, count=10)
    with GroupWire(at, group, topic) as wire:
        assert wire.commit(3, 4, retention_ms=100_000, metadata="in the old way") == 0
        wire.delete_offset()

    def read(formatter: str) -> list[dict[str, Any]]:
        told = tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *everything_about(at, group, "__consumer_offsets"),
            *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
        )
        return [one for one in _objects(told) if one["key"]["data"].get("group") == group]

    offsets = read("OffsetsMessageFormatter")
    kept = [one["value"]["data"] for one in offsets if one["value"]]
    assert [(value["offset"], value["metadata"]) for value in kept] == [
        (10, ""),
        (3, "in the old way"),
    ]
    assert {one["key"]["data"]["topic"] for one in offsets} == {topic}
    assert offsets[-1]["value"] is None
    found = read("GroupMetadataMessageFormatter")
    groups = [one["value"]["data"] for one in found if one["value"]]
    groups = [one for one in groups if one["generation"]]  # Kafka writes down a new group, too
    assert [(value["protocolType"], value["generation"]) for value in groups] == [
        ("consumer", 1),
        ("consumer", 2),
    ]
    (member,) = groups[0]["members"]
    assert member["clientHost"] == "/127.0.0.1"
    assert groups[1]["members"] == []


def _objects(text: str) -> list[dict[str, Any]]:
    """JSON objects that stand one behind the other."""
    decoder, position = json.JSONDecoder(), text.find("{")
    found = []
    while position >= 0:
        one, end = decoder.raw_decode(text, position)
        found.append(one)
        position = text.find("{", end)
    return found
