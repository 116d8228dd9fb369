"""Who a request of a consumer group speaks for, and whether it may: ids, epochs, instances, room.

Owns the refusals and nothing else; messages are Kafka's, because people search for them.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

from ottla.base.errors import ProtocolError
from ottla.coordinator.assignors import known_assignors
from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember, size_of
from ottla.coordinator.consumer_group_draft import Draft
from ottla.coordinator.consumer_group_reconciliation import Owned
from ottla.coordinator.consumer_records import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    Epochs,
    MemberMetadata,
)
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.shard import Record
from ottla.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_MAX_SIZE_REACHED,
    INVALID_REQUEST,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_ASSIGNOR,
)

CLIENT_MADE_IDS_FROM = 1


def new_id(context: GroupContext) -> str:
    return urlsafe_b64encode(context.new_uuid().bytes).rstrip(b"=").decode()


# -- the request by itself ------------------------------------------------------------------------


def check_heartbeat(request: Any, api_version: int, assignors: tuple[str, ...]) -> None:
    """What can be refused without a look at the group."""
    epoch = request.member_epoch
    if api_version >= CLIENT_MADE_IDS_FROM or epoch > 0 or epoch == LEAVING:
        _require_text(request.member_id, "MemberId can't be empty.")
    _require_text(request.group_id, "GroupId can't be empty.")
    _require_text(request.instance_id, "InstanceId can't be empty.")
    _require_text(request.rack_id, "RackId can't be empty.")
    if epoch == JOINING:
        _check_joining(request)
    elif epoch == LEAVING_STATIC and request.instance_id is None:
        raise ProtocolError(INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVING_STATIC:
        raise ProtocolError(INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is None:
        return
    known = known_assignors(assignors)
    if request.server_assignor not in known:
        raise ProtocolError(
            UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(known)}.",
        )


def _check_joining(request: Any) -> None:
    if request.rebalance_timeout_ms == -1:
        message = "RebalanceTimeoutMs must be provided in first request."
    elif request.topic_partitions is None or request.topic_partitions:
        message = "TopicPartitions must be empty when (re-)joining."
    elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        message = (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )
    else:
        return
    raise ProtocolError(INVALID_REQUEST, message)


def _require_text(value: str | None, message: str) -> None:
    if value is not None and not value.strip():
        raise ProtocolError(INVALID_REQUEST, message)


# -- the member -----------------------------------------------------------------------------------


def check_room(group: ConsumerGroup, member_id: str, size_max: int) -> None:
    if len(group.members) >= size_max and member_id not in group.members:
        raise ProtocolError(
            GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def check_memory(draft: Draft, metadata: MemberMetadata, context: GroupContext) -> None:
    """Kafka knows no such bound; see `member_memory`."""
    if metadata == draft.old_metadata:
        return
    size = size_of(metadata)
    if draft.member is not None and size <= size_of(draft.old_metadata):
        return
    if not context.memory.has_room_for(size):
        message = "The members of all groups hold too much memory."
        raise ProtocolError(COORDINATOR_NOT_AVAILABLE, message)


def draft_dynamic(
    group: ConsumerGroup, member_id: str, records: list[Record], *, may_be_new: bool
) -> Draft:
    member = group.members.get(member_id)
    if member is None and not may_be_new:
        raise unknown_member(group, member_id)
    return Draft(group, member_id, member, records)


def draft_static(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    records: list[Record],
    *,
    may_be_new: bool,
    is_classic: bool,
) -> Draft:
    """Whoever comes back with an instance id takes its place, if its holder has let go of it."""
    holder = group.static_member(instance_id)
    if not may_be_new:
        return Draft(group, member_id, check_instance(holder, member_id, instance_id), records)
    if holder is None or holder.member_id == member_id:
        # Kafka turns away its own holder, too, until the session ends; a fenced client dies of it.
        return Draft(group, member_id, group.members.get(member_id), records)
    is_released = holder.current.member_epoch == LEAVING_STATIC
    if not is_released and not is_classic and holder.metadata.classic is None:
        raise ProtocolError(
            UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {holder.member_id} member.",
        )
    draft = Draft(group, member_id, None, records)
    draft.take_place_of(holder)
    return draft


def check_instance(
    holder: ConsumerMember | None, member_id: str, instance_id: str
) -> ConsumerMember:
    if holder is None:
        raise ProtocolError(UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise ProtocolError(
            FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder.member_id}.",
        )
    return holder


def unknown_member(group: ConsumerGroup, member_id: str) -> ProtocolError:
    message = f"Member {member_id} is not a member of group {group.group_id}."
    return ProtocolError(UNKNOWN_MEMBER_ID, message)


def check_epoch(draft: Draft, epoch: int, owned: Owned) -> None:
    """A member may be one epoch behind: our answer with the new one may have been lost."""
    current = draft.current
    if epoch in (JOINING, current.member_epoch):
        return
    if epoch < current.member_epoch:
        if epoch == current.previous_epoch and _is_within(owned, current.assigned):
            return
        how = "smaller"
    else:
        how = "greater"
    raise ProtocolError(
        FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({current.member_epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )


def _is_within(owned: Owned, assigned: Epochs) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in assigned and all(partition in assigned[topic_id] for partition in partitions)
        for topic_id, partitions in owned.items()
    )
