"""A member of a group as a raw connection: every version, every field, every mistake.

Requests are written with kio, so nothing of Ottla's own codecs takes part.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from importlib import import_module
from typing import Any

from tests.compat.nodes import wait_until
from tests.compat.wire import Wire
from tests.patience import SECONDS_MAX, SESSION_MS

RANGE = "range"
MEMBER_ID_REQUIRED = 79
TOPIC_IDS_FROM = 10


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def schema(name: str, version: int) -> Any:
    return import_module(f"kio.schema.{name}.v{version}.request")


def build(made_of: Any, **fields: Any) -> Any:
    """The struct with those of `fields` that this version of it has."""
    known = made_of.__dataclass_fields__
    return made_of(**{name: value for name, value in fields.items() if name in known})


class GroupWire(Wire):
    """One connection that plays one member of `group`; it learns its id and generation."""

    def __init__(self, bootstrap: str, group: str, topic: str = "t") -> None:
        super().__init__(bootstrap)
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.generation = -1

    def find(self, version: int = 4) -> Any:
        part = schema("find_coordinator", version)
        request = build(
            part.FindCoordinatorRequest,
            key=self.group,
            key_type=0,
            coordinator_keys=(self.group,),
        )
        answer = self.call(request)
        return answer.coordinators[0] if version >= 4 else answer

    def ready(self) -> GroupWire:
        """Kafka needs some moments between making its topic and serving groups."""
        wait_until(lambda: int(self.find().error_code) == 0, SECONDS_MAX, "a coordinator is found")
        wait_until(
            lambda: int(self.beat().error_code) == 25, SECONDS_MAX, "the coordinator answers"
        )
        return self

    # -- membership -------------------------------------------------------------------------

    def send_join(
        self,
        version: int = 9,
        *,
        member_id: str | None = None,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = SESSION_MS,
    ) -> tuple[Any, int]:
        part = schema("join_group", version)
        offered = protocols if protocols is not None else ((RANGE, subscription(self.topic)),)
        request = build(
            part.JoinGroupRequest,
            group_id=self.group,
            session_timeout=timedelta(milliseconds=session_ms),
            rebalance_timeout=timedelta(milliseconds=rebalance_ms),
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=tuple(
                part.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered
            ),
            reason=None,
        )
        return request, self.send(request)

    def end_join(self, sent: tuple[Any, int]) -> Any:
        answer = self.receive(*sent)
        if int(answer.error_code) in (0, MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if int(answer.error_code) == 0:
            self.generation = answer.generation_id
        return answer

    def join(self, version: int = 9, **options: Any) -> Any:
        return self.end_join(self.send_join(version, **options))

    def enter(self, version: int = 9, **options: Any) -> Any:
        """Joins, coming back with the id that it is given."""
        answer = self.join(version, **options)
        return (
            self.join(version, **options)
            if int(answer.error_code) == MEMBER_ID_REQUIRED
            else answer
        )

    def send_sync(
        self,
        version: int = 5,
        *,
        assignments: dict[str, bytes] | None = None,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = RANGE,
    ) -> tuple[Any, int]:
        part = schema("sync_group", version)
        request = build(
            part.SyncGroupRequest,
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(
                part.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ),
        )
        return request, self.send(request)

    def sync(self, version: int = 5, **options: Any) -> Any:
        return self.receive(*self.send_sync(version, **options))

    def beat(
        self, version: int = 4, *, generation: int | None = None, instance_id: str | None = None
    ) -> Any:
        request = build(
            schema("heartbeat", version).HeartbeatRequest,
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=instance_id,
        )
        return self.call(request)

    def leave(
        self, version: int = 5, *, member_id: str | None = None, instance_id: str | None = None
    ) -> Any:
        part = schema("leave_group", version)
        leaving = self.member_id if member_id is None else member_id
        members: tuple[Any, ...] = ()
        if version >= 3:
            members = (
                build(
                    part.MemberIdentity,
                    member_id=leaving,
                    group_instance_id=instance_id,
                    reason=None,
                ),
            )
        request = build(
            part.LeaveGroupRequest, group_id=self.group, member_id=leaving, members=members
        )
        return self.call(request)

    # -- offsets ----------------------------------------------------------------------------

    def commit(
        self,
        offset: int,
        version: int = 9,
        *,
        partition: int = 0,
        topic: str | None = None,
        topic_id: Any = None,
        metadata: str | None = "",
        generation: int | None = None,
        member_id: str | None = None,
        instance_id: str | None = None,
        leader_epoch: int = -1,
        retention_ms: int = -1,
    ) -> int:
        """The error code of the one partition."""
        part = schema("offset_commit", version)
        one = build(
            part.OffsetCommitRequestPartition,
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        asked = build(
            part.OffsetCommitRequestTopic,
            name=topic or self.topic,
            topic_id=topic_id,
            partitions=(one,),
        )
        request = build(
            part.OffsetCommitRequest,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=instance_id,
            retention_time=timedelta(milliseconds=retention_ms),
            topics=(asked,),
        )
        return int(self.call(request).topics[0].partitions[0].error_code)

    def fetch_offsets(
        self, version: int = 8, *, partitions: tuple[int, ...] | None = None, topic_id: Any = None
    ) -> Any:
        """The answer for this group, wherever the version has it; None asks for everything."""
        part = schema("offset_fetch", version)
        many = version >= 8
        kind = part.OffsetFetchRequestTopics if many else part.OffsetFetchRequestTopic
        topics: Any = None
        if partitions is not None:
            topics = (
                build(kind, name=self.topic, topic_id=topic_id, partition_indexes=partitions),
            )
        if not many:
            request = build(
                part.OffsetFetchRequest,
                group_id=self.group,
                topics=topics,
                require_stable=False,
            )
            return self.call(request)
        group = build(
            part.OffsetFetchRequestGroup,
            group_id=self.group,
            member_id=None,
            member_epoch=-1,
            topics=topics,
        )
        return self.call(
            build(part.OffsetFetchRequest, groups=(group,), require_stable=False)
        ).groups[0]

    # -- administration ---------------------------------------------------------------------

    def describe(self, version: int = 6) -> Any:
        request = build(
            schema("describe_groups", version).DescribeGroupsRequest,
            groups=(self.group,),
            include_authorized_operations=False,
        )
        return self.call(request).groups[0]

    def listed(
        self, version: int = 5, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
    ) -> Any:
        """This group in the listing, or None."""
        request = build(
            schema("list_groups", version).ListGroupsRequest,
            states_filter=states,
            types_filter=types,
        )
        answer = self.call(request)
        assert int(answer.error_code) == 0, answer
        found = [group for group in answer.groups if group.group_id == self.group]
        return found[0] if found else None

    def delete_group(self, version: int = 2) -> int:
        request = schema("delete_groups", version).DeleteGroupsRequest(groups_names=(self.group,))
        return int(self.call(request).results[0].error_code)

    def delete_offset(self, partition: int = 0, topic: str | None = None) -> tuple[int, list[int]]:
        """The error code of the answer, and those of its partitions."""
        part = schema("offset_delete", 0)
        one = part.OffsetDeleteRequestPartition(partition_index=partition)
        asked = part.OffsetDeleteRequestTopic(name=topic or self.topic, partitions=(one,))
        answer = self.call(part.OffsetDeleteRequest(group_id=self.group, topics=(asked,)))
        codes = [int(one.error_code) for topic in answer.topics for one in topic.partitions]
        return int(answer.error_code), codes
