"""Members and topics for the tests of assignors, and what every assignment has to fulfil."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from hypothesis import strategies as st

from ottla.coordinator.assignors.model import Assigned, MemberSpec, Topics, TopicSpec
from ottla.coordinator.consumer_records import Partitions

Place = tuple[uuid.UUID, int]


def topic_id(number: int) -> uuid.UUID:
    return uuid.UUID(int=number + 1)


def topics_of(*counts: int, racks: Sequence[str] = ()) -> dict[uuid.UUID, TopicSpec]:
    """Topic n has counts[n] partitions; partition p has a replica in rack p modulo their number."""
    return {
        topic_id(number): TopicSpec(
            count,
            tuple(frozenset({racks[index % len(racks)]}) for index in range(count))
            if racks
            else (),
        )
        for number, count in enumerate(counts)
    }


def member(
    name: str,
    topics: Iterable[int],
    target: Partitions | None = None,
    *,
    instance: str | None = None,
    rack: str | None = None,
) -> MemberSpec:
    return MemberSpec(name, instance, rack, frozenset(map(topic_id, topics)), target or {})


def places(partitions: Partitions) -> set[Place]:
    return {(one, index) for one, indexes in partitions.items() for index in indexes}


def sizes(assigned: Assigned) -> list[int]:
    return sorted(len(places(held)) for held in assigned.values())


def check_complete(members: Sequence[MemberSpec], topics: Topics, assigned: Assigned) -> None:
    """Everybody is told; each partition that anybody wants has one owner, who wants it."""
    assert assigned.keys() == {one.member_id for one in members}
    owners: dict[Place, str] = {}
    for one in members:
        for place in places(assigned[one.member_id]):
            assert place[0] in one.topic_ids, "nobody gets what it does not subscribe to"
            assert place not in owners, "no partition has two owners"
            owners[place] = one.member_id
        assert all(assigned[one.member_id].values()), "a topic without partitions is not told"
    wanted = {
        (one, index)
        for one in {each for spec in members for each in spec.topic_ids}
        for index in range(topics[one].partition_count)
    }
    assert owners.keys() == wanted


def after(members: Sequence[MemberSpec], assigned: Mapping[str, Partitions]) -> list[MemberSpec]:
    """The members with what they were assigned as their targets."""
    return [one._replace(target=assigned.get(one.member_id, {})) for one in members]


@st.composite
def groups(draw: st.DrawFn, *, mixed: bool) -> tuple[list[MemberSpec], dict[uuid.UUID, TopicSpec]]:
    """Members that may have had anything before, also what is gone or was somebody else's too."""
    racks = draw(st.sampled_from([(), ("r1", "r2"), ("r1", "r2", "r3")]))
    counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    topics = topics_of(*counts, racks=racks)
    everything = list(range(len(counts)))
    shared = draw(st.lists(st.sampled_from(everything), unique=True))
    members = []
    for number in range(draw(st.integers(1, 8))):
        wanted = draw(st.lists(st.sampled_from(everything), unique=True)) if mixed else shared
        had = draw(
            st.dictionaries(
                st.sampled_from([*map(topic_id, everything), topic_id(99)]),
                st.frozensets(st.integers(0, 14), min_size=1, max_size=8),
                max_size=3,
            )
        )
        rack = draw(st.sampled_from([None, *racks])) if racks else None
        instance = draw(st.none() | st.just(f"i{number}"))
        members.append(member(f"m{number}", wanted, had, instance=instance, rack=rack))
    return members, topics
