"""The claims about groups, one test for each: rows 1, 2 and 54 to 63 of the feature list."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.group_members import (
    GroupMember,
    MemberProcess,
    committed,
    poll_until,
    shared_out,
)
from tests.compat.group_nodes import GROUP_OVERRIDES, group_node, groups_at  # noqa: F401
from tests.compat.group_wire import GroupWire, schema
from tests.compat.wire import Wire, batch_of, produce
from tests.patience import SECONDS_MAX

ROUND_ROBIN = {"partition.assignment.strategy": "roundrobin"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.fixture
def at(groups_at: str) -> str:  # noqa: F811
    return groups_at


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def spread(bootstrap: str, topic: str, partitions: int, count: int) -> set[bytes]:
    """`count` values, one after the other over the partitions."""
    sender = confluent.producer(bootstrap, {"linger.ms": 5})
    sent = values(count)
    confluent.send(
        sender,
        topic,
        ({"value": value, "partition": n % partitions} for n, value in enumerate(sent)),
    )
    return set(sent)


def test_row_01_a_consumer_that_was_down_gets_everything_in_order(at: str) -> None:
    topic = confluent.create_topic(at)
    confluent.send_values(at, topic, values(1000))
    member = GroupMember(at, confluent.new_name(), [topic])
    poll_until([member], lambda: len(member.got) >= 1000, "all records")
    assert member.values() == values(1000)
    assert [message.offset() for message in member.got] == list(range(1000))
    member.close()


def test_row_02_a_slow_consumer_catches_up(at: str) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    member = GroupMember(at, group, [topic])
    lags = []
    for burst in range(5):
        confluent.send_values(at, topic, [b"%d" % (burst * 1000 + n) for n in range(1000)])
        wanted = (burst + 1) * 100
        poll_until([member], partial(_has_read, member, wanted), "a tenth of it")
        member.commit(member.got[-1])
        end = confluent.watermarks(at, topic)[1]
        lags.append(end - committed(at, group, topic).offset)
    assert lags == sorted(lags) and lags[-1] > 4000
    poll_until([member], lambda: len(member.got) >= 5000, "all of it")
    member.commit(member.got[-1])
    assert committed(at, group, topic).offset == confluent.watermarks(at, topic)[1]
    assert member.values() == values(5000)
    member.close()


def _has_read(member: GroupMember, count: int) -> bool:
    return len(member.got) >= count


def test_row_54_each_partition_has_one_member(at: str) -> None:
    topic, group = confluent.create_topic(at, partitions=6), confluent.new_name()
    members = [GroupMember(at, group, [topic]) for _ in range(3)]
    poll_until(
        members,
        lambda: shared_out(members, 6) and all(len(one.owned) == 2 for one in members),
        "two partitions each",
    )
    more = [GroupMember(at, group, [topic]) for _ in range(4)]
    everybody = members + more
    poll_until(
        everybody,
        lambda: shared_out(everybody, 6) and sorted(map(_size, everybody)) == [0, *[1] * 6],
        "the seventh of six idles",
    )
    for one in everybody:
        one.close()


def _size(member: GroupMember) -> int:
    return len(member.owned)


def test_row_55_two_groups_each_get_everything(at: str) -> None:
    topic = confluent.create_topic(at, partitions=2)
    sent = spread(at, topic, 2, 500)
    first, second = (GroupMember(at, confluent.new_name(), [topic]) for _ in range(2))
    poll_until([first, second], lambda: len(first.got) + len(second.got) >= 1000, "both")
    assert len(first.got) == len(second.got) == 500
    assert set(first.values()) == set(second.values()) == sent
    first.close()
    second.close()


def test_row_56_the_members_choose_the_assignment(at: str) -> None:
    """By range the first member gets the odd partition of each topic; by turns it does not."""
    one, two = confluent.create_topic(at, partitions=3), confluent.create_topic(at, partitions=3)
    group = confluent.new_name()
    ranged = [GroupMember(at, group, [one, two]) for _ in range(2)]
    poll_until(
        ranged,
        lambda: shared_out(ranged, 6) and sorted(map(_size, ranged)) == [2, 4],
        "four and two",
    )
    group = confluent.new_name()
    turned = [GroupMember(at, group, [one, two], ROUND_ROBIN) for _ in range(2)]
    poll_until(
        turned,
        lambda: shared_out(turned, 6) and sorted(map(_size, turned)) == [3, 3],
        "three each",
    )
    for member in ranged + turned:
        member.close()


def test_row_56_cooperative_members_keep_reading_what_they_keep(at: str) -> None:
    topic, group = confluent.create_topic(at, partitions=4), confluent.new_name()
    first = GroupMember(at, group, [topic], COOPERATIVE)
    poll_until([first], lambda: len(first.owned) == 4, "all four")
    second = GroupMember(at, group, [topic], COOPERATIVE)
    both = [first, second]
    poll_until(
        both,
        lambda: shared_out(both, 4) and len(first.owned) == len(second.owned) == 2,
        "two each",
    )
    # One rebalance to let go, one to take over; the two that stayed were never taken away.
    assert [len(gone) for gone in first.revoked] == [2]
    assert second.revoked == []
    for member in both:
        member.close()


def test_row_57_a_group_reads_on_where_it_was(at: str) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    confluent.send_values(at, topic, values(10))
    member = GroupMember(at, group, [topic])
    poll_until([member], lambda: len(member.got) >= 10, "ten records")
    place = TopicPartition(topic, 0, 5, metadata="half", leader_epoch=0)
    member.consumer.commit(offsets=[place], asynchronous=False)
    member.close()
    with GroupWire(at, group, topic) as wire:
        (found,) = wire.fetch_offsets().topics[0].partitions
    # confluent-kafka sends the C string with the zero at its end, and the broker keeps what it got.
    assert (found.committed_offset, found.metadata.rstrip("\0")) == (5, "half")
    assert found.committed_leader_epoch == 0
    again = GroupMember(at, group, [topic])
    poll_until([again], lambda: len(again.got) >= 5, "the other half")
    assert [message.offset() for message in again.got] == [5, 6, 7, 8, 9]
    assert committed(at, group + "-other", topic).offset < 0
    again.close()


def test_row_58_the_topic_of_the_offsets(make_node: MakeNode) -> None:
    node = make_node({"group.initial.rebalance.delay.ms": "0"})
    topic, group = confluent.create_topic(node.bootstrap), confluent.new_name()
    assert not confluent.topic_exists(node.bootstrap, "__consumer_offsets")
    with GroupWire(node.bootstrap, group, topic) as wire:
        wire.ready()
        assert wire.commit(5) == 0
        described = _internal_topic(wire)
        assert (len(described.partitions), described.is_internal) == (50, True)
        assert int(produce(wire, "__consumer_offsets", batch_of([b"forged"])).error_code) == 17
    node.kill()
    node.start()
    with GroupWire(node.bootstrap, group, topic) as wire:
        wire.ready()
        assert wire.fetch_offsets().topics[0].partitions[0].committed_offset == 5
        assert wire.commit(6) == 0


def _internal_topic(wire: Wire) -> Any:
    part = schema("metadata", 9)
    request = part.MetadataRequest(
        topics=(part.MetadataRequestTopic(name="__consumer_offsets"),),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return wire.call(request).topics[0]


def test_row_59_auto_commit(at: str) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    confluent.send_values(at, topic, values(10))
    automatic = {"enable.auto.commit": True, "auto.commit.interval.ms": 100}
    member = GroupMember(at, group, [topic], automatic)
    poll_until([member], lambda: len(member.got) >= 10, "ten records")
    poll_until([member], lambda: committed(at, group, topic).offset == 10, "committed by itself")
    member.close()


def test_row_60_manual_commit(at: str) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    confluent.send_values(at, topic, values(10))
    member = GroupMember(at, group, [topic])
    poll_until([member], lambda: len(member.got) >= 10, "ten records")
    assert committed(at, group, topic).offset < 0
    member.commit(member.got[3])
    assert committed(at, group, topic).offset == 4
    member.consumer.commit(message=member.got[7], asynchronous=True)
    poll_until([member], lambda: committed(at, group, topic).offset == 8, "committed meanwhile")
    member.close()


def test_row_61_at_most_once(at: str) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    confluent.send_values(at, topic, values(2))
    process = MemberProcess(at, group, topic, "before")
    assert process.line() == "0 0 0"
    process.kill()  # committed, and perhaps not worked on
    member = GroupMember(at, group, [topic])
    poll_until([member], lambda: member.got or committed(at, group, topic).offset == 2, "on")
    assert 0 not in [message.offset() for message in member.got]
    member.close()


def test_row_62_at_least_once(at: str) -> None:
    topic, group = confluent.create_topic(at), confluent.new_name()
    confluent.send_values(at, topic, values(3))
    process = MemberProcess(at, group, topic, "never")
    assert [process.line() for _ in range(3)] == ["0 0 0", "0 1 1", "0 2 2"]
    process.kill()
    member = GroupMember(at, group, [topic])
    poll_until([member], lambda: len(member.got) >= 3, "the same again")
    assert [message.offset() for message in member.got] == [0, 1, 2]
    member.close()


def test_row_63_greetings(make_node: MakeNode) -> None:
    node = make_node(GROUP_OVERRIDES)
    at = node.bootstrap
    sent = confluent.send_values(at, "Greetings", [b"Hello, world!"])
    assert [message.offset() for message in sent] == [0]

    killed = MemberProcess(at, "printers", "Greetings", "never")
    assert killed.line() == "0 0 Hello, world!"
    killed.kill()
    twice = MemberProcess(at, "printers", "Greetings", "after")
    assert twice.line() == "0 0 Hello, world!"
    assert twice.line() == "committed"
    twice.kill()
    confluent.send_values(at, "Greetings", [b"Good bye!"])
    once = MemberProcess(at, "printers", "Greetings", "after")
    assert once.line() == "0 1 Good bye!"
    once.kill()


def test_kcat_reads_as_a_group(at: str) -> None:
    topic, group = confluent.create_topic(at, partitions=3), confluent.new_name()
    sent = spread(at, topic, 3, 300)
    command = ["kcat", "-b", at, "-X", "log_level=0", "-X", "auto.offset.reset=earliest"]
    done = subprocess.run(
        [*command, "-G", group, "-q", "-c", "300", topic],
        capture_output=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    assert set(done.stdout.splitlines()) == sent
    held = sum(committed(at, group, topic, index).offset for index in range(3))
    assert held == 300


def test_a_member_that_dies_is_replaced(at: str) -> None:
    topic, group = confluent.create_topic(at, partitions=2), confluent.new_name()
    process = MemberProcess(at, group, topic, "never")
    member = GroupMember(at, group, [topic])
    poll_until([member], lambda: len(member.owned) == 1, "half of the partitions")
    process.kill()
    poll_until([member], lambda: len(member.owned) == 2, "the other half, too")
    member.close()
