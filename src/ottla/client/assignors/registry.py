"""The assignors by the names of `partition.assignment.strategy`, and what each tells the others.

Java's class names mean the same, so that its configurations can be taken over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ottla.base.errors import ConfigError, MalformedRequest
from ottla.base.ids import TopicPartition
from ottla.client.assignors.member_bytes import (
    NO_GENERATION,
    Assignments,
    Members,
    PartitionCounts,
    Reader,
    encode_partitions,
)
from ottla.client.assignors.range_assignor import assign_ranges
from ottla.client.assignors.round_robin import assign_in_turn
from ottla.client.assignors.sticky import (
    Owned,
    assign_cooperative,
    assign_sticky,
    owned_by_subscription,
)

_INT32 = struct.Struct(">i")
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."


class Assign(Protocol):
    def __call__(self, counts: PartitionCounts, members: Members) -> Assignments: ...


class UserData(Protocol):
    def __call__(self, generation: int, last: Sequence[TopicPartition]) -> bytes | None: ...


class Assignor(NamedTuple):
    name: str
    is_cooperative: bool
    """Whether its members keep their partitions while they join."""
    assign: Assign
    user_data: UserData
    """Of a member that had `last` in this generation."""


def _no_user_data(generation: int, last: Sequence[TopicPartition]) -> None:
    return None


# -- sticky, which gives up everything before it joins and says in its user data what that was -----


def _sticky_user_data(generation: int, last: Sequence[TopicPartition]) -> bytes | None:
    if generation == NO_GENERATION:
        return None
    return encode_partitions(last) + _INT32.pack(generation)


def _owned_by_user_data(members: Members) -> Owned:
    owned: Owned = {}
    for member, subscription in members.items():
        partitions: list[TopicPartition] = []
        generation = NO_GENERATION
        if subscription.user_data:
            try:
                reader = Reader(subscription.user_data)
                partitions = reader.partitions()
                if reader.left() >= _INT32.size:  # the first version of it had none
                    generation = reader.int32()
            except MalformedRequest:
                # Another kind of client: its members begin from nothing, as Java's do then.
                partitions = []
        owned[member] = (partitions, generation)
    return owned


def _assign_sticky(counts: PartitionCounts, members: Members) -> Assignments:
    return assign_sticky(counts, members, _owned_by_user_data(members))


# -- cooperative-sticky ---------------------------------------------------------------------------


def _generation_user_data(generation: int, last: Sequence[TopicPartition]) -> bytes | None:
    return _INT32.pack(generation)


def _assign_cooperative(counts: PartitionCounts, members: Members) -> Assignments:
    return assign_cooperative(counts, members, owned_by_subscription(members))


_ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", False, assign_ranges, _no_user_data),
        Assignor("roundrobin", False, assign_in_turn, _no_user_data),
        Assignor("sticky", False, _assign_sticky, _sticky_user_data),
        Assignor("cooperative-sticky", True, _assign_cooperative, _generation_user_data),
    )
}
_JAVA_NAMES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def assignors_named(names: Iterable[str]) -> list[Assignor]:
    """In this order of preference. All of them must be willing to keep partitions while joining,
    or nobody does: a member that knows an eager one gives up everything, as Java's does."""
    chosen = []
    for name in names:
        short = name.strip().removeprefix(_JAVA_PACKAGE)
        assignor = _ASSIGNORS.get(_JAVA_NAMES.get(short, short))
        if assignor is None:
            known = ", ".join(_ASSIGNORS)
            raise ConfigError(f"partition.assignment.strategy: no {name!r}; there are {known}")
        if assignor in chosen:
            raise ConfigError(f"partition.assignment.strategy names {assignor.name} twice")
        chosen.append(assignor)
    if not chosen:
        raise ConfigError("partition.assignment.strategy names no assignor")
    return chosen


def are_cooperative(assignors: Sequence[Assignor]) -> bool:
    return all(assignor.is_cooperative for assignor in assignors)
