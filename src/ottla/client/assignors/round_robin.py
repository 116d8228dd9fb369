"""`roundrobin`: all partitions of all topics in order, one to each member in turn; members that do
not read a topic are passed over."""

from __future__ import annotations

from ottla.client.assignors.member_bytes import Assignments, Members, PartitionCounts
from ottla.client.assignors.range_assignor import in_order


def assign_in_turn(counts: PartitionCounts, members: Members) -> Assignments:
    assignments: Assignments = {member: [] for member in members}
    ring = in_order(members)
    turn = 0
    for topic in sorted(counts):
        if not any(topic in member.topics for member in members.values()):
            continue
        for partition in range(counts[topic]):
            while topic not in members[ring[turn % len(ring)]].topics:
                turn += 1
            assignments[ring[turn % len(ring)]].append((topic, partition))
            turn += 1
    return assignments
