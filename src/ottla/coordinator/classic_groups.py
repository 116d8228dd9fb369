"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups.

Owns what each request means in each state of a group, with the error codes that Kafka 4.3 gives.
How a rebalance goes is in `classic_rebalance`.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.classic_group import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
    ClassicMember,
    Protocols,
    as_protocols,
    join_refusal,
    size_of,
)
from ottla.coordinator.classic_rebalance import (
    ClassicRebalance,
    join_answer,
    metadata_record,
    sync_answer,
    sync_refusal,
    wait_for_sync,
)
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.offsets_records import StoredGroup
from ottla.coordinator.shard import Caller, Fields, Outcome, Record
from ottla.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)

log = logging.getLogger("ottla.coordinator")

MEMBER_ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9

# A string on the wire has 32,767 bytes at most; a member id ends with "-" and 36 more.
MEMBER_NAME_BYTES_MAX = 32_767 - 37


class ClassicGroups:
    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._rebalance = ClassicRebalance(context)
        self._live = False

    # -- JoinGroup --------------------------------------------------------------------------

    def join(self, request: Any, caller: Caller) -> Outcome[Fields]:
        group = self._find(request.group_id)
        if group is None:
            return self._join_new(request, caller)
        if not self._is_session_allowed(request):
            return _refuse_join(INVALID_SESSION_TIMEOUT, request.member_id)
        if not self._has_room(group, request.member_id):
            self._rebalance.turn_away(group, request.member_id)
            records = self._rebalance.complete_if_all_joined(group)
            return Outcome(records, join_refusal(GROUP_MAX_SIZE_REACHED, ""))
        protocols = as_protocols(request.protocols)
        if not group.supports(request.protocol_type, protocols):
            return _refuse_join(INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if not self._has_memory(group, request.member_id, protocols):
            return _refuse_join(COORDINATOR_NOT_AVAILABLE, request.member_id)
        if request.member_id:
            return self._join_known(group, request, caller, protocols)
        return self._join_unknown(group, request, caller, protocols)

    def check_new(self, request: Any) -> int:
        """What speaks against a new group for this request, if anything does."""
        if not self._is_session_allowed(request):
            return INVALID_SESSION_TIMEOUT
        if request.member_id:
            return UNKNOWN_MEMBER_ID
        protocols = as_protocols(request.protocols)
        if not self._new_group(request.group_id).supports(request.protocol_type, protocols):
            return INCONSISTENT_GROUP_PROTOCOL
        if not self._context.memory.has_room_for(size_of(protocols)):
            return COORDINATOR_NOT_AVAILABLE
        return NONE

    def _join_new(self, request: Any, caller: Caller) -> Outcome[Fields]:
        code = self.check_new(request)
        if code != NONE:
            return _refuse_join(code, request.member_id)
        group = self._new_group(request.group_id)
        return self._join_unknown(group, request, caller, as_protocols(request.protocols))

    def _new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._context.clock.wall_ms(), self._context.memory)

    def _is_session_allowed(self, request: Any) -> bool:
        config = self._context.config
        session_ms: int = request.session_timeout_ms
        least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        return least <= session_ms <= most

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """`group.max.size`: while everybody joins again, it is those who come last that are out."""
        most = self._context.config.group_max_size
        if group.state == EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state == PREPARING:
            return (member is not None and member.join is not None) or group.waiting_joins < most
        return member is not None or len(group.members) < most

    def _has_memory(self, group: ClassicGroup, member_id: str, protocols: Protocols) -> bool:
        size = size_of(protocols)
        member = group.members.get(member_id)
        if member is not None and size <= member.size():
            return True
        return self._context.memory.has_room_for(size)

    def _join_unknown(
        self, group: ClassicGroup, request: Any, caller: Caller, protocols: Protocols
    ) -> Outcome[Fields]:
        self._context.groups[group.group_id] = group
        instance_id = request.group_instance_id
        member_id = self._new_id(caller.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            holder = group.members.get(group.static_members.get(instance_id, ""))
            if holder is not None:
                return self._join_replacing(group, holder, member_id, request, caller, protocols)
        elif caller.api_version >= MEMBER_ID_REQUIRED_FROM:
            group.add_pending(member_id)
            self._rebalance.expect_pending(group, member_id, request.session_timeout_ms)
            return _refuse_join(MEMBER_ID_REQUIRED, member_id)
        return self._add(group, member_id, request, caller, protocols)

    def _new_id(self, prefix: str) -> str:
        short = prefix.encode()[:MEMBER_NAME_BYTES_MAX].decode(errors="ignore")
        return f"{short}-{self._context.new_uuid()}"

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: Any,
        caller: Caller,
        protocols: Protocols,
    ) -> Outcome[Fields]:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            protocols,
        )
        member.is_new = True
        if group.state == PREPARING and group.previous_state == EMPTY:
            group.member_joined_meanwhile = True
        if not group.members:
            group.protocol_type = request.protocol_type
        answer: Deferred[Fields] = Deferred()
        group.add(member)
        group.wait_for_join(member, answer)
        self._rebalance.expect_join(group, member)
        reason = f"{member_id!r} is new"
        return Outcome(self._rebalance.rebalance_or_complete(group, reason), answer)

    def _join_known(
        self, group: ClassicGroup, request: Any, caller: Caller, protocols: Protocols
    ) -> Outcome[Fields]:
        member_id = request.member_id
        if member_id in group.pending:
            if request.group_instance_id is not None:
                # Only who has no instance id is told to come back with a member id.
                return _refuse_join(UNKNOWN_SERVER_ERROR, "")
            return self._add(group, member_id, request, caller, protocols)
        code = group.check_member(member_id, request.group_instance_id)
        if code != NONE:
            return _refuse_join(code, member_id)
        member = group.members[member_id]
        is_same = member.protocols == protocols
        if group.state == COMPLETING and is_same:
            # It did not get our answer: here it is again.
            return Outcome((), join_answer(group, member_id))
        if group.state == STABLE and is_same and member_id != group.leader_id:
            return Outcome((), join_answer(group, member_id))
        # A leader that joins again has seen something that changes the assignment.
        answer: Deferred[Fields] = Deferred()
        group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        group.wait_for_join(member, answer)
        reason = f"{member_id!r} joins again"
        return Outcome(self._rebalance.rebalance_or_complete(group, reason), answer)

    # -- static members ---------------------------------------------------------------------

    def _join_replacing(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        new_id: str,
        request: Any,
        caller: Caller,
        protocols: Protocols,
    ) -> Outcome[Fields]:
        """The instance is back under a new id; whoever still goes by the old one is fenced."""
        old_leader_id = group.leader_id or ""
        member = self._rebalance.replace_static(group, old, new_id)
        group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        answer: Deferred[Fields] = Deferred()
        group.wait_for_join(member, answer)
        if group.state == PREPARING:
            return Outcome(self._rebalance.complete_if_all_joined(group), answer)
        if group.state == COMPLETING or group.select_protocol() != group.protocol:
            # The leader may have been told of the old id, or the group has to agree anew.
            reason = f"{new_id!r} replaces {old.member_id!r}"
            return Outcome(self._rebalance.prepare(group, reason), answer)
        return self._keep_assignment(group, old, member, caller, old_leader_id, answer)

    def _keep_assignment(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        member: ClassicMember,
        caller: Caller,
        old_leader_id: str,
        answer: Deferred[Fields],
    ) -> Outcome[Fields]:
        """In a stable group nothing changes but the id, and that is written down."""
        generation = group.generation

        def on_settled(code: int) -> None:
            if group.members.get(member.member_id) is not member or member.join is not answer:
                return
            if code != NONE:
                group.answer_join(member, join_refusal(code, ""))
                back = self._rebalance.replace_static(group, member, old.member_id)
                group.update(back, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
                return
            if group.state != STABLE or group.generation != generation:
                return
            if caller.api_version >= SKIP_ASSIGNMENT_FROM:
                is_leader = group.leader_id == member.member_id
                fields = join_answer(group, member.member_id, skip_assignment=is_leader)
            else:
                # An old client that finds itself the leader would assign anew.
                fields = join_answer(group, "") | {
                    "leader": old_leader_id,
                    "member_id": member.member_id,
                }
            # While it waited for us its session could not end: it begins now.
            self._rebalance.touch(group, member)
            group.answer_join(member, fields)

        assignments = {one.member_id: one.assignment for one in group.members.values()}
        record = metadata_record(group.group_id, group.to_store(assignments))
        return Outcome([record], answer, on_settled)

    # -- SyncGroup --------------------------------------------------------------------------

    def sync(self, request: Any, caller: Caller) -> Outcome[Fields]:
        group = self._find(request.group_id)
        if group is None or group.state == EMPTY:
            return Outcome((), sync_refusal(UNKNOWN_MEMBER_ID))
        code = _check_sync(group, request)
        if code != NONE:
            return Outcome((), sync_refusal(code))
        member = group.members[request.member_id]
        self._rebalance.on_synced(group, member.member_id)
        if group.state == STABLE:
            return Outcome((), sync_answer(group, member))
        answer: Deferred[Fields] = Deferred()
        wait_for_sync(member, answer)
        if member.member_id != group.leader_id:
            return Outcome((), answer)
        given = {one.member_id: bytes(one.assignment) for one in request.assignments}
        return self._store_assignments(group, given, answer)

    def _store_assignments(
        self, group: ClassicGroup, given: dict[str, bytes], answer: Deferred[Fields]
    ) -> Outcome[Fields]:
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation

        def on_settled(code: int) -> None:
            # A member may have come or gone while the record was on its way.
            if group.state != COMPLETING or group.generation != generation:
                return
            if code == NONE:
                self._rebalance.hand_out(group, assignments)
            else:
                self._rebalance.reset_assignments(group, code)
                self._rebalance.prepare(group, f"its assignment could not be kept (error {code})")

        record = metadata_record(group.group_id, group.to_store(assignments))
        return Outcome([record], answer, on_settled)

    # -- Heartbeat --------------------------------------------------------------------------

    def heartbeat(self, request: Any, caller: Caller) -> Outcome[Fields]:
        group = self._find(request.group_id)
        if group is None:
            return Outcome((), {"error_code": UNKNOWN_MEMBER_ID})
        code = group.check_member(request.member_id, request.group_instance_id)
        if code == NONE and request.generation_id != group.generation:
            code = ILLEGAL_GENERATION
        if code != NONE:
            return Outcome((), {"error_code": code})
        self._rebalance.touch(group, group.members[request.member_id])
        code = REBALANCE_IN_PROGRESS if group.state == PREPARING else NONE
        return Outcome((), {"error_code": code})

    def on_commit(self, group: ClassicGroup, member_id: str) -> None:
        """A commit is a sign of life, but not while the group waits for its assignment."""
        member = group.members.get(member_id)
        if member is not None and group.state in (STABLE, PREPARING):
            self._rebalance.touch(group, member)

    # -- LeaveGroup -------------------------------------------------------------------------

    def leave(self, request: Any, caller: Caller) -> Outcome[Fields]:
        group = self._find(request.group_id)
        count = 0 if group is None else len(group.members)
        results = []
        for one in request.members:
            code = UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, one)
            results.append(
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.group_instance_id,
                    "error_code": code,
                }
            )
        fields: Fields = {"error_code": NONE, "members": results}
        if group is None:
            return Outcome((), fields)
        if len(group.members) == count:
            # Who had no more than an id is missed by nobody, except in a rebalance that waits.
            return Outcome(self._rebalance.complete_if_all_joined(group), fields)
        return Outcome(self._rebalance.after_departure(group, "members have left"), fields)

    def _leave_one(self, group: ClassicGroup, one: Any) -> int:
        member_id: str = one.member_id
        if not member_id:
            # An administrator names the instance, not the member that it happens to be.
            member_id = group.static_members.get(one.group_instance_id, "")
        elif member_id in group.pending:
            self._rebalance.forget_pending(group, member_id)
            return NONE
        code = group.check_member(member_id, one.group_instance_id if one.member_id else None)
        if code == NONE:
            self._rebalance.drop(group, [group.members[member_id]])
        return code

    # -- looks ------------------------------------------------------------------------------

    def describe(self, group_id: str, api_version: int) -> Fields:
        group = self._find(group_id)
        if group is None:
            is_told = api_version >= 6
            is_other = group_id in self._context.groups
            message = f"Group {group_id} {'is not a classic group' if is_other else 'not found'}."
            return {
                "error_code": GROUP_ID_NOT_FOUND if is_told else NONE,
                "error_message": message if is_told else None,
                "group_id": group_id,
                "group_state": DEAD,
                "protocol_type": "",
                "protocol_data": "",
                "members": [],
            }
        protocol = group.protocol if group.state == STABLE else None
        return {
            "error_code": NONE,
            "error_message": None,
            "group_id": group_id,
            "group_state": group.state,
            "protocol_type": group.protocol_type,
            "protocol_data": protocol or "",
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "member_metadata": b"" if protocol is None else member.metadata_for(protocol),
                    "member_assignment": member.assignment,
                }
                for member in group.members.values()
            ],
        }

    # -- state ------------------------------------------------------------------------------

    def replay(self, group_id: str, stored: StoredGroup | None) -> None:
        group = self._find(group_id)
        if stored is None:
            if group is not None:
                # Deleted, expired, or gone over to the consumer protocol.
                del self._context.groups[group_id]
                self._rebalance.dismiss(group, REBALANCE_IN_PROGRESS)
                group.state = DEAD
            return
        if group is not None and self._live:
            group.stored = stored
            return
        if group is None:
            group = ClassicGroup(group_id, stored.since_ms, self._context.memory)
            self._context.groups[group_id] = group
        group.restore(stored)

    def make_simple(self, group_id: str) -> ClassicGroup:
        """A group that nobody joins: it has commits and nothing else."""
        group = self._context.groups[group_id] = self._new_group(group_id)
        return group

    def on_loaded(self) -> list[Record]:
        self._live = True
        records: list[Record] = []
        for group in list(self._context.groups.values()):
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._rebalance.touch(group, member)
                if len(group.members) > self._context.config.group_max_size:
                    records += self._rebalance.prepare(group, "it has more than group.max.size")
        return records

    def on_converted(self, group_id: str, reason: str | None) -> None:
        """It was a consumer group until now; without a reason to rebalance it stays as it is."""
        group = self._find(group_id)
        if group is not None:
            for member in group.members.values():
                self._rebalance.touch(group, member)
            if reason is not None:
                self._rebalance.prepare(group, reason)

    def unload(self) -> None:
        for group in list(self._context.groups.values()):
            if isinstance(group, ClassicGroup):
                self._rebalance.dismiss(group, NOT_COORDINATOR)
                group.state = DEAD

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None


def _refuse_join(code: int, member_id: str) -> Outcome[Fields]:
    return Outcome((), join_refusal(code, member_id))


def _check_sync(group: ClassicGroup, request: Any) -> int:
    code = group.check_member(request.member_id, request.group_instance_id)
    if code != NONE:
        return code
    if request.generation_id != group.generation:
        return ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol):
        return INCONSISTENT_GROUP_PROTOCOL
    return REBALANCE_IN_PROGRESS if group.state == PREPARING else NONE
