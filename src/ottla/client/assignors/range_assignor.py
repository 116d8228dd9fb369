"""`range`: of each topic, members get neighbouring partitions, the first ones one more if it does
not come out even. Partitions of the same number of all topics end up with the same member."""

from __future__ import annotations

from ottla.client.assignors.member_bytes import (
    Assignments,
    Members,
    PartitionCounts,
    Subscription,
)


def assign_ranges(counts: PartitionCounts, members: Members) -> Assignments:
    assignments: Assignments = {member: [] for member in members}
    for topic in sorted(counts):
        readers = [member for member in in_order(members) if topic in members[member].topics]
        if not readers:
            continue
        each, rest = divmod(counts[topic], len(readers))
        first = 0
        for place, member in enumerate(readers):
            end = first + each + (place < rest)
            assignments[member] += [(topic, partition) for partition in range(first, end)]
            first = end
    return assignments


def in_order(members: Members) -> list[str]:
    """Static members first, by their own names, so that a restart changes nothing."""

    def place(member: str) -> tuple[bool, str]:
        subscription: Subscription = members[member]
        name = subscription.instance_id
        return (name is None, member if name is None else name)

    return sorted(members, key=place)
