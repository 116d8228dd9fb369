"""Goal: balance first, then staying, then nearness; in groups of one subscription and of many.
Method: directed cases, and the rules that hold for every group, also for odd targets.
"""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given

from ottla.coordinator.assignors import ASSIGNORS, known_assignors
from ottla.coordinator.assignors.model import Assigned, MemberSpec, TopicSpec, is_near
from ottla.coordinator.assignors.uniform import assign_uniform
from ottla.coordinator.assignors.uniform_mixed import assign_mixed
from tests.unit.coordinator.assignors.members import (
    after,
    check_complete,
    groups,
    member,
    places,
    sizes,
    topic_id,
    topics_of,
)

Group = tuple[list[MemberSpec], dict[uuid.UUID, TopicSpec]]


def kept(before: list[MemberSpec], assigned: Assigned) -> int:
    return sum(len(places(one.target) & places(assigned[one.member_id])) for one in before)


# -- one subscription for all ---------------------------------------------------------------------


def test_the_first_gets_everything() -> None:
    assigned = assign_uniform([member("a", [0, 1])], topics_of(4, 1))
    assert assigned == {"a": {topic_id(0): {0, 1, 2, 3}, topic_id(1): {0}}}


def test_who_comes_gets_its_share_and_the_others_keep_the_rest() -> None:
    topics = topics_of(6)
    members = [member("a", [0])]
    for name, expected in (("b", [3, 3]), ("c", [2, 2, 2]), ("d", [1, 1, 2, 2])):
        assigned = assign_uniform(members, topics)
        members = after(members, assigned)
        members.append(member(name, [0]))
        new = assign_uniform(members, topics)
        assert sizes(new) == expected
        assert kept(members, new) == 6 - len(places(new[name])), "only what is needed moves"


def test_who_goes_leaves_its_share_to_the_others() -> None:
    topics = topics_of(6)
    members = [member(name, [0]) for name in "abc"]
    members = after(members, assign_uniform(members, topics))[1:]
    new = assign_uniform(members, topics)
    assert sizes(new) == [3, 3]
    assert kept(members, new) == 4


def test_the_extra_partition_stays_where_it_is() -> None:
    """Whoever has one more than the others keeps it, wherever it stands among the members."""
    topics = topics_of(4)
    held = {"a": {0}, "b": {1}, "c": {2, 3}}
    members = [member(n, [0], {topic_id(0): frozenset(i)}) for n, i in held.items()]
    assert assign_uniform(members, topics) == {n: {topic_id(0): i} for n, i in held.items()}


def test_topics_that_are_gone_are_taken_back() -> None:
    members = [member("a", [0], {topic_id(5): frozenset({0, 1}), topic_id(0): frozenset({1})})]
    assert assign_uniform(members, topics_of(2)) == {"a": {topic_id(0): {0, 1}}}


def test_more_members_than_partitions() -> None:
    members = [member(name, [0]) for name in "abcd"]
    assert sizes(assign_uniform(members, topics_of(2))) == [0, 0, 1, 1]


def test_nobody_and_nothing() -> None:
    assert assign_uniform([], {}) == {}
    assert assign_uniform([member("a", [])], {}) == {"a": {}}


@given(groups(mixed=False))
def test_every_group_of_one_subscription(group: Group) -> None:
    members, topics = group
    assigned = assign_uniform(members, topics)
    check_complete(members, topics, assigned)
    counts = sizes(assigned)
    assert counts[-1] - counts[0] <= 1
    # A second time nothing moves.
    assert assign_uniform(after(members, assigned), topics) == assigned


@given(groups(mixed=False))
def test_nobody_gives_up_what_it_may_keep(group: Group) -> None:
    members, topics = group
    members = after(members, assign_uniform(members, topics))
    assigned = assign_uniform([*members, members[0]._replace(member_id="new", target={})], topics)
    fair = sum(len(places(held)) for held in assigned.values()) // (len(members) + 1)
    for one in members:
        had, has = places(one.target), places(assigned[one.member_id])
        if had - has:
            assert has <= had, "it cannot give up one and get another"
            assert len(has) >= fair


# -- racks ----------------------------------------------------------------------------------------


def near_count(members: list[MemberSpec], topics: dict[uuid.UUID, TopicSpec], mixed: bool) -> int:
    assigned = (assign_mixed if mixed else assign_uniform)(members, topics)
    check_complete(members, topics, assigned)
    return sum(
        is_near(topics[one], index, spec.rack_id)
        for spec in members
        for one, index in places(assigned[spec.member_id])
    )


