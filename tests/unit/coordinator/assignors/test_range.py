"""Goal: each topic falls into runs of neighbours, alike for topics that are alike.
Method: directed cases, and the rules that hold for every group.
"""

from __future__ import annotations

import uuid

from hypothesis import given

from ottla.coordinator.assignors.model import MemberSpec, TopicSpec
from ottla.coordinator.assignors.range import assign_range
from tests.unit.coordinator.assignors.members import (
    check_complete,
    groups,
    member,
    topic_id,
    topics_of,
)


def test_runs_and_the_first_ones_are_longer() -> None:
    members = [member(name, [0]) for name in ("c", "a", "b")]
    assigned = assign_range(members, topics_of(8))
    assert [sorted(assigned[name][topic_id(0)]) for name in "abc"] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7],
    ]


def test_topics_of_one_size_fall_apart_alike() -> None:
    members = [member(name, [0, 1]) for name in "abc"]
    assigned = assign_range(members, topics_of(7, 7))
    for held in assigned.values():
        assert held[topic_id(0)] == held[topic_id(1)]


def test_static_members_come_first_by_their_instance() -> None:
    members = [
        member("a", [0]),
        member("z", [0], instance="i2"),
        member("y", [0], instance="i1"),
    ]
    assigned = assign_range(members, topics_of(3))
    assert [assigned[name][topic_id(0)] for name in "yza"] == [{0}, {1}, {2}]


def test_who_comes_too_late_gets_nothing() -> None:
    members = [member(name, [0]) for name in "abc"]
    assert assign_range(members, topics_of(2))["c"] == {}


def test_only_subscribers_count() -> None:
    members = [member("a", [0]), member("b", [0, 1]), member("c", [1])]
    assigned = assign_range(members, topics_of(4, 2))
    assert assigned == {
        "a": {topic_id(0): {0, 1}},
        "b": {topic_id(0): {2, 3}, topic_id(1): {0}},
        "c": {topic_id(1): {1}},
    }


def test_nobody() -> None:
    assert assign_range([], {}) == {}


@given(groups(mixed=True))
def test_every_group(group: tuple[list[MemberSpec], dict[uuid.UUID, TopicSpec]]) -> None:
    members, topics = group
    assigned = assign_range(members, topics)
    check_complete(members, topics, assigned)
    for held in assigned.values():
        for indexes in held.values():
            assert max(indexes) - min(indexes) == len(indexes) - 1
    for one in topics:
        shares = [len(assigned[m.member_id].get(one, ())) for m in members if one in m.topic_ids]
        assert not shares or max(shares) - min(shares) <= 1
