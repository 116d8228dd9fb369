"""Goal: partitions are shared as Kafka's own assignors share them, members' bytes are Kafka's.
Method: random histories of groups with what the Java classes made of them, as asked by
tools/java_assignments.py; range and roundrobin must agree in everything, the sticky ones must be at
least as even and move no more. Then cases of their own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.base.errors import ConfigError, MalformedRequest
from ottla.base.ids import TopicPartition
from ottla.client.assignors.member_bytes import (
    Assignments,
    Members,
    Reader,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.client.assignors.registry import are_cooperative, assignors_named
from ottla.client.assignors.sticky import assign_cooperative, assign_sticky, owned_by_subscription
from tests.seeds import seed_for

KEPT = Path(__file__).with_name("java_assignments.json")
NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


class Round(NamedTuple):
    counts: dict[str, int]
    members: dict[str, Subscription]
    assigned: Assignments
    before: Assignments


@cache
def kept() -> list[dict[str, Any]]:
    return list(json.loads(KEPT.read_text()))


def partition_named(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def rounds(assignor: str) -> Iterator[Round]:
    for history in kept():
        if history["assignor"] != assignor:
            continue
        before: Assignments = {}
        for told in history["rounds"]:
            members = {}
            for member, entry in told["members"].items():
                members[member] = decode_subscription(bytes.fromhex(entry["subscription"]))
                members[member].instance_id = entry.get("instance")
            assigned = {
                member: [partition_named(name) for name in names]
                for member, names in told["assigned"].items()
            }
            yield Round(told["topics"], members, assigned, before)
            before = assigned


def assign(name: str, counts: dict[str, int], members: Members) -> Assignments:
    (assignor,) = assignors_named([name])
    return assignor.assign(counts, members)


def check_whole(counts: dict[str, int], members: Members, assignments: Assignments) -> None:
    """Each partition that anybody reads goes to one reader."""
    assert set(assignments) == set(members)
    given = [partition for partitions in assignments.values() for partition in partitions]
    read = {topic for member in members.values() for topic in member.topics}
    assert sorted(given) == sorted(
        (topic, number) for topic in counts if topic in read for number in range(counts[topic])
    )
    for member, partitions in assignments.items():
        assert all(topic in members[member].topics for topic, _ in partitions)


def unevenness(assignments: Assignments) -> int:
    return sum(len(partitions) ** 2 for partitions in assignments.values())


def kept_count(round_: Round, assignments: Assignments) -> int:
    return sum(
        len(set(partitions) & set(round_.before.get(member, ())))
        for member, partitions in assignments.items()
        if round_.members[member].user_data is not None
    )


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_partitions_go_where_java_puts_them(name: str) -> None:
    count = 0
    for round_ in rounds(name):
        ours = assign(name, round_.counts, round_.members)
        check_whole(round_.counts, round_.members, ours)
        assert {member: sorted(parts) for member, parts in ours.items()} == {
            member: sorted(parts) for member, parts in round_.assigned.items()
        }
        count += 1
    assert count > 20


def test_sticky_is_as_even_as_java_and_moves_no_more() -> None:
    """Where it is more even than Java's, it may have to move more."""
    kept_by_us = kept_by_java = 0
    for round_ in rounds("sticky"):
        ours = assign("sticky", round_.counts, round_.members)
        check_whole(round_.counts, round_.members, ours)
        assert unevenness(ours) <= unevenness(round_.assigned)
        if unevenness(ours) == unevenness(round_.assigned):
            kept_by_us += kept_count(round_, ours)
            kept_by_java += kept_count(round_, round_.assigned)
    assert kept_by_us >= kept_by_java > 40


def test_cooperative_members_give_up_before_others_get() -> None:
    for round_ in rounds("cooperative-sticky"):
        ours = assign("cooperative-sticky", round_.counts, round_.members)
        holders = {
            partition: member
            for member, subscription in round_.members.items()
            for partition in subscription.owned
        }
        given = [partition for partitions in ours.values() for partition in partitions]
        assert len(given) == len(set(given))
        for member, partitions in ours.items():
            assert all(holders.get(partition, member) == member for partition in partitions)
        target = assign_sticky(round_.counts, round_.members, owned_by_subscription(round_.members))
        check_whole(round_.counts, round_.members, target)


def in_any_order(user_data: bytes | None) -> object:
    """Java writes topics as they come out of a hash map."""
    if user_data is None or len(user_data) <= 4:
        return user_data
    reader = Reader(user_data)
    return sorted(reader.partitions()), reader.int32(), reader.left()


@pytest.mark.parametrize("name", NAMES)
def test_members_bytes_are_javas(name: str) -> None:
    count = 0
    for history in kept():
        if history["assignor"] != name:
            continue
        before: Assignments = {}
        for generation, told in enumerate(history["rounds"]):
            for member, entry in told["members"].items():
                theirs = bytes.fromhex(entry["subscription"])
                subscription = decode_subscription(theirs)
                assert encode_subscription(subscription) == theirs
                (assignor,) = assignors_named([name])
                if subscription.generation >= 0 and member in before:
                    said = assignor.user_data(generation, before[member])
                    assert in_any_order(said) == in_any_order(subscription.user_data)
                    count += said is not None
            before = {
                member: [partition_named(partition) for partition in names]
                for member, names in told["assigned"].items()
            }
    assert count > 20 or not name.endswith("sticky")


# -- cases ----------------------------------------------------------------------------------------


def reader(*topics: str, owned: list[TopicPartition] | None = None, generation: int = -1) -> Any:
    return Subscription(topics=topics, owned=owned or [], generation=generation)


def of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [(topic, number) for number in numbers]


