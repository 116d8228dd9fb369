"""The time-outs of the members of consumer groups: what is set, moved and cancelled, and when.

A member of the consumer protocol has a session and, while it has to give partitions up, a rebalance
time-out. One of the classic protocol has a session of its own length, and has to join and to sync
in time once it was told to. What follows from a time-out is for others: they say so with `fence`.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.consumer_records import UNREVOKED
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.shard import NOTHING, Outcome

Fence = Callable[[ConsumerGroup, ConsumerMember, str], Outcome[None]]

# Settings of a group that take the place of the broker's.
_SESSION_CONFIG = "consumer.session.timeout.ms"
_HEARTBEAT_CONFIG = "consumer.heartbeat.interval.ms"
_INTERVAL_CONFIG = "consumer.assignment.interval.ms"
# What Java trims, and so was let pass when it was set.
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))


class ConsumerTimeouts:
    def __init__(self, context: GroupContext, fence: Fence) -> None:
        self._context = context
        self._fence = fence
        self._joins: set[str] = set()

    # -- settings ---------------------------------------------------------------------------

    def heartbeat_interval_ms(self, group_id: str) -> int:
        default = self._context.config.group_consumer_heartbeat_interval_ms
        return self._setting(group_id, _HEARTBEAT_CONFIG, default)

    def assignment_interval_ms(self, group_id: str) -> int:
        default = self._context.config.group_consumer_assignment_interval_ms
        return self._setting(group_id, _INTERVAL_CONFIG, default)

    def session_timeout_ms(self, group_id: str, member: ConsumerMember) -> int:
        if member.metadata.classic is not None:
            return member.metadata.classic.session_timeout_ms
        default = self._context.config.group_consumer_session_timeout_ms
        return self._setting(group_id, _SESSION_CONFIG, default)

    def _setting(self, group_id: str, name: str, default: int) -> int:
        """What cannot be taken (another version wrote it) counts as not set."""
        configs = self._context.image.group_configs.get(group_id)
        if configs is None or name not in configs:
            return default
        try:
            return int(configs[name].strip(_BLANKS))
        except ValueError:
            return default

    # -- sessions ---------------------------------------------------------------------------

    def touch(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """It was heard of: its session begins anew."""
        timeout_ms = self.session_timeout_ms(group.group_id, member)
        deadline_ms = self._context.clock.monotonic_ms() + timeout_ms
        member.deadline_ms = deadline_ms
        # A timer that looks too early arms itself again, so only an earlier end needs a new one.
        if member.timer_due_ms is None or deadline_ms < member.timer_due_ms:
            self._arm(group.group_id, member, timeout_ms)

    def _arm(self, group_id: str, member: ConsumerMember, delay_ms: int) -> None:
        member_id = member.member_id
        member.timer_due_ms = self._context.clock.monotonic_ms() + delay_ms
        self._context.timers.schedule(
            _key("session", group_id, member_id),
            delay_ms,
            lambda: self._on_session_timer(group_id, member_id),
        )

    def _on_session_timer(self, group_id: str, member_id: str) -> Outcome[None]:
        group, member = self._find(group_id, member_id)
        if group is None or member is None:
            return NOTHING
        member.timer_due_ms = None
        left_ms = member.deadline_ms - self._context.clock.monotonic_ms()
        if left_ms > 0:
            self._arm(group_id, member, left_ms)
            return NOTHING
        return self._fence(group, member, "its session has ended")

    # -- phases -----------------------------------------------------------------------------

    def expect_revocation(
        self, group_id: str, member_id: str, member_epoch: int, timeout_ms: int
    ) -> None:
        def look() -> Outcome[None]:
            group, member = self._find(group_id, member_id)
            if group is None or member is None or member.current.member_epoch != member_epoch:
                return NOTHING
            return self._fence(group, member, f"it did not leave epoch {member_epoch} in time")

        self._context.timers.schedule(_key("rebalance", group_id, member_id), timeout_ms, look)

    def revocation_is_over(self, group_id: str, member_id: str) -> None:
        self._context.timers.cancel(_key("rebalance", group_id, member_id))

    def expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """From the first time that it was told to join; later ones do not move it."""
        key = _key("join", group.group_id, member.member_id)
        if key not in self._joins:
            self._joins.add(key)
            self._schedule_fence(key, group, member, "it did not join in time")

    def join_is_over(self, group_id: str, member_id: str) -> None:
        key = _key("join", group_id, member_id)
        self._joins.discard(key)
        self._context.timers.cancel(key)

    def expect_sync(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        key = _key("sync", group.group_id, member.member_id)
        self._schedule_fence(key, group, member, "it did not sync in time")

    def sync_is_over(self, group_id: str, member_id: str) -> None:
        self._context.timers.cancel(_key("sync", group_id, member_id))

    def _schedule_fence(
        self, key: str, group: ConsumerGroup, member: ConsumerMember, reason: str
    ) -> None:
        group_id, member_id = group.group_id, member.member_id

        def look() -> Outcome[None]:
            self._joins.discard(key)
            present, known = self._find(group_id, member_id)
            if present is None or known is None or known.metadata.classic is None:
                return NOTHING
            return self._fence(present, known, reason)

        self._context.timers.schedule(key, member.metadata.rebalance_timeout_ms, look)

    # -- ends -------------------------------------------------------------------------------

    def resume(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member that no timer looks after, as after loading: its time begins now."""
        member.timer_due_ms = None
        self.touch(group, member)
        current, metadata = member.current, member.metadata
        if current.state == UNREVOKED and metadata.classic is None:
            self.expect_revocation(
                group.group_id,
                member.member_id,
                current.member_epoch,
                metadata.rebalance_timeout_ms,
            )

    def forget(self, group_id: str, member_id: str) -> None:
        self.revocation_is_over(group_id, member_id)
        self.join_is_over(group_id, member_id)
        self.sync_is_over(group_id, member_id)
        self._context.timers.cancel(_key("session", group_id, member_id))

    def unload(self) -> None:
        self._joins.clear()

    def _find(
        self, group_id: str, member_id: str
    ) -> tuple[ConsumerGroup | None, ConsumerMember | None]:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return None, None
        return group, group.members.get(member_id)


def _key(kind: str, group_id: str, member_id: str) -> str:
    # The length keeps "a" in "b:c" apart from "a:b" in "c": both parts may hold anything.
    return f"consumer-{kind}:{len(member_id)}:{member_id}:{group_id}"
