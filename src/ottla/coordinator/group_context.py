"""What the parts of a group shard share: the groups, the offsets, and the ports to the world."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.ports import Clock
from ottla.coordinator.cluster_view import ClusterView
from ottla.coordinator.group import Group
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.member_memory import MemberMemory
from ottla.coordinator.shard import ShardTimers

if TYPE_CHECKING:
    from ottla.coordinator.offsets import CommittedOffsets


class GroupContext:
    """`clock.monotonic_ms()` is for time-outs, `clock.wall_ms()` for what is written in records."""

    __slots__ = ("clock", "config", "groups", "image", "memory", "new_uuid", "offsets", "timers")

    def __init__(
        self,
        *,
        config: GroupConfig,
        timers: ShardTimers,
        clock: Clock,
        new_uuid: Callable[[], uuid.UUID],
        image: ClusterView,
        offsets: CommittedOffsets,
        memory: MemberMemory,
    ) -> None:
        self.config = config
        self.timers = timers
        self.clock = clock
        self.new_uuid = new_uuid
        self.image = image
        self.groups: dict[str, Group] = {}
        self.offsets = offsets
        self.memory = memory
