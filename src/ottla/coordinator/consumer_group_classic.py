"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848).

What a heartbeat does for other members, a join does for these: it brings the subscription and what
the member owns, and the answer is its epoch as a generation. The sync tells the assignment. A
classic heartbeat only says whether the member has to join again. None of them is ever a leader: the
assignment is made here.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.base.errors import ProtocolError
from ottla.coordinator.classic_group import as_protocols, join_refusal
from ottla.coordinator.classic_groups import ClassicGroups
from ottla.coordinator.classic_rebalance import sync_refusal
from ottla.coordinator.consumer_group import PROTOCOL_TYPE, ConsumerGroup, ConsumerMember
from ottla.coordinator.consumer_group_departure import ConsumerDepartures
from ottla.coordinator.consumer_group_draft import Draft
from ottla.coordinator.consumer_group_embedded import (
    Subscription,
    read_subscription,
    write_assignment,
)
from ottla.coordinator.consumer_group_members import (
    check_instance,
    check_memory,
    check_room,
    draft_dynamic,
    draft_static,
    new_id,
    unknown_member,
)
from ottla.coordinator.consumer_group_migration import (
    Downgrade,
    may_downgrade_replacing,
    topic_ids_by_name,
)
from ottla.coordinator.consumer_group_rebalance import ConsumerRebalance
from ottla.coordinator.consumer_protocol import UnreadableSubscription
from ottla.coordinator.consumer_records import UNRELEASED, UNREVOKED, ClassicMetadata
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.shard import Caller, Fields, Outcome
from ottla.protocol.error_codes import (
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
DISABLED = "disabled"

Protocols = tuple[tuple[str, bytes], ...]


class ClassicMembers:
    def __init__(
        self,
        context: GroupContext,
        classic: ClassicGroups,
        rebalance: ConsumerRebalance,
        departures: ConsumerDepartures,
    ) -> None:
        self._context = context
        self._classic = classic
        self._rebalance = rebalance
        self._departures = departures
        self._timeouts = departures.timeouts

    # -- JoinGroup --------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: Any, caller: Caller) -> Outcome[Fields]:
        try:
            return self._join(group, request, caller)
        except ProtocolError as refusal:
            log.info("group %r: no join, %r", group.group_id, str(refusal))
            # Kafka tells the id again only where it has not looked at the group.
            told = request.member_id if refusal.code == INVALID_SESSION_TIMEOUT else ""
            return Outcome((), join_refusal(refusal.code, told))

    def _join(self, group: ConsumerGroup, request: Any, caller: Caller) -> Outcome[Fields]:
        config = self._context.config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise ProtocolError(INVALID_SESSION_TIMEOUT, "its session is too short or too long")
        if config.group_consumer_migration_policy.lower() == DISABLED:
            raise ProtocolError(INCONSISTENT_GROUP_PROTOCOL, "the group migration is disabled")
        member_id = request.member_id or new_id(self._context)
        check_room(group, member_id, config.group_consumer_max_size)
        protocols = as_protocols(request.protocols)
        if not group.supports_classic(request.protocol_type, (name for name, _ in protocols)):
            raise ProtocolError(INCONSISTENT_GROUP_PROTOCOL, "no protocol in common")
        instance_id = request.group_instance_id
        is_unknown = not request.member_id
        if is_unknown and instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_FROM:
            return Outcome((), join_refusal(MEMBER_ID_REQUIRED, member_id))
        subscription = _subscription_in(protocols)
        replaced = None if instance_id is None else group.static_member(instance_id)
        if instance_id is None:
            draft = draft_dynamic(group, member_id, [], may_be_new=True)
        else:
            draft = draft_static(
                group, member_id, instance_id, [], may_be_new=is_unknown, is_classic=True
            )
        metadata = draft.metadata._replace(
            instance_id=instance_id or draft.metadata.instance_id,
            rack_id=subscription.rack_id or draft.metadata.rack_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            topics=frozenset(subscription.topics),
            pattern="",
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            classic=ClassicMetadata(request.session_timeout_ms, protocols),
        )
        check_memory(draft, metadata, self._context)
        is_changed = self._rebalance.take_in(draft, metadata)
        if replaced is not None and may_downgrade_replacing(group, replaced, config):
            return self._join_as_last(draft, replaced)
        owned = topic_ids_by_name(subscription.owned, self._context.image)
        target = self._rebalance.assign(draft)
        self._rebalance.advance(draft, target, owned, is_changed=is_changed)
        fields = _joined(draft, draft.current.member_epoch)
        return Outcome(draft.records, fields, lambda code: self._on_joined(draft, code))

    def _on_joined(self, draft: Draft, code: int) -> None:
        group = self._context.groups.get(draft.group.group_id)
        if code == NOT_COORDINATOR or not isinstance(group, ConsumerGroup):
            return
        member = group.members.get(draft.member_id)
        if member is not None:
            self._timeouts.join_is_over(group.group_id, member.member_id)
            self._timeouts.touch(group, member)
            self._timeouts.expect_sync(group, member)

    def _join_as_last(self, draft: Draft, replaced: ConsumerMember) -> Outcome[Fields]:
        """The last member of the consumer protocol comes back as a classic one: a downgrade."""
        group = draft.group
        downgrade = Downgrade(self._context, self._classic, group)
        downgrade.leave_out(replaced.member_id)
        downgrade.put(draft.member_id, draft.metadata, draft.target())
        is_stale = group.target_epoch < draft.group_epoch
        reason = "it was a consumer group, and its assignment is out of date" if is_stale else None
        return Outcome(
            downgrade.records(),
            _joined(draft, group.epoch),
            lambda code: downgrade.settle(code, reason),
        )

    # -- SyncGroup --------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, request: Any) -> Outcome[Fields]:
        try:
            member = self._member_of(group, request)
            _check_protocol(member, request)
            self._check_no_rebalance(group, member)
        except ProtocolError as refusal:
            return Outcome((), sync_refusal(refusal.code))
        self._timeouts.sync_is_over(group.group_id, member.member_id)
        self._timeouts.touch(group, member)
        fields = {
            "error_code": NONE,
            "protocol_type": request.protocol_type,
            "protocol_name": request.protocol_name,
            "assignment": self._assignment(member),
        }
        return Outcome((), fields)

    def _check_no_rebalance(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        # One that has to give up partitions has joined already and learns of it by this sync.
        current = member.current
        if group.target_epoch > current.member_epoch and current.state != UNREVOKED:
            self._timeouts.expect_join(group, member)
            raise ProtocolError(REBALANCE_IN_PROGRESS, "it has to join again")

    def _assignment(self, member: ConsumerMember) -> bytes:
        names = self._context.image.topic_names_by_id
        held = {
            names[one]: epochs for one, epochs in member.current.assigned.items() if one in names
        }
        return write_assignment(held, _subscription_in(_protocols_of(member)).version)

    # -- Heartbeat --------------------------------------------------------------------------

    def heartbeat(self, group: ConsumerGroup, request: Any) -> Outcome[Fields]:
        try:
            member = self._member_of(group, request)
        except ProtocolError as refusal:
            return Outcome((), {"error_code": refusal.code})
        self._timeouts.touch(group, member)
        current = member.current
        has_to_join = current.member_epoch < group.target_epoch or current.state == UNREVOKED
        if current.state == UNRELEASED and not group.waits_for_others(member):
            has_to_join = True
        if not has_to_join:
            return Outcome((), {"error_code": NONE})
        self._timeouts.expect_join(group, member)
        return Outcome((), {"error_code": REBALANCE_IN_PROGRESS})

    def _member_of(self, group: ConsumerGroup, request: Any) -> ConsumerMember:
        """The classic member that speaks, in its epoch."""
        member_id, instance_id = request.member_id, request.group_instance_id
        if instance_id is not None:
            member = check_instance(group.static_member(instance_id), member_id, instance_id)
        else:
            found = group.members.get(member_id)
            if found is None:
                raise unknown_member(group, member_id)
            member = found
        if member.metadata.classic is None:
            raise ProtocolError(UNKNOWN_MEMBER_ID, "it does not use the classic protocol")
        if member.current.member_epoch != request.generation_id:
            raise ProtocolError(ILLEGAL_GENERATION, "its generation is not its epoch")
        return member

    # -- LeaveGroup -------------------------------------------------------------------------

    def leave(self, group: ConsumerGroup, request: Any) -> Outcome[Fields]:
        """Members of both protocols may be named here: administrators do."""
        results = []
        leaving: dict[str, ConsumerMember] = {}
        for one in request.members:
            code = NONE
            try:
                member = _leaving_member(group, one)
                leaving[member.member_id] = member
            except ProtocolError as refusal:
                code = refusal.code
            results.append(
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.group_instance_id,
                    "error_code": code,
                }
            )
        fields: Fields = {"error_code": NONE, "members": results}
        return self._departures.remove(group, leaving.values(), fields)


def _leaving_member(group: ConsumerGroup, one: Any) -> ConsumerMember:
    if one.group_instance_id is not None:
        holder = group.static_member(one.group_instance_id)
        holder_id = holder.member_id if holder is not None and not one.member_id else one.member_id
        return check_instance(holder, holder_id, one.group_instance_id)
    member = group.members.get(one.member_id)
    if member is None:
        raise unknown_member(group, one.member_id)
    return member


def _joined(draft: Draft, generation: int) -> Fields:
    classic = draft.metadata.classic
    return {
        "error_code": NONE,
        "generation_id": generation,
        "protocol_type": PROTOCOL_TYPE,
        "protocol_name": None if classic is None else classic.protocols[0][0],
        "leader": "",
        "skip_assignment": False,
        "member_id": draft.member_id,
        "members": [],
    }


def _protocols_of(member: ConsumerMember) -> Protocols:
    return () if member.metadata.classic is None else member.metadata.classic.protocols


def _subscription_in(protocols: Protocols) -> Subscription:
    """What a member says with its favourite protocol."""
    try:
        return read_subscription(protocols[0][1])
    except UnreadableSubscription as cause:
        raise ProtocolError(UNKNOWN_SERVER_ERROR, f"{cause}") from None


def _check_protocol(member: ConsumerMember, request: Any) -> None:
    name = _protocols_of(member)[0][0]
    if request.protocol_type not in (None, PROTOCOL_TYPE):
        raise ProtocolError(INCONSISTENT_GROUP_PROTOCOL, "another protocol type")
    if request.protocol_name not in (None, name):
        raise ProtocolError(INCONSISTENT_GROUP_PROTOCOL, "another protocol")
