"""The uniform assignor: everybody gets as many partitions as the others, give or take one.

Balance comes first, then staying (a member keeps what it was to have), then nearness: of what is
free, a member gets the partitions that have a replica in its rack, as far as that costs nothing of
the other two. (Kafka 4.3 knows the racks and does not use them; without racks the result is of the
same kind as Kafka's.)

This is the case in which all members subscribe to the same topics. The other is in `uniform_mixed`.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ottla.coordinator.assignors.model import Assigned, MemberSpec, Topics, TopicSpec, is_near
from ottla.coordinator.assignors.uniform_mixed import assign_mixed

Place = tuple[uuid.UUID, int]
Kept = dict[uuid.UUID, set[int]]


def assign_uniform(members: Sequence[MemberSpec], topics: Topics) -> Assigned:
    if not members:
        return {}
    first = members[0].topic_ids
    if all(member.topic_ids == first for member in members):
        return _assign_alike(members, {topic_id: topics[topic_id] for topic_id in sorted(first)})
    return assign_mixed(members, topics)


def _assign_alike(members: Sequence[MemberSpec], topics: Topics) -> Assigned:
    total = sum(spec.partition_count for spec in topics.values())
    quota, longer = divmod(total, len(members))
    free = {topic_id: set(range(spec.partition_count)) for topic_id, spec in topics.items()}
    kept_by: dict[str, Kept] = {}
    room: dict[str, int] = {}
    for index, member in enumerate(members):
        # Whoever can use the extra partition takes it; the last ones have to.
        most = quota + (longer > 0)
        kept, count = _keep(member, topics, free, most)
        if longer > 0:
            if count == most or len(members) - index <= longer:
                longer -= 1
            else:
                most -= 1
        kept_by[member.member_id] = kept
        if count < most:
            room[member.member_id] = most - count
    _hand_out(members, topics, free, kept_by, room)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in kept.items() if indexes}
        for member_id, kept in kept_by.items()
    }


def _keep(
    member: MemberSpec, topics: Topics, free: dict[uuid.UUID, set[int]], most: int
) -> tuple[Kept, int]:
    """What stays with it, at most `most`; taken from `free`."""
    kept: Kept = {}
    count = 0
    for topic_id, held in member.target.items():
        spec = topics.get(topic_id)
        if spec is None:
            continue
        # Of two members that were to have the same, which cannot be, the first would keep it.
        staying = held & free[topic_id]
        if len(staying) > most - count:
            staying = frozenset(_nearest_first(staying, spec, member.rack_id)[: most - count])
        if staying:
            kept[topic_id] = set(staying)
            free[topic_id] -= staying
            count += len(staying)
    return kept, count


def _nearest_first(indexes: Iterable[int], spec: TopicSpec, rack_id: str | None) -> list[int]:
    return sorted(indexes, key=lambda index: (not is_near(spec, index, rack_id), index))


def _hand_out(
    members: Sequence[MemberSpec],
    topics: Topics,
    free: dict[uuid.UUID, set[int]],
    kept_by: dict[str, Kept],
    room: dict[str, int],
) -> None:
    left = [(topic_id, index) for topic_id, held in free.items() for index in sorted(held)]
    in_rack: dict[str, list[str]] = defaultdict(list)
    for member in members:
        if member.rack_id is not None and member.member_id in room:
            in_rack[member.rack_id].append(member.member_id)
    if in_rack:
        left = _hand_out_near(left, topics, kept_by, room, in_rack)
    places = iter(left)
    for member_id, count in room.items():
        kept = kept_by[member_id]
        for _ in range(count):
            topic_id, index = next(places)
            kept.setdefault(topic_id, set()).add(index)


def _hand_out_near(
    places: list[Place],
    topics: Topics,
    kept_by: dict[str, Kept],
    room: dict[str, int],
    in_rack: dict[str, list[str]],
) -> list[Place]:
    """Gives what can be given within a rack; returns the rest.

    What few racks could take goes first, to the rack with most room: else it might be full already.
    """
    rack_room = {rack: sum(room[one] for one in member_ids) for rack, member_ids in in_rack.items()}

    def takers(place: Place) -> list[str]:
        racks = topics[place[0]].racks
        return [rack for rack in racks[place[1]] if rack in rack_room] if racks else []

    rest = []
    for place in sorted(places, key=lambda one: len(takers(one))):
        rack = max(takers(place), key=lambda one: (rack_room[one], one), default=None)
        if rack is None or rack_room[rack] == 0:
            rest.append(place)
            continue
        rack_room[rack] -= 1
        member_ids = in_rack[rack]
        while room[member_ids[-1]] == 0:
            member_ids.pop()
        member_id = member_ids[-1]
        room[member_id] -= 1
        kept_by[member_id].setdefault(place[0], set()).add(place[1])
    return rest
