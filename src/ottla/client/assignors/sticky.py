"""`sticky` and `cooperative-sticky`: as even as the subscriptions allow, and of all such shares one
that moves little.

First everybody keeps what it had, then partitions without an owner go to whoever reads their topic
and has least. Then partitions move from those that have more to those that have less, along chains
if need be (from one member to a second, from that to a third), until no move makes it more even.
Partitions that nobody had before move first.

What members had, and when, comes with them. Of two that claim one partition the later generation
is right; of two of the same generation neither is, since one of them must be a zombie.
"""

from __future__ import annotations

from collections import deque

from ottla.base.ids import TopicPartition
from ottla.client.assignors.member_bytes import (
    NO_GENERATION,
    Assignments,
    Members,
    PartitionCounts,
    Subscription,
)

Owned = dict[str, tuple[list[TopicPartition], int]]
"""By member: what it had, and in which generation."""


def assign_sticky(counts: PartitionCounts, members: Members, owned: Owned) -> Assignments:
    if not members:
        return {}
    share = _Share(counts, members)
    share.keep(owned)
    share.hand_out()
    while share.move_one():
        pass
    return share.assignments()


def assign_cooperative(counts: PartitionCounts, members: Members, owned: Owned) -> Assignments:
    """As above, but nobody gets a partition that another member still holds: that one gives it up
    now, and the next round, which follows at once, hands it on."""
    assignments = assign_sticky(counts, members, owned)
    holders: dict[TopicPartition, set[str]] = {}
    for member, subscription in members.items():
        for partition in subscription.owned:
            holders.setdefault(partition, set()).add(member)
    return {
        member: [
            partition for partition in partitions if not holders.get(partition, set()) - {member}
        ]
        for member, partitions in assignments.items()
    }


class _Share:
    """Who has what, while it is being made even. Of each member and topic: what it kept, and what
    it was given now; the latter moves first."""

    def __init__(self, counts: PartitionCounts, members: Members) -> None:
        self._counts = counts
        self._topics = {member: set(members[member].topics) & set(counts) for member in members}
        self._readers = {
            topic: sorted(member for member in members if topic in self._topics[member])
            for topic in counts
        }
        self._loads = dict.fromkeys(sorted(members), 0)
        self._kept: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        self._given: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        self._owned: set[TopicPartition] = set()

    def assignments(self) -> Assignments:
        return {
            member: sorted(
                (topic, number)
                for held in (self._kept[member], self._given[member])
                for topic, numbers in held.items()
                for number in numbers
            )
            for member in self._loads
        }

    def keep(self, owned: Owned) -> None:
        best: dict[TopicPartition, tuple[int, str | None]] = {}
        for member in sorted(owned):
            partitions, generation = owned[member]
            for partition in sorted(set(partitions)):
                known = best.get(partition)
                if known is None or generation > known[0]:
                    best[partition] = (generation, member)
                elif generation == known[0]:
                    best[partition] = (generation, None)
        latest = max((generation for _, generation in owned.values()), default=NO_GENERATION)
        for (topic, number), (generation, owner) in best.items():
            # Who missed a generation may have lost its partitions in between.
            if owner is None or generation < latest or owner not in self._loads:
                continue
            if topic in self._topics[owner] and 0 <= number < self._counts[topic]:
                self._kept[owner].setdefault(topic, []).append(number)
                self._loads[owner] += 1
                self._owned.add((topic, number))

    def hand_out(self) -> None:
        """What nobody has; first what few can have."""
        for topic in sorted(self._counts, key=lambda topic: (len(self._readers[topic]), topic)):
            readers = self._readers[topic]
            if not readers:
                continue
            for number in range(self._counts[topic]):
                if (topic, number) not in self._owned:
                    self._give(topic, number, self._lightest(readers))

    def move_one(self) -> bool:
        """Moves one partition, or one along each link of a chain, from a member that has most to
        one that has at least two less; False if there is no such chain."""
        loads = self._loads
        lightest = min(loads.values())
        heavy = [member for member in loads if loads[member] - lightest >= 2]
        for member in sorted(heavy, key=lambda member: -loads[member]):
            chain = self._chain_from(member)
            if chain:
                for giver, topic, taker in chain:
                    self._move(giver, topic, taker)
                return True
        return False

    def _chain_from(self, first: str) -> list[tuple[str, str, str]]:
        """The shortest way by which `first` can become one lighter: giver, topic, taker."""
        wanted_load = self._loads[first] - 2
        came_from: dict[str, tuple[str, str] | None] = {first: None}
        waiting = deque([first])
        while waiting:
            giver = waiting.popleft()
            for topic in self._topics_to_give(giver):
                takers = [taker for taker in self._readers[topic] if taker not in came_from]
                came_from.update(dict.fromkeys(takers, (giver, topic)))
                if takers:
                    lightest = self._lightest(takers)
                    if self._loads[lightest] <= wanted_load:
                        return _way_to(lightest, came_from)
                waiting.extend(takers)
        return []

    def _topics_to_give(self, giver: str) -> list[str]:
        """Those of which it has something new before those of which it kept all."""
        given = sorted(topic for topic, numbers in self._given[giver].items() if numbers)
        kept = sorted(topic for topic, numbers in self._kept[giver].items() if numbers)
        return [*given, *(topic for topic in kept if topic not in given)]

    def _move(self, giver: str, topic: str, taker: str) -> None:
        numbers = self._given[giver].get(topic) or self._kept[giver][topic]
        self._loads[giver] -= 1
        self._give(topic, numbers.pop(), taker)

    def _give(self, topic: str, number: int, member: str) -> None:
        self._given[member].setdefault(topic, []).append(number)
        self._loads[member] += 1

    def _lightest(self, members: list[str]) -> str:
        """The first of those that have least."""
        return min(members, key=self._loads.__getitem__)


def _way_to(taker: str, came_from: dict[str, tuple[str, str] | None]) -> list[tuple[str, str, str]]:
    chain = []
    step = came_from[taker]
    while step is not None:
        giver, topic = step
        chain.append((giver, topic, taker))
        taker, step = giver, came_from[giver]
    return chain


def owned_by_subscription(members: Members) -> Owned:
    """Of members that keep their partitions while they join, as cooperative ones do."""
    return {
        member: (list(subscription.owned), _generation(subscription))
        for member, subscription in members.items()
    }


def _generation(subscription: Subscription) -> int:
    if subscription.generation != NO_GENERATION or len(subscription.user_data or b"") != 4:
        return subscription.generation
    # Before version 2 of the subscription, it stood in the user data.
    return int.from_bytes(subscription.user_data or b"", "big", signed=True)
