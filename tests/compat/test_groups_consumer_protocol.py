"""Groups of the new consumer protocol (KIP-848), with stock clients and over the bare wire.

The broker has short heartbeats. `OTTLA_COMPAT_NODE=kafka` shows what Kafka does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import NewPartitions
from confluent_kafka.cimpl import NewTopic

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.java_host import JavaHost
from tests.compat.nodes import Node, node_kind, wait_until
from tests.patience import SECONDS_MAX, SESSION_MS, SHORT_SESSION_MS
from tests.unit.coordinator.consumer_conversations import SETTINGS, TOPICS, recorded
from tests.unit.coordinator.consumer_steps import CONVERSATIONS
from tests.unit.coordinator.consumer_wire import GroupWire

pytestmark = pytest.mark.xdist_group("consumer_protocol")

PROTOCOL = {"group.protocol": "consumer"}
OVERRIDES = {**SETTINGS, "group.consumer.max.size": "100", "offsets.topic.num.partitions": "4"}
Held = set[tuple[str, int]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = node_kind()(tmp_path_factory.mktemp("consumer-protocol"), OVERRIDES)
    node.start()
    yield node
    node.close()


@pytest.fixture
def at(node: Node) -> str:
    return node.bootstrap


# -- the same answers as Kafka -------------------------------------------------------------------


@pytest.mark.parametrize("conversation", [name for name in CONVERSATIONS if name != "too many"])
def test_a_conversation_with_kafka(at: str, conversation: str) -> None:
    answers = recorded()
    wire = GroupWire(at)
    try:
        names = wire.make_topics(TOPICS)
        for number, (step, ours) in enumerate(wire.hold(CONVERSATIONS[conversation], names)):
            assert ours == answers[conversation, number], f"{number}: {step.title}"
    finally:
        wire.close()


# -- librdkafka ----------------------------------------------------------------------------------


class Member:
    """A consumer that is polled in turn with others; `owned` is what it reads now."""

    def __init__(self, at: str, group: str, topics: Sequence[str], **settings: Any) -> None:
        self.owned: Held = set()
        self.got: list[Message] = []
        options = {
            "bootstrap.servers": at,
            "group.id": group,
            "log_level": 0,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "topic.metadata.refresh.interval.ms": 500,
            **PROTOCOL,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.consumer = Consumer(options)
        self.consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= _places(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= _places(partitions)

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.got.append(message)
        elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise AssertionError(error)


def _places(partitions: Sequence[TopicPartition]) -> Held:
    return {(one.topic, one.partition) for one in partitions}


def poll_until(members: Sequence[Member], condition: Callable[[], object], what: str) -> None:
    def turn() -> object:
        for member in members:
            member.poll()
        return condition()

    wait_until(turn, SECONDS_MAX, what)


def share(members: Sequence[Member]) -> list[int]:
    """How many partitions each has; none may be read by two."""
    owned = [place for member in members for place in member.owned]
    assert len(owned) == len(set(owned)), "a partition is read by two"
    return sorted(len(member.owned) for member in members)


def spread(at: str, topic: str, partitions: int, count: int) -> set[bytes]:
    sender = confluent.producer(at)
    values = [f"value {number}".encode() for number in range(count)]
    records = [
        {"value": value, "partition": number % partitions} for number, value in enumerate(values)
    ]
    confluent.send(sender, topic, records)
    return set(values)


@pytest.fixture
def members(at: str) -> Iterator[Callable[..., Member]]:
    """Makes members of a group that are closed with the test."""
    made: list[Member] = []

    def make(group: str, topics: Sequence[str], **settings: Any) -> Member:
        member = Member(at, group, topics, **settings)
        made.append(member)
        return member

    yield make
    for member in made:
        member.consumer.close()


def test_members_come_and_go(at: str, members: Callable[..., Member]) -> None:
    topic, group = confluent.create_topic(at, partitions=6), confluent.new_name()
    sent = spread(at, topic, 6, 300)
    first = members(group, [topic])
    poll_until([first], lambda: share([first]) == [6], "the first has everything")
    second, third = members(group, [topic]), members(group, [topic])
    all_three = [first, second, third]
    poll_until(all_three, lambda: share(all_three) == [2, 2, 2], "two each")
    poll_until(
        all_three,
        lambda: {one.value() for member in all_three for one in member.got} >= sent,
        "everything is read",
    )
    second.consumer.close()
    left = [first, third]
    poll_until(left, lambda: share(left) == [3, 3], "three each")


def test_two_groups_get_everything(at: str, members: Callable[..., Member]) -> None:
    topic = confluent.create_topic(at, partitions=2)
    sent = spread(at, topic, 2, 50)
    both = [members(confluent.new_name(), [topic]) for _ in range(2)]
    poll_until(
        both, lambda: all({m.value() for m in one.got} == sent for one in both), "both have all"
    )


def test_the_seventh_of_six_is_idle(at: str, members: Callable[..., Member]) -> None:
    topic, group = confluent.create_topic(at, partitions=6), confluent.new_name()
    seven = [members(group, [topic]) for _ in range(7)]
    poll_until(seven, lambda: share(seven) == [0, 1, 1, 1, 1, 1, 1], "one each, and one idle")


def test_who_comes_back_goes_on_where_it_was(at: str, members: Callable[..., Member]) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    confluent.send_values(at, topic, [b"one", b"two"])
    first = members(group, [topic], enable_auto_commit=False)
    poll_until([first], lambda: len(first.got) == 2, "both are read")
    first.consumer.commit(message=first.got[0], asynchronous=False)
    first.consumer.close()
    second = members(group, [topic], enable_auto_commit=False)
    poll_until([second], lambda: second.got, "it reads on")
    assert [message.value() for message in second.got] == [b"two"]


def test_new_partitions_and_deleted_topics(at: str, members: Callable[..., Member]) -> None:
    stays, goes = confluent.create_topic(at, 1), confluent.create_topic(at, 2)
    group = confluent.new_name()
    member = members(group, [stays, goes])
    poll_until([member], lambda: share([member]) == [3], "both topics")
    admin = confluent.admin_client(at)
    confluent.result_of(admin.create_partitions([NewPartitions(stays, 3)]))
    poll_until([member], lambda: (stays, 2) in member.owned, "the new partitions")
    confluent.result_of(admin.delete_topics([goes]))
    poll_until([member], lambda: member.owned == {(stays, n) for n in range(3)}, "one topic")


def test_a_regular_expression(at: str, members: Callable[..., Member]) -> None:
    """New topics are looked at after ten seconds at the earliest, as in Kafka."""
    topic, group = confluent.create_topic(at, 2), confluent.new_name()
    member = members(group, [f"^{re.escape(topic)}.*"])
    poll_until([member], lambda: share([member]) == [2], "the topic that matches")
    other = f"{topic}-other"
    confluent.result_of(confluent.admin_client(at).create_topics([NewTopic(other, 1, 1)]))
    poll_until([member], lambda: (other, 0) in member.owned, "the topic that came later")


def test_a_static_member_keeps_its_place(at: str, members: Callable[..., Member]) -> None:
    topic, group = confluent.create_topic(at, 4), confluent.new_name()
    one = members(group, [topic], group_instance_id="one")
    two = members(group, [topic], group_instance_id="two")
    poll_until([one, two], lambda: share([one, two]) == [2, 2], "two each")
    had = set(one.owned)
    one.consumer.close()
    again = members(group, [topic], group_instance_id="one")
    poll_until([again, two], lambda: again.owned, "it is back")
    assert again.owned == had
    assert share([again, two]) == [2, 2]


def test_a_server_side_assignor_of_choice(at: str, members: Callable[..., Member]) -> None:
    """Range keeps partitions of one number together; uniform would not care."""
    left, right = confluent.create_topic(at, 4), confluent.create_topic(at, 4)
    group = confluent.new_name()
    both = [members(group, [left, right], group_remote_assignor="range") for _ in range(2)]
    poll_until(both, lambda: share(both) == [4, 4], "four each")
    for member in both:
        numbers = [{n for topic, n in member.owned if topic == one} for one in (left, right)]
        assert numbers[0] == numbers[1]


def test_a_member_that_dies_is_missed(make_node: MakeNode) -> None:
    """Its session ends: nobody says good-bye for it."""
    node = make_node({**OVERRIDES, "group.consumer.session.timeout.ms": str(SHORT_SESSION_MS)})
    at = node.bootstrap
    topic, group = confluent.create_topic(at, 2), confluent.new_name()
    wire = GroupWire(at)
    wire.await_coordinator(group)
    join = {
        "group_id": group,
        "member_id": "dead",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [topic],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    wait_until(lambda: wire.ask(68, 1, join)["error_code"] == 0, SECONDS_MAX, "it joins")
    wire.close()
    member = Member(at, group, [topic])
    poll_until([member], lambda: share([member]) == [2], "the other takes over")
    member.consumer.close()


# -- restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_group_outlives_its_broker(make_node: MakeNode, how: str) -> None:
    node = make_node(OVERRIDES)
    topic, group = confluent.create_topic(node.bootstrap, 4), confluent.new_name()
    spread(node.bootstrap, topic, 4, 40)
    both = [Member(node.bootstrap, group, [topic]) for _ in range(2)]
    try:
        poll_until(both, lambda: share(both) == [2, 2], "two each")
        before = _described(node.bootstrap, group)
        getattr(node, how)()
        node.start()
        after = _described(node.bootstrap, group)
        assert after == before, "the same epochs, members and partitions"
        third = Member(node.bootstrap, group, [topic])
        both.append(third)
        poll_until(both, lambda: share(both) == [1, 1, 2], "a third one gets its share")
    finally:
        for member in both:
            member.consumer.close()


def _described(at: str, group: str) -> Any:
    wire = GroupWire(at)
    try:
        wire.await_coordinator(group)
        request = {"group_ids": [group], "include_authorized_operations": False}

        def answer() -> Any:
            (found,) = wire.ask(69, 1, request)["groups"]
            return found if found["error_code"] == 0 else None

        wait_until(answer, SECONDS_MAX, "the group is described")
        return answer()
    finally:
        wire.close()


# -- Java ----------------------------------------------------------------------------------------


class JavaMembers:
    def __init__(self, java: JavaHost, at: str) -> None:
        self._java = java
        self._at = at

    def start(self, name: str, group: str, topics: list[str] | str, **settings: str) -> None:
        options = {"group.id": group, "client.id": name}
        options |= {key.replace("_", "."): value for key, value in settings.items()}
        self._java.run(
            "LivingMembers.start", name=name, bootstrap=self._at, topics=topics, settings=options
        )

    def classic(self, name: str, group: str, topics: list[str], **settings: str) -> None:
        assignor = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        self.start(
            name,
            group,
            topics,
            group_protocol="classic",
            heartbeat_interval_ms="200",
            session_timeout_ms=str(SESSION_MS),
            partition_assignment_strategy=assignor,
            **settings,
        )

    def consumer(self, name: str, group: str, topics: list[str] | str, **settings: str) -> None:
        self.start(name, group, topics, group_protocol="consumer", **settings)

    def told(self) -> Mapping[str, Any]:
        told: dict[str, Any] = self._java.run("LivingMembers.told")
        assert not [one for one in told.values() if one["failure"]], told
        return told

    def share(self) -> list[int]:
        shares = [one["owned"] for one in self.told().values()]
        owned = [place for each in shares for place in each]
        assert len(owned) == len(set(owned)), "a partition is read by two"
        return sorted(len(each) for each in shares)

    def await_share(self, *sizes: int) -> None:
        wait_until(lambda: self.share() == list(sizes), SECONDS_MAX, f"{sizes} partitions")

    def stop(self, *names: str) -> Mapping[str, Any]:
        told: dict[str, Any] = self._java.run(
            "LivingMembers.stop", **({"names": list(names)} if names else {})
        )
        return told


@pytest.fixture
def people(java: JavaHost, at: str) -> Iterator[JavaMembers]:
    members = JavaMembers(java, at)
    yield members
    members.stop()


@pytest.fixture
def tool(java: JavaHost, at: str) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        main_class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        done = java.tool(main_class, "--bootstrap-server", at, *arguments)
        assert done.status == 0, done
        return done.output

    return run


@pytest.mark.java
def test_java_members_come_and_go(at: str, people: JavaMembers) -> None:
    topic, group = confluent.create_topic(at, 6), confluent.new_name()
    sent = spread(at, topic, 6, 120)
    people.consumer("a", group, [topic])
    people.await_share(6)
    people.consumer("b", group, [topic])
    people.consumer("c", group, [topic])
    people.await_share(2, 2, 2)
    wait_until(
        lambda: {v.encode() for one in people.told().values() for v in one["values"]} == sent,
        SECONDS_MAX,
        "everything is read",
    )
    people.stop("a")
    people.await_share(3, 3)


@pytest.mark.java
def test_a_java_subscription_pattern(at: str, people: JavaMembers) -> None:
    topic, group = confluent.create_topic(at, 3), confluent.new_name()
    people.consumer("a", group, f"{topic}|no-such-topic")
    people.await_share(3)
    people.consumer("b", group, f"{topic}|no-such-topic")
    people.await_share(1, 2)


@pytest.mark.java
def test_a_java_static_member(at: str, people: JavaMembers) -> None:
    topic, group = confluent.create_topic(at, 4), confluent.new_name()
    people.consumer("a", group, [topic], group_instance_id="one")
    people.consumer("b", group, [topic])
    people.await_share(2, 2)
    had = people.told()["a"]["owned"]
    people.stop("a")
    people.consumer("c", group, [topic], group_instance_id="one")
    wait_until(lambda: people.told()["c"]["owned"], SECONDS_MAX, "it is back")
    assert people.told()["c"]["owned"] == had


@pytest.mark.java
def test_a_group_goes_from_classic_to_consumer_and_back(
    at: str, people: JavaMembers, tool: Callable[..., str]
) -> None:
    """A rolling upgrade and its way back, with members of both kinds reading all the while."""
    topic, group = confluent.create_topic(at, 6), confluent.new_name()
    people.classic("a", group, [topic])
    people.classic("b", group, [topic])
    people.await_share(3, 3)
    assert _kind(tool, group) == "Classic"
    people.consumer("c", group, [topic])
    people.await_share(2, 2, 2)
    assert _kind(tool, group) == "Consumer"
    people.stop("a")
    people.consumer("d", group, [topic])
    people.await_share(2, 2, 2)
    people.stop("b")
    people.await_share(3, 3)
    sent = spread(at, topic, 6, 60)
    wait_until(
        lambda: {v.encode() for one in people.told().values() for v in one["values"]} >= sent,
        SECONDS_MAX,
        "everything is read",
    )
    people.classic("e", group, [topic])
    people.await_share(2, 2, 2)
    people.stop("c")
    people.await_share(3, 3)
    people.stop("d")
    people.await_share(6)
    assert _kind(tool, group) == "Classic"


def _kind(tool: Callable[..., str], group: str) -> str:
    for line in tool("--list", "--type").splitlines():
        if line.startswith(group):
            return line.split()[1]
    raise AssertionError(f"{group} is not listed")


@pytest.mark.java
def test_kafka_s_tool_describes_the_group(
    at: str, people: JavaMembers, tool: Callable[..., str]
) -> None:
    topic, group = confluent.create_topic(at, 4), confluent.new_name()
    spread(at, topic, 4, 8)
    people.consumer("a", group, [topic], enable_auto_commit="true", auto_commit_interval_ms="100")
    people.await_share(4)
    wait_until(
        lambda: (
            len(re.findall(rf"{topic} +\d +2 +2 +0 ", tool("--describe", "--group", group))) == 4
        ),
        SECONDS_MAX,
        "all four partitions are read and committed",
    )
    state = tool("--describe", "--group", group, "--state", "--verbose")
    assert re.search(rf"{group}.* uniform +Stable +\d+ +\d+ +1", state), state
    members = tool("--describe", "--group", group, "--members", "--verbose")
    assert re.search(rf"{group}.* a +4 +\d+ +{topic}:0,1,2,3 +\d+ +{topic}:0,1,2,3", members), (
        members
    )
    people.stop("a")
    # It does not wait until the broker has heard of its leaving.
    wait_until(
        lambda: re.search(rf"{group}.* Empty ", tool("--describe", "--group", group, "--state")),
        SECONDS_MAX,
        "nobody is left",
    )
    assert "Deletion of requested consumer groups" in tool("--delete", "--group", group)


@pytest.mark.java
def test_kafka_s_formatter_reads_our_records(make_node: MakeNode, java: JavaHost) -> None:
    """Kafka decodes the files: every record that a group of both kinds of members leaves."""
    node = make_node({**OVERRIDES, "offsets.topic.num.partitions": "1"})
    wire = GroupWire(node.bootstrap)
    names = wire.make_topics(TOPICS)
    for conversation in ("two members", "static members", "patterns", "upgrade"):
        list(wire.hold(CONVERSATIONS[conversation], names))
    wire.close()
    node.stop()
    (segment,) = node.partition_directory("__consumer_offsets").glob("*.log")
    told = java.tool("DumpLogSegments", "--offsets-decoder", "--files", str(segment))
    assert told.status == 0, told.errors
    records = re.findall(r"key: (.*) payload: (.*)", told.output)
    kinds = {json.loads(key)["type"] for key, _ in records}
    assert kinds >= {"2", "3", "5", "6", "7", "8", "16"}
    assert {
        json.loads(key)["type"] for key, payload in records if payload == "<DELETE>"
    } >= kinds - {"1"}
    for _, payload in records:
        assert payload == "<DELETE>" or "data" in json.loads(payload)
    node.start()
