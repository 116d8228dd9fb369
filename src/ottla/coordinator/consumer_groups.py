"""The groups of KIP-848: the part of a group shard that answers their heartbeats.

It also answers classic members that speak to a consumer group (online migration).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.coordinator.cluster_view import ClusterView
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.shard import NOTHING, Caller, Fields, Outcome, Record
from ottla.protocol.error_codes import GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION

if TYPE_CHECKING:
    from ottla.coordinator.classic_groups import ClassicGroups


class ConsumerGroups:
    def __init__(self, context: GroupContext, classic: ClassicGroups) -> None:
        self._context = context
        self._classic = classic

    # -- members of the consumer protocol ---------------------------------------------------

    def heartbeat(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return Outcome((), {"error_code": UNSUPPORTED_VERSION})

    def describe(self, group_ids: Sequence[str]) -> list[Fields]:
        return [{"error_code": GROUP_ID_NOT_FOUND, "group_id": one} for one in group_ids]

    # -- classic members of a consumer group that is not empty ------------------------------

    def join_classic(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return Outcome((), {"error_code": UNKNOWN_MEMBER_ID})

    def sync_classic(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return Outcome((), {"error_code": UNKNOWN_MEMBER_ID})

    def heartbeat_classic(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return Outcome((), {"error_code": UNKNOWN_MEMBER_ID})

    def leave_classic(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return Outcome((), {"error_code": UNKNOWN_MEMBER_ID})

    # -- state ------------------------------------------------------------------------------

    def replay(self, key_version: int, record: Record) -> None:
        """A record of KIP-848: `key_version` 3 to 8, or 16 for a resolved regular expression."""

    def on_loaded(self) -> Outcome[None]:
        return NOTHING

    def on_image(self, image: ClusterView) -> Outcome[None]:
        """`image` is the new one; the context still has the old."""
        return NOTHING

    def unload(self) -> None:
        """Nobody waits here."""
