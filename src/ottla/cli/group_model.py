"""Plain values about consumer groups, between the commands and the client underneath."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ottla.base.ids import TopicPartition

EMPTY = "Empty"
DEAD = "Dead"
# Two of the classic protocol, two of the consumer protocol, one of Kafka's Streams groups.
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady")
STATES = (EMPTY, "Stable", *REBALANCING, DEAD)


class GroupProtocol(StrEnum):
    """`consumer`: the one of KIP-848, where the coordinator assigns."""

    classic = "classic"
    consumer = "consumer"


@dataclass(slots=True)
class GroupSummary:
    """`simple`: has commits, never had a member."""

    group: str
    state: str
    protocol: str
    simple: bool


@dataclass(slots=True)
class GroupMember:
    """`target`: what a KIP-848 group wants it to have; None in classic groups, which have none."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]
    target: list[TopicPartition] | None


@dataclass(slots=True)
class GroupDetail:
    group: str
    state: str
    protocol: str
    assignor: str | None
    coordinator: int
    members: list[GroupMember]


@dataclass(slots=True)
class Membership:
    """How to be a member.

    `protocol` None: the library's choice, or that of --command-config. `start`: `beginning` or
    `end`, where the group has committed nothing.
    """

    group: str
    protocol: GroupProtocol | None = None
    instance_id: str | None = None
    start: str = "beginning"


class CommitOvertaken(Exception):
    """The group was rebalancing, or had given the partitions to others, so it took no commit."""


class AssignmentListener(Protocol):
    """Hears, while it reads, which partitions come and go."""

    def on_assigned(self, partitions: list[TopicPartition]) -> None: ...

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        """Still ours until this returns: the last moment to commit."""

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        """Already somebody else's."""
