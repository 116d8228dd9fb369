"""The uniform assignor where members subscribe to different topics.

Topics with the most partitions a subscriber are handed out first, each partition to the subscriber
that has least. Then partitions move, topic by topic, from who has most to who has least, as long as
that makes a difference of more than one smaller. With subscriptions that overlap in odd ways the
result may be off by some; it is never off for members with the same subscription.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Sequence

from ottla.coordinator.assignors.model import Assigned, MemberSpec, Topics, TopicSpec

# Each round about halves what is out of balance; most cases need one.
ROUNDS_MAX = 16

NOBODY = -1


def assign_mixed(members: Sequence[MemberSpec], topics: Topics) -> Assigned:
    sharing = _Sharing(members, topics)
    sharing.keep()
    for topic_id in sharing.order:
        sharing.hand_out(topic_id)
    for _ in range(ROUNDS_MAX):
        moved = [sharing.balance(topic_id) for topic_id in sharing.order]
        if not any(moved):
            break
    return sharing.result()


class _Sharing:
    """Members go by their index. `owners` has one for each partition of each topic."""

    def __init__(self, members: Sequence[MemberSpec], topics: Topics) -> None:
        self.members = members
        self.topics = topics
        self.loads = [0] * len(members)
        self.subscribers: dict[uuid.UUID, list[int]] = {}
        for index, member in enumerate(members):
            for topic_id in member.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(index)
        self.owners = {
            topic_id: [NOBODY] * topics[topic_id].partition_count for topic_id in self.subscribers
        }
        self.order = sorted(self.subscribers, key=self._urgency)

    def _urgency(self, topic_id: uuid.UUID) -> tuple[float, int, uuid.UUID]:
        count = len(self.subscribers[topic_id])
        return -self.topics[topic_id].partition_count / count, count, topic_id

    def keep(self) -> None:
        for index, member in enumerate(self.members):
            for topic_id, held in member.target.items():
                if topic_id not in member.topic_ids:
                    continue
                owners = self.owners[topic_id]
                for partition in held:
                    if partition < len(owners) and owners[partition] == NOBODY:
                        owners[partition] = index
                        self.loads[index] += 1

    def hand_out(self, topic_id: uuid.UUID) -> None:
        owners = self.owners[topic_id]
        queue = _LeastLoaded(self.loads, self.members, self.subscribers[topic_id])
        for partition, owner in enumerate(owners):
            if owner == NOBODY:
                owners[partition] = queue.take_for(self.topics[topic_id], partition)

    def balance(self, topic_id: uuid.UUID) -> bool:
        """Moves partitions of one topic; whether any moved."""
        subscribers, loads = self.subscribers[topic_id], self.loads
        levels = [loads[one] for one in subscribers]
        if max(levels) - min(levels) <= 1:
            return False
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            held.setdefault(owner, []).append(partition)
        givers = [(-loads[owner], owner) for owner in held]
        takers = [(loads[one], one) for one in subscribers]
        heapq.heapify(givers)
        heapq.heapify(takers)
        moved = False
        while givers:
            load, giver = givers[0]
            if -load != loads[giver] or not held[giver]:
                _renew(givers, (-loads[giver], giver), is_over=not held[giver])
                continue
            least, taker = takers[0]
            if least != loads[taker]:
                heapq.heapreplace(takers, (loads[taker], taker))
                continue
            if loads[giver] - loads[taker] <= 1:
                break
            partition = held[giver].pop()
            self.owners[topic_id][partition] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moved = True
        return moved

    def result(self) -> Assigned:
        found: list[dict[uuid.UUID, list[int]]] = [{} for _ in self.members]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                found[owner].setdefault(topic_id, []).append(partition)
        return {
            member.member_id: {topic_id: frozenset(held) for topic_id, held in of_topics.items()}
            for member, of_topics in zip(self.members, found, strict=True)
        }


def _renew(heap: list[tuple[int, int]], entry: tuple[int, int], *, is_over: bool) -> None:
    """The first entry is out of date: as it is now, or gone for good."""
    if is_over:
        heapq.heappop(heap)
    else:
        heapq.heapreplace(heap, entry)


class _LeastLoaded:
    """Who has least, of all and of each rack. Entries grow stale and are renewed when they show."""

    def __init__(
        self, loads: list[int], members: Sequence[MemberSpec], subscribers: Sequence[int]
    ) -> None:
        self._loads = loads
        self._all = [(loads[one], one) for one in subscribers]
        heapq.heapify(self._all)
        self._of_rack: dict[str, list[tuple[int, int]]] = {}
        for one in subscribers:
            rack_id = members[one].rack_id
            if rack_id is not None:
                self._of_rack.setdefault(rack_id, []).append((loads[one], one))
        for heap in self._of_rack.values():
            heapq.heapify(heap)

    def take_for(self, spec: TopicSpec, partition: int) -> int:
        """The member that gets the partition; a near one if it has no more than the others."""
        taker = self._least(self._all)
        if self._of_rack and spec.racks:
            for rack_id in sorted(spec.racks[partition] & self._of_rack.keys()):
                near = self._least(self._of_rack[rack_id])
                if self._loads[near] == self._loads[taker]:
                    taker = near
                    break
        self._loads[taker] += 1
        return taker

    def _least(self, heap: list[tuple[int, int]]) -> int:
        load, member = heap[0]
        while load != self._loads[member]:
            heapq.heapreplace(heap, (self._loads[member], member))
            load, member = heap[0]
        return member
