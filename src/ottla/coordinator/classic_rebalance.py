"""How a classic group gets from one generation to the next, and who is dropped on the way.

Owns the two phases (everybody joins, the leader's assignment is handed out) and the time-outs: of a
session, of the join phase, of the sync phase. Decisions that need a record return it; only a group
that has become empty does, because nothing of a rebalance is kept before its assignment is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.base.deferred import Deferred
from ottla.coordinator import offsets_records as formats
from ottla.coordinator.classic_group import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
    ClassicMember,
    join_refusal,
)
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.offsets_records import StoredGroup
from ottla.coordinator.shard import NOTHING, Fields, Outcome, Record
from ottla.protocol.error_codes import (
    FENCED_INSTANCE_ID,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

log = logging.getLogger("ottla.coordinator")

# A new member has no id yet and cannot send heartbeats; so long it may wait for its first answer.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

# Members that start together ask for their ids together. Those who have got one are about to join:
# to begin without them would make a second rebalance, of which the first to join hear only by
# their next heartbeat. So the first generation waits for them, but not for one that is gone.
PENDING_GRACE_MS = 50
PENDING_LOOK_MS = 2


def metadata_record(group_id: str, stored: StoredGroup) -> Record:
    return Record(formats.group_key(group_id), formats.group_value(stored), stored)


def sync_refusal(code: int) -> Fields:
    return {"error_code": code, "protocol_type": None, "protocol_name": None, "assignment": b""}


def join_answer(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> Fields:
    """Only the leader is told who the others are."""
    members = []
    if member_id == group.leader_id:
        members = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata_for(group.protocol),
            }
            for member in group.members.values()
        ]
    return {
        "error_code": NONE,
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "leader": group.leader_id or "",
        "skip_assignment": skip_assignment,
        "member_id": member_id,
        "members": members,
    }


def sync_answer(group: ClassicGroup, member: ClassicMember) -> Fields:
    return {
        "error_code": NONE,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "assignment": member.assignment,
    }


class ClassicRebalance:
    def __init__(self, context: GroupContext) -> None:
        self._context = context

    # -- sessions ---------------------------------------------------------------------------

    def touch(self, group: ClassicGroup, member: ClassicMember) -> None:
        """It was heard of: its session begins anew."""
        self._extend(group, member, member.session_timeout_ms)

    def expect_join(self, group: ClassicGroup, member: ClassicMember) -> None:
        self._extend(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)

    def expect_pending(self, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
        """It was given an id and has to come back with it."""
        group_id = group.group_id
        self._context.timers.schedule(
            _session_key(group_id, member_id),
            session_timeout_ms,
            lambda: self._on_session_timer(group_id, member_id),
        )

    def _extend(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int) -> None:
        deadline_ms = self._context.clock.monotonic_ms() + timeout_ms
        member.deadline_ms = deadline_ms
        # A timer that looks too early arms itself again: only an earlier deadline needs a new one.
        if member.timer_due_ms is None or deadline_ms < member.timer_due_ms:
            self._arm(group.group_id, member, timeout_ms)

    def _arm(self, group_id: str, member: ClassicMember, delay_ms: int) -> None:
        member_id = member.member_id
        member.timer_due_ms = self._context.clock.monotonic_ms() + delay_ms
        self._context.timers.schedule(
            _session_key(group_id, member_id),
            delay_ms,
            lambda: self._on_session_timer(group_id, member_id),
        )

    def _on_session_timer(self, group_id: str, member_id: str) -> Outcome[None]:
        group = self._find(group_id)
        if group is None:
            return NOTHING
        if member_id in group.pending:
            self.forget_pending(group, member_id)
            return Outcome(self.complete_if_all_joined(group), None)
        member = group.members.get(member_id)
        if member is None:
            return NOTHING
        member.timer_due_ms = None
        left_ms = member.deadline_ms - self._context.clock.monotonic_ms()
        if left_ms > 0:
            self._arm(group_id, member, left_ms)
            return NOTHING
        if member.is_excused():
            # Its session begins anew with the answer that it waits for.
            return NOTHING
        self.drop(group, [member])
        return Outcome(self.after_departure(group, f"{member_id!r} was not heard of in time"), None)

    # -- departures -------------------------------------------------------------------------

    def drop(self, group: ClassicGroup, members: Iterable[ClassicMember]) -> None:
        """Takes members out; whoever of them waits is told that it is not known any more."""
        for member in members:
            self._context.timers.cancel(_session_key(group.group_id, member.member_id))
            group.answer_join(member, join_refusal(UNKNOWN_MEMBER_ID, ""))
            answer_sync(member, sync_refusal(UNKNOWN_MEMBER_ID))
            group.remove(member.member_id)

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        self._context.timers.cancel(_session_key(group.group_id, member_id))
        group.remove(member_id)
        # An id was asked for and never used: nothing of that is worth keeping.
        if group.is_hollow() and not self._context.offsets.has_group(group.group_id):
            self._context.groups.pop(group.group_id, None)

    def turn_away(self, group: ClassicGroup, member_id: str) -> None:
        """The group is full without it."""
        member = group.members.get(member_id)
        if member is not None:
            self.drop(group, [member])
        elif member_id in group.pending:
            self.forget_pending(group, member_id)

    def replace_static(self, group: ClassicGroup, old: ClassicMember, new_id: str) -> ClassicMember:
        """Whoever still waits under the old id is fenced at once."""
        self._context.timers.cancel(_session_key(group.group_id, old.member_id))
        group.answer_join(old, join_refusal(FENCED_INSTANCE_ID, old.member_id))
        answer_sync(old, sync_refusal(FENCED_INSTANCE_ID))
        member = group.replace_static(old, new_id)
        self.touch(group, member)
        return member

    def after_departure(self, group: ClassicGroup, reason: str) -> list[Record]:
        if group.state in (STABLE, COMPLETING):
            return self.prepare(group, reason)
        return self.complete_if_all_joined(group)

    # -- joining ----------------------------------------------------------------------------

    def rebalance_or_complete(self, group: ClassicGroup, reason: str) -> list[Record]:
        if group.state == PREPARING:
            return self.complete_if_all_joined(group)
        return self.prepare(group, reason)

    def prepare(self, group: ClassicGroup, reason: str) -> list[Record]:
        """Everybody has to join again; who does not within the rebalance time-out is dropped."""
        if group.state == COMPLETING:
            self.reset_assignments(group, REBALANCE_IN_PROGRESS)
        self._end_sync_phase(group)
        was_empty = group.state == EMPTY
        log.info("group %r: rebalance, %s", group.group_id, reason)
        group.move_to(PREPARING, self._context.clock.wall_ms())
        if was_empty:
            delay_ms = self._context.config.group_initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            group.member_joined_meanwhile = False
            self._wait_for_more(group.group_id, delay_ms, left_ms)
            return []
        if group.all_joined():
            return self.complete_join(group)
        self._wait_for_joins(group)
        return []

    def complete_if_all_joined(self, group: ClassicGroup) -> list[Record]:
        if group.state != PREPARING or not group.all_joined():
            return []
        # The first rebalance of a group waits for others, however complete it looks; but not for
        # nobody at all.
        if group.previous_state == EMPTY and group.members:
            return []
        return self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> list[Record]:
        self._context.timers.cancel(_join_key(group.group_id))
        missing = [
            member
            for member in group.members.values()
            if member.join is None and member.instance_id is None
        ]
        if missing:
            log.info("group %r: %d members did not join in time", group.group_id, len(missing))
            self.drop(group, missing)
        if group.members and not group.elect_joined_leader():
            # Static members only, none of them back: their sessions decide.
            self._wait_for_joins(group)
            return []
        group.begin_generation(self._context.clock.wall_ms())
        if not group.members:
            log.info("group %r: empty in generation %d", group.group_id, group.generation)
            return [metadata_record(group.group_id, group.to_store({}))]
        log.info(
            "group %r: generation %d has %d members",
            group.group_id,
            group.generation,
            len(group.members),
        )
        for member in list(group.members.values()):
            member.is_new = False
            group.pending_sync.add(member.member_id)
            self.touch(group, member)
            group.answer_join(member, join_answer(group, member.member_id))
        self._expect_syncs(group)
        return []

    def _wait_for_joins(self, group: ClassicGroup) -> None:
        group_id = group.group_id
        self._context.timers.schedule(
            _join_key(group_id), group.rebalance_timeout_ms(), lambda: self._on_join_timer(group_id)
        )

    def _on_join_timer(self, group_id: str) -> Outcome[None]:
        group = self._find(group_id)
        if group is None or group.state != PREPARING:
            return NOTHING
        return Outcome(self.complete_join(group), None)

    def _wait_for_more(
        self, group_id: str, delay_ms: int, left_ms: int, grace_ms: int = PENDING_GRACE_MS
    ) -> None:
        """The first members of a group wait for others that start at the same time."""

        def look() -> Outcome[None]:
            group = self._find(group_id)
            if group is None or group.state != PREPARING:
                return NOTHING
            if group.member_joined_meanwhile and left_ms > 0:
                group.member_joined_meanwhile = False
                longest_ms = self._context.config.group_initial_rebalance_delay_ms
                self._wait_for_more(group_id, min(longest_ms, left_ms), max(left_ms - delay_ms, 0))
                return NOTHING
            if group.pending and grace_ms > 0:
                grace_left_ms = grace_ms - PENDING_LOOK_MS
                self._wait_for_more(group_id, PENDING_LOOK_MS, left_ms, grace_left_ms)
                return NOTHING
            return Outcome(self.complete_join(group), None)

        self._context.timers.schedule(_join_key(group_id), delay_ms, look)

    # -- syncing ----------------------------------------------------------------------------

    def on_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._context.timers.cancel(_sync_key(group.group_id))

    def hand_out(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """The leader's assignment is committed: the generation is what everybody works by."""
        group.move_to(STABLE, self._context.clock.wall_ms())
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, b"")
        self._answer_syncs(group, NONE)

    def reset_assignments(self, group: ClassicGroup, code: int) -> None:
        for member in group.members.values():
            member.assignment = b""
        self._answer_syncs(group, code)

    def _answer_syncs(self, group: ClassicGroup, code: int) -> None:
        for member in list(group.members.values()):
            if member.sync is not None:
                self.touch(group, member)
                fields = sync_answer(group, member) if code == NONE else sync_refusal(code)
                answer_sync(member, fields)

    def _expect_syncs(self, group: ClassicGroup) -> None:
        group_id, generation = group.group_id, group.generation
        self._context.timers.schedule(
            _sync_key(group_id),
            group.rebalance_timeout_ms(),
            lambda: self._on_sync_timer(group_id, generation),
        )

    def _on_sync_timer(self, group_id: str, generation: int) -> Outcome[None]:
        group = self._find(group_id)
        if group is None or group.generation != generation:
            return NOTHING
        if group.state not in (COMPLETING, STABLE) or not group.pending_sync:
            return NOTHING
        silent = [group.members[member_id] for member_id in group.pending_sync]
        self.drop(group, silent)
        return Outcome(self.prepare(group, f"{len(silent)} members did not sync in time"), None)

    def _end_sync_phase(self, group: ClassicGroup) -> None:
        group.pending_sync.clear()
        self._context.timers.cancel(_sync_key(group.group_id))

    # -- ends -------------------------------------------------------------------------------

    def dismiss(self, group: ClassicGroup, code: int) -> None:
        """The group is no longer here: whoever waits in it is told, no timer looks after it."""
        timers = self._context.timers
        timers.cancel(_join_key(group.group_id))
        timers.cancel(_sync_key(group.group_id))
        for member_id in group.pending:
            timers.cancel(_session_key(group.group_id, member_id))
        for member in list(group.members.values()):
            timers.cancel(_session_key(group.group_id, member.member_id))
            member.timer_due_ms = None
            group.answer_join(member, join_refusal(code, member.member_id))
            answer_sync(member, sync_refusal(code))
        group.forget_all()

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None


def answer_sync(member: ClassicMember, fields: Fields) -> None:
    answer, member.sync = member.sync, None
    if answer is not None:
        answer.resolve(fields)


def wait_for_sync(member: ClassicMember, answer: Deferred[Fields]) -> None:
    """Of two syncs of one member the older one came over a connection that is gone."""
    answer_sync(member, sync_refusal(REBALANCE_IN_PROGRESS))
    member.sync = answer


def _session_key(group_id: str, member_id: str) -> str:
    # The length keeps "a" in "b:c" apart from "a:b" in "c": both parts may hold anything.
    return f"session:{len(member_id)}:{member_id}:{group_id}"


def _join_key(group_id: str) -> str:
    return f"join:{group_id}"


def _sync_key(group_id: str) -> str:
    return f"sync:{group_id}"
