"""The range assignor: of every topic each subscriber gets one run of neighbouring partitions.

Members are in one order for all topics, those with an instance id first, so that topics with the
same number of partitions and the same subscribers fall apart alike (co-partitioning). What a member
had before plays no part, nor do racks (Kafka 4.3 does not look at them here either).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from ottla.coordinator.assignors.model import Assigned, MemberSpec, Topics


def assign_range(members: Sequence[MemberSpec], topics: Topics) -> Assigned:
    ordered = sorted(members, key=_place)
    subscribers: dict[uuid.UUID, list[str]] = {}
    for member in ordered:
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    assigned: dict[str, dict[uuid.UUID, frozenset[int]]] = {one.member_id: {} for one in ordered}
    for topic_id, member_ids in subscribers.items():
        size, longer = divmod(topics[topic_id].partition_count, len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + size + (index < longer)
            if end == start:
                break  # more members than partitions
            assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _place(member: MemberSpec) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id
