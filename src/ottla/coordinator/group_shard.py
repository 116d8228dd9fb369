"""The groups and committed offsets of one partition of `__consumer_offsets`.

Owns the choice of who answers: each decision is named after its API and goes to the part that knows
it. A decision takes the request as the codec decoded it (attributes under the names of the message
schemas) and who sent it, and its response is the fields of the newest version; what older versions
call differently is for the handler.

`replay` is the one door into what the log holds: live, after each append, and while loading.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ottla.base.ports import Clock
from ottla.coordinator import offsets_records as formats
from ottla.coordinator.classic_group import ClassicGroup
from ottla.coordinator.classic_groups import ClassicGroups
from ottla.coordinator.cluster_view import ClusterView
from ottla.coordinator.consumer_groups import ConsumerGroups
from ottla.coordinator.group import CLASSIC, CONSUMER, Group
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.offset_commits import OffsetCommits
from ottla.coordinator.offsets import CommittedOffsets
from ottla.coordinator.shard import Caller, Fields, Outcome, Record, ShardTimers


class GroupShard:
    def __init__(
        self,
        *,
        config: GroupConfig,
        timers: ShardTimers,
        clock: Clock,
        new_uuid: Callable[[], uuid.UUID],
        image: ClusterView,
    ) -> None:
        self.offsets = CommittedOffsets()
        self.context = GroupContext(
            config=config,
            timers=timers,
            clock=clock,
            new_uuid=new_uuid,
            image=image,
            offsets=self.offsets,
        )
        self.groups: dict[str, Group] = self.context.groups
        self.classic = ClassicGroups(self.context)
        self.consumer = ConsumerGroups(self.context, self.classic)
        self.commits = OffsetCommits(self.context)

    # -- decisions: members -----------------------------------------------------------------

    def join_group(self, request: Any, caller: Caller) -> Outcome[Fields]: ...
    def sync_group(self, request: Any, caller: Caller) -> Outcome[Fields]: ...
    def heartbeat(self, request: Any, caller: Caller) -> Outcome[Fields]: ...
    def leave_group(self, request: Any, caller: Caller) -> Outcome[Fields]: ...
    def consumer_heartbeat(self, request: Any, caller: Caller) -> Outcome[Fields]: ...

    # -- decisions: offsets -----------------------------------------------------------------

    def commit_offsets(self, request: Any, caller: Caller) -> Outcome[Fields]: ...
    def delete_offsets(self, request: Any) -> Outcome[Fields]: ...
    def delete_groups(self, group_ids: Sequence[str]) -> Outcome[list[Fields]]: ...

    # -- looks: nothing is decided ----------------------------------------------------------

    def fetch_offsets(self, group: Any, caller: Caller, *, require_stable: bool) -> Fields: ...
    def describe_groups(self, group_ids: Sequence[str], caller: Caller) -> list[Fields]: ...
    def describe_consumer_groups(self, group_ids: Sequence[str]) -> list[Fields]: ...
    def list_groups(self, states: Collection[str], kinds: Collection[str]) -> list[Fields]: ...

    # -- state ------------------------------------------------------------------------------

    def replay(self, record: Record, offset: int = -1, producer_id: int = -1) -> None: ...
    def replay_marker(self, producer_id: int, *, committed: bool) -> None: ...
    def on_loaded(self) -> Outcome[None]: ...
    def on_tick(self) -> Outcome[None]: ...
    def on_image(self, image: ClusterView) -> Outcome[None]: ...
    def on_config(self, config: GroupConfig) -> None: ...
    def unload(self) -> None: ...
