"""The groups of KIP-848: the part of a group shard that answers their heartbeats.

Owns the order in which a heartbeat is looked at, and the door for what records say of such groups.
Classic members that speak to a consumer group (online migration) are in `consumer_group_classic`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ottla.base.errors import ProtocolError
from ottla.coordinator import consumer_records as formats
from ottla.coordinator.classic_group import EMPTY, ClassicGroup
from ottla.coordinator.classic_groups import ClassicGroups
from ottla.coordinator.cluster_view import ClusterView
from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.consumer_group_classic import ClassicMembers
from ottla.coordinator.consumer_group_departure import ConsumerDepartures
from ottla.coordinator.consumer_group_draft import Draft
from ottla.coordinator.consumer_group_members import (
    check_epoch,
    check_heartbeat,
    check_instance,
    check_memory,
    check_room,
    draft_dynamic,
    draft_static,
    new_id,
    unknown_member,
)
from ottla.coordinator.consumer_group_migration import scratch_group, upgrade
from ottla.coordinator.consumer_group_patterns import PatternRefresh
from ottla.coordinator.consumer_group_rebalance import ConsumerRebalance, preferred_assignor
from ottla.coordinator.consumer_group_reconciliation import Owned
from ottla.coordinator.consumer_group_topics import TopicHashes
from ottla.coordinator.consumer_records import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    MemberMetadata,
)
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.shard import NOTHING, Caller, Fields, Outcome, Record
from ottla.protocol.error_codes import (
    GROUP_ID_NOT_FOUND,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER_ID,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


class ConsumerGroups:
    def __init__(self, context: GroupContext, classic: ClassicGroups) -> None:
        self._context = context
        self._hashes = TopicHashes()
        self._patterns = PatternRefresh(context, self._hashes)
        self._departures = ConsumerDepartures(context, self._hashes, classic)
        self._timeouts = self._departures.timeouts
        self._rebalance = ConsumerRebalance(context, self._hashes, self._patterns, self._timeouts)
        self._classic_members = ClassicMembers(context, classic, self._rebalance, self._departures)

    # -- ConsumerGroupHeartbeat -------------------------------------------------------------

    def heartbeat(self, request: Any, caller: Caller) -> Outcome[Fields]:
        try:
            check_heartbeat(
                request, caller.api_version, self._context.config.group_consumer_assignors
            )
            if request.member_epoch in (LEAVING, LEAVING_STATIC):
                return self._leave(request)
            return self._beat(request, caller)
        except ProtocolError as refusal:
            return Outcome((), heartbeat_refusal(refusal.code, refusal.message))

    def _beat(self, request: Any, caller: Caller) -> Outcome[Fields]:
        draft, is_joining = self._draft(request), request.member_epoch == JOINING
        owned = _owned(request)
        check_epoch(draft, request.member_epoch, owned)
        metadata = _metadata_of(draft.metadata, request, caller)
        check_memory(draft, metadata, self._context)
        is_changed = self._rebalance.take_in(draft, metadata)
        target = self._rebalance.assign(draft)
        if _is_of_its_epoch(draft, request.member_epoch):
            self._rebalance.advance(draft, target, owned, is_changed=is_changed)
        current = draft.current
        # Told only to who may not know it: a member that starts over, or that has something new.
        is_told = is_joining or _is_full(request) or current.assigned != draft.old_current.assigned
        fields = {
            "error_code": NONE,
            "error_message": None,
            "member_id": draft.member_id,
            "member_epoch": current.member_epoch,
            "heartbeat_interval_ms": self._timeouts.heartbeat_interval_ms(request.group_id),
            "assignment": _assignment(current.assigned) if is_told else None,
        }
        if draft.member is not None and draft.group is self._context.groups.get(request.group_id):
            self._timeouts.touch(draft.group, draft.member)
            return Outcome(draft.records, fields)
        return Outcome(draft.records, fields, lambda code: self._on_joined(request.group_id, code))

    def _on_joined(self, group_id: str, code: int) -> None:
        """A new member exists only now; of a group that was a classic one, all members are new.

        Also if we were too slow for the client: what is in the log is there, and has to time out.
        """
        group = self._context.groups.get(group_id)
        if code != NOT_COORDINATOR and isinstance(group, ConsumerGroup):
            for member in group.members.values():
                if member.timer_due_ms is None:
                    self._timeouts.touch(group, member)

    def _draft(self, request: Any) -> Draft:
        is_joining = request.member_epoch == JOINING
        records: list[Record] = []
        group = self._group_for(request.group_id, records, may_be_new=is_joining)
        check_room(group, request.member_id, self._context.config.group_consumer_max_size)
        member_id = request.member_id or new_id(self._context)
        if request.instance_id is None:
            return draft_dynamic(group, member_id, records, may_be_new=is_joining)
        return draft_static(
            group,
            member_id,
            request.instance_id,
            records,
            may_be_new=is_joining,
            is_classic=False,
        )

    def _group_for(
        self, group_id: str, records: list[Record], *, may_be_new: bool
    ) -> ConsumerGroup:
        """The group, or what the records that are added will make of a classic one."""
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not may_be_new:
            message = f"Consumer group {group_id} not found."
            if group is not None:
                message = f"Group {group_id} is not a consumer group."
            raise ProtocolError(GROUP_ID_NOT_FOUND, message)
        if isinstance(group, ClassicGroup):
            if group.state == EMPTY:
                records += group.tombstones()
            else:
                records += upgrade(group, self._context.config, self._context.image, self._hashes)
        return scratch_group(group_id, records)

    # -- leaving ----------------------------------------------------------------------------

    def _leave(self, request: Any) -> Outcome[Fields]:
        group_id, member_id = request.group_id, request.member_id
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            message = f"Group {group_id} {what}."
            raise ProtocolError(GROUP_ID_NOT_FOUND, message)
        fields = {
            "error_code": NONE,
            "error_message": None,
            "member_id": member_id,
            "member_epoch": request.member_epoch,
            "heartbeat_interval_ms": 0,
            "assignment": None,
        }
        if request.instance_id is None:
            leaving = group.members.get(member_id)
            if leaving is None:
                raise unknown_member(group, member_id)
            return self._departures.remove(group, [leaving], fields)
        holder = group.static_member(request.instance_id)
        member = check_instance(holder, member_id, request.instance_id)
        if request.member_epoch == LEAVING_STATIC:
            return self._departures.leave_for_a_while(group, member, fields)
        return self._departures.remove(group, [member], fields)

    # -- looks ------------------------------------------------------------------------------

    def describe(self, group_ids: Sequence[str]) -> list[Fields]:
        return [self._describe(group_id) for group_id in group_ids]

    def _describe(self, group_id: str) -> Fields:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            return describe_refusal(group_id, GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        names = self._context.image.topic_names_by_id
        configured = self._context.config.group_consumer_assignors
        return {
            "error_code": NONE,
            "error_message": None,
            "group_id": group_id,
            "group_state": group.state_name(),
            "group_epoch": group.epoch,
            "assignment_epoch": group.target_epoch,
            "assignor_name": preferred_assignor(group.assignor_counts, configured),
            "members": [_described(group, member, names) for member in group.members.values()],
        }

    # -- classic members of a consumer group that is not empty ------------------------------

    def join_classic(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return self._classic_members.join(self._known(request.group_id), request, caller)

    def sync_classic(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return self._classic_members.sync(self._known(request.group_id), request)

    def heartbeat_classic(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return self._classic_members.heartbeat(self._known(request.group_id), request)

    def leave_classic(self, request: Any, caller: Caller) -> Outcome[Fields]:
        return self._classic_members.leave(self._known(request.group_id), request)

    def _known(self, group_id: str) -> ConsumerGroup:
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        raise ProtocolError(UNKNOWN_MEMBER_ID, f"Group {group_id} is not a consumer group.")

    # -- state ------------------------------------------------------------------------------

    def replay(self, key_version: int, record: Record) -> None:
        """A record of KIP-848: `key_version` 3 to 8, or 16 for a resolved regular expression."""
        group_id, part, value = formats.read_fact(key_version, record)
        groups = self._context.groups
        group = groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            # A classic group that stands here has commits and nothing else: no record is of it.
            group = groups[group_id] = ConsumerGroup(group_id, self._context.memory)
        if key_version == formats.GROUP_KEY and value is None:
            self._forget(group)
        else:
            group.apply(key_version, part, value)

    def _forget(self, group: ConsumerGroup) -> None:
        for member_id in list(group.members):
            group.apply(formats.MEMBER_KEY, member_id, None)
        del self._context.groups[group.group_id]

    def on_loaded(self) -> Outcome[None]:
        for group in self._groups():
            for member in group.members.values():
                self._timeouts.resume(group, member)
        return NOTHING

    def on_image(self, image: ClusterView) -> Outcome[None]:
        """`image` is the new one; the context still has the old."""
        old = self._context.image
        if image.topics is old.topics and image.brokers is old.brokers:
            return NOTHING
        has_new_topics: bool | None = None
        for group in self._groups():
            if group.needs_refresh:
                continue
            names = set(group.topic_counts)
            names.update(*(resolved.topics for resolved in group.patterns.values()))
            group.needs_refresh = image.brokers is not old.brokers or any(
                image.topics.get(name) is not old.topics.get(name) for name in names
            )
        for group in self._groups():
            if group.pattern_counts:
                if has_new_topics is None:
                    has_new_topics = bool(image.topics.keys() - old.topics.keys())
                group.has_new_topics |= has_new_topics
        return NOTHING

    def unload(self) -> None:
        for group in self._groups():
            self._forget(group)
        self._patterns.unload()
        self._timeouts.unload()

    def _groups(self) -> Iterable[ConsumerGroup]:
        return [one for one in self._context.groups.values() if isinstance(one, ConsumerGroup)]


# -- requests and answers -------------------------------------------------------------------------


def heartbeat_refusal(code: int, message: str | None) -> Fields:
    return {
        "error_code": code,
        "error_message": message,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval_ms": 0,
        "assignment": None,
    }


def describe_refusal(group_id: str, code: int, message: str | None = None) -> Fields:
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def _owned(request: Any) -> Owned:
    if request.topic_partitions is None:
        return None
    return {one.topic_id: one.partitions for one in request.topic_partitions}


def _is_of_its_epoch(draft: Draft, epoch: int) -> bool:
    """Who is an epoch behind is told where it is, and goes on from there the next time.

    Since it spoke it may have got more, which it cannot have given up; and if this request has come
    late, over a connection that is gone, nobody would hear what it is given now.
    """
    return epoch in (JOINING, draft.old_current.member_epoch)


def _is_full(request: Any) -> bool:
    """Whether it says everything, as after a time-out or an error."""
    return (
        request.rebalance_timeout_ms != -1
        and request.topic_partitions is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )


def _metadata_of(known: MemberMetadata, request: Any, caller: Caller) -> MemberMetadata:
    """What the request says nothing of stays as it is."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return MemberMetadata(
        known.instance_id if request.instance_id is None else request.instance_id,
        known.rack_id if request.rack_id is None else request.rack_id,
        caller.client_id,
        caller.client_host,
        known.topics if names is None else frozenset(names),
        known.pattern if pattern is None else pattern,
        known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        known.assignor if request.server_assignor is None else request.server_assignor,
        None,
    )