def test_a_later_generation_is_right() -> None:
    members = {
        "old": reader("t", owned=of("t", 0, 1), generation=3),
        "new": reader("t", owned=of("t", 1), generation=4),
    }
    assignments = assign_sticky({"t": 2}, members, owned_by_subscription(members))
    assert assignments == {"old": of("t", 0), "new": of("t", 1)}


def test_two_of_one_generation_are_both_wrong() -> None:
    members = {
        "a": reader("t", owned=of("t", 0, 1), generation=4),
        "b": reader("t", owned=of("t", 1), generation=4),
        "c": reader("t"),
    }
    assignments = assign_sticky({"t": 3}, members, owned_by_subscription(members))
    assert ("t", 0) in assignments["a"]
    assert {len(partitions) for partitions in assignments.values()} == {1}
    # Both still read partition 1, so nobody may begin to; the next round will tell.
    now = assign_cooperative({"t": 3}, members, owned_by_subscription(members))
    assert not any(("t", 1) in partitions for partitions in now.values())


def test_chains_of_moves_make_it_even() -> None:
    # "a" has too much, but only "b" reads the same topic; "b" can hand on to "c".
    members = {
        "a": reader("x", owned=of("x", 0, 1, 2), generation=1),
        "b": reader("x", "y", owned=of("y", 0, 1), generation=1),
        "c": reader("y", owned=[], generation=1),
    }
    assignments = assign_sticky({"x": 3, "y": 2}, members, owned_by_subscription(members))
    assert sorted(map(len, assignments.values())) == [1, 2, 2]


def test_what_is_gone_or_no_longer_read_is_not_kept() -> None:
    members = {
        "a": reader("x", owned=[*of("x", 0, 7), *of("y", 0), *of("gone", 0)], generation=1),
        "b": reader("x", "y", generation=1),
    }
    assignments = assign_sticky({"x": 2, "y": 1}, members, owned_by_subscription(members))
    check_whole({"x": 2, "y": 1}, members, assignments)
    assert ("x", 0) in assignments["a"]


def test_more_members_than_partitions() -> None:
    members = {f"m{n}": reader("t") for n in range(5)}
    for name in NAMES:
        assignments = assign(name, {"t": 3}, members)
        assert sorted(map(len, assignments.values())) == [0, 0, 1, 1, 1]
        assert assign(name, {"t": 3}, {"m": reader("other")}) == {"m": []}


def test_a_group_grows_and_shrinks_evenly_with_few_moves() -> None:
    chance = random.Random(seed_for("growing group"))
    members: dict[str, Subscription] = {}
    counts = {"x": 23, "y": 17}
    for generation in range(40):
        name = f"m{chance.randint(0, 15):02}"
        if name in members and len(members) > 1:
            del members[name]
        else:
            members[name] = reader("x", "y")
        owned = owned_by_subscription(members)
        assignments = assign_sticky(counts, members, owned)
        check_whole(counts, members, assignments)
        sizes = sorted(map(len, assignments.values()))
        assert sizes[-1] - sizes[0] <= 1
        for member, partitions in assignments.items():
            had = set(members[member].owned)
            # Nobody gives one away to get another.
            assert had <= set(partitions) or set(partitions) <= had
            members[member] = reader("x", "y", owned=partitions, generation=generation)


def test_sticky_members_with_unreadable_user_data_begin_from_nothing() -> None:
    members = {"a": reader("t"), "b": reader("t")}
    members["a"].user_data = b"\x7f\xff\xff\xff?"
    members["b"].user_data = bytes.fromhex("00000001000174000000010000000100000005")
    assert assign("sticky", {"t": 2}, members) == {"a": of("t", 0), "b": of("t", 1)}


def test_old_members_tell_their_generation_in_the_user_data() -> None:
    members = {
        "a": reader("t", owned=of("t", 1)),
        "b": reader("t", owned=of("t", 0), generation=7),
    }
    members["a"].user_data = (7).to_bytes(4, "big")
    assignments = assign_sticky({"t": 2}, members, owned_by_subscription(members))
    assert assignments == {"a": of("t", 1), "b": of("t", 0)}


def test_assignments_are_read_as_written() -> None:
    partitions = [*of("a", 0, 3), *of("b", 1)]
    assert decode_assignment(encode_assignment(reversed(partitions))).partitions == partitions
    assert decode_assignment(encode_assignment(partitions, b"?")).user_data == b"?"
    assert decode_assignment(b"").partitions == []


def test_bytes_that_are_none_are_refused() -> None:
    chance = random.Random(seed_for("member bytes"))
    whole = encode_subscription(
        Subscription(topics=["t", "u"], owned=of("t", 0, 1), generation=5, rack="r", user_data=b"x")
    )
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            decode_subscription(whole[:size])
    for _ in range(500):
        changed = bytearray(whole)
        changed[chance.randrange(len(changed))] = chance.choice((0, 1, 127, 128, 255))
        try:
            decode_subscription(bytes(changed))
            decode_assignment(bytes(changed))
        except MalformedRequest:
            continue


def test_the_first_versions_have_less() -> None:
    topics = b"\0\0\0\1\0\1t"
    for version, rest in ((0, b""), (1, bytes(4)), (2, bytes(4) + b"\0\0\0\5")):
        data = version.to_bytes(2, "big") + topics + b"\xff\xff\xff\xff" + rest
        subscription = decode_subscription(data)
        assert list(subscription.topics) == ["t"]
        assert subscription.generation == (5 if version == 2 else -1)


def test_names_are_kafkas() -> None:
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    chosen = assignors_named(["range", java])
    assert [assignor.name for assignor in chosen] == ["range", "cooperative-sticky"]
    assert not are_cooperative(chosen)
    assert are_cooperative(assignors_named(["cooperative-sticky"]))
    for wrong in (["rnge"], [], ["range", "RangeAssignor"]):
        with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy"):
            assignors_named(wrong)
