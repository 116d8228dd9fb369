"""What classic groups and consumer groups have in common: what offsets and listings ask of them."""

from __future__ import annotations

from typing import Protocol

from ottla.coordinator.shard import Record

CLASSIC = "classic"
CONSUMER = "consumer"


class Group(Protocol):
    group_id: str
    kind: str
    """CLASSIC or CONSUMER: the group's type in ListGroups."""
    protocol_type: str
    """"consumer", or what Connect and others call theirs; "" for a group of commits only."""

    def state_name(self) -> str:
        """As ListGroups and the Describe APIs tell it: "Stable", "Empty", ..."""
        ...

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        api_version: int,
        *,
        transactional: bool,
    ) -> int:
        """The error code owed to a commit; `generation` is a member epoch in a consumer group."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> int:
        """The error code owed to an OffsetFetch (v9 and later name the member)."""
        ...

    def check_delete(self) -> int:
        """NON_EMPTY_GROUP, or 0 if DeleteGroups may remove it."""
        ...

    def check_offset_delete(self) -> int:
        """NON_EMPTY_GROUP where OffsetDelete needs an empty group, or 0."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Then its offsets neither expire nor can be deleted."""
        ...

    def expiry_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """Wall time from which a commit ages; None while the commits of the group do not age."""
        ...

    def may_vanish(self) -> bool:
        """Whether the group is to be forgotten once it has no offsets left."""
        ...

    def tombstones(self) -> list[Record]:
        """Records that take back everything the log says of the group but its offsets."""
        ...