def _assignment(held: Mapping[uuid.UUID, Collection[int]]) -> Fields:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "partitions": sorted(partitions)}
            for topic_id, partitions in held.items()
        ]
    }


def _described(
    group: ConsumerGroup, member: ConsumerMember, names: Mapping[uuid.UUID, str]
) -> Fields:
    metadata, current = member.metadata, member.current
    # It is responsible for what it gives up until it has.
    held: dict[uuid.UUID, list[int]] = {}
    for part in (current.assigned, current.revoking):
        for topic_id, epochs in part.items():
            held.setdefault(topic_id, []).extend(epochs)
    return {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": current.member_epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": sorted(metadata.topics),
        "subscribed_topic_regex": metadata.pattern,
        "assignment": _named_assignment(held, names),
        "target_assignment": _named_assignment(group.target_of(member.member_id), names),
        "member_type": CONSUMER_MEMBER if metadata.classic is None else CLASSIC_MEMBER,
    }


def _named_assignment(
    held: Mapping[uuid.UUID, Collection[int]], names: Mapping[uuid.UUID, str]
) -> Fields:
    return {
        "topic_partitions": [
            {
                "topic_id": topic_id,
                "topic_name": names[topic_id],
                "partitions": sorted(partitions),
            }
            for topic_id, partitions in held.items()
            if topic_id in names
        ]
    }