@pytest.mark.parametrize("mixed", [False, True])
def test_everybody_reads_in_its_own_rack(mixed: bool) -> None:
    topics = topics_of(6, 6, racks=("r1", "r2", "r3"))
    members = [
        member(name, [0, 1], rack=rack) for name, rack in (("a", "r3"), ("b", "r1"), ("c", "r2"))
    ]
    assert near_count(members, topics, mixed) == 12


def test_a_rack_that_is_too_small_shares_with_the_others() -> None:
    topics = topics_of(8, racks=("r1", "r2"))
    members = [member("a", [0], rack="r1"), member("b", [0], rack="r1")]
    members += [member("c", [0], rack="r2"), member("d", [0])]
    assert near_count(members, topics, mixed=False) == 6


def test_what_only_one_rack_can_take_goes_there_first() -> None:
    everywhere, only_z = frozenset({"ra", "rz"}), frozenset({"rz"})
    topics = {topic_id(0): TopicSpec(2, (everywhere, only_z))}
    members = [member("a", [0], rack="ra"), member("z", [0], rack="rz")]
    assert near_count(members, topics, mixed=False) == 2


def test_what_is_far_is_given_up_first() -> None:
    topics = topics_of(4, racks=("r1", "r2"))
    everything = {topic_id(0): frozenset(range(4))}
    members = [member("a", [0], everything, rack="r2"), member("b", [0], rack="r1")]
    assert assign_uniform(members, topics) == {
        "a": {topic_id(0): {1, 3}},
        "b": {topic_id(0): {0, 2}},
    }


def test_nearness_moves_nothing() -> None:
    topics = topics_of(2, racks=("r1", "r2"))
    members = [
        member("a", [0], {topic_id(0): frozenset({0})}, rack="r2"),
        member("b", [0], {topic_id(0): frozenset({1})}, rack="r1"),
    ]
    assert near_count(members, topics, mixed=False) == 0


# -- different subscriptions ----------------------------------------------------------------------


def test_who_can_read_less_gets_more_of_that() -> None:
    members = [member("a", [0]), member("b", [0, 1])]
    assigned = assign_uniform(members, topics_of(4, 2))
    check_complete(members, topics_of(4, 2), assigned)
    assert sizes(assigned) == [3, 3]
    assert len(assigned["a"][topic_id(0)]) == 3


def test_a_new_subscriber_takes_from_who_has_most() -> None:
    topics = topics_of(4, 4)
    members = [
        member("a", [0], {topic_id(0): frozenset(range(4))}),
        member("b", [1], {topic_id(1): frozenset(range(4))}),
        member("c", [0, 1]),
    ]
    assigned = assign_uniform(members, topics)
    check_complete(members, topics, assigned)
    assert sizes(assigned) == [2, 3, 3]
    assert kept(members, assigned) >= 5


def test_what_cannot_be_balanced_stays() -> None:
    members = [member("a", [0]), member("b", [1])]
    assigned = assign_uniform(members, topics_of(6, 1))
    assert sizes(assigned) == [1, 6]


@given(groups(mixed=True))
def test_every_group_of_many_subscriptions(group: Group) -> None:
    members, topics = group
    assigned = assign_mixed(members, topics)
    check_complete(members, topics, assigned)
    for one in members:
        for other in members:
            if one.topic_ids == other.topic_ids:
                has, others = places(assigned[one.member_id]), places(assigned[other.member_id])
                assert abs(len(has) - len(others)) <= 1
    again = assign_mixed(after(members, assigned), topics)
    assert again == assigned


@given(groups(mixed=True))
def test_nobody_takes_from_who_has_less(group: Group) -> None:
    """Of each topic, no owner has two more than any subscriber: else one should have moved."""
    members, topics = group
    assigned = assign_mixed(members, topics)
    loads = {one.member_id: len(places(assigned[one.member_id])) for one in members}
    for one in topics:
        owners = [m.member_id for m in members if one in assigned[m.member_id]]
        takers = [m.member_id for m in members if one in m.topic_ids]
        for owner in owners:
            assert loads[owner] - min(loads[taker] for taker in takers) <= 1


# -- names ----------------------------------------------------------------------------------------


def test_assignors_by_name() -> None:
    package = "org.apache.kafka.coordinator.group.assignor."
    assert list(ASSIGNORS) == ["uniform", "range"]
    assert known_assignors(("range", "uniform")) == ["range", "uniform"]
    assert known_assignors((f"{package}RangeAssignor",)) == ["range"]
    assert known_assignors((f"{package}UniformAssignor", "org.example.Mine")) == ["uniform"]
    assert known_assignors(("org.example.Mine",)) == ["uniform", "range"]
