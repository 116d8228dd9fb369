"""Consumer groups of both protocols: list, describe, delete; their offsets read, set, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.admin_base import AdminBase, Fields, by_topic, error_or_none, raise_for
from ottla.client.admin_values import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
)
from ottla.client.assignors.member_bytes import decode_assignment
from ottla.client.coordinators import GROUP
from ottla.client.errors import BrokerError, UnsupportedByBrokerError
from ottla.client.group_metadata import OffsetAndMetadata, as_offsets
from ottla.client.pending import gather
from ottla.protocol import error_codes as codes
from ottla.protocol.api_keys import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)

# From version 10 on topics are named by their ids, which a group may outlive.
_BY_NAME_MAX = 9
_CONSUMER = "consumer"

# Questions under way at once: enough to hide the way to the broker, without flooding it.
_GROUPS_AT_ONCE_MAX = 200


class AdminGroups(AdminBase):
    async def list_groups(
        self, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> list[GroupListing]:
        """Of all coordinators, sorted; only those in these states and of these kinds."""
        fields = {"states_filter": list(states), "types_filter": list(kinds)}
        answers = await self._ask_brokers(
            LIST_GROUPS, fields, "list of groups", code_of=lambda answer: int(answer.error_code)
        )
        found: dict[str, GroupListing] = {}
        for answer in answers.values():
            raise_for(answer.error_code, "list of groups")
            for one in answer.groups:
                found[one.group_id] = GroupListing(
                    one.group_id, one.protocol_type, one.group_state, one.group_type or "classic"
                )
        return [found[name] for name in sorted(found)]

    async def describe_groups(self, groups: Sequence[str]) -> list[GroupDescription]:
        """In the order asked for. One that nobody has heard of is `Dead`."""
        flows = [self._core.spawn(self._describe(group)) for group in groups]
        return await gather(flows)

    async def _describe(self, group: str) -> GroupDescription:
        try:
            described = await self._describe_consumer(group)
        except UnsupportedByBrokerError:
            described = None
        return described or await self._describe_classic(group)

    async def _describe_consumer(self, group: str) -> GroupDescription | None:
        """None where it is no group of KIP-848."""
        answer = await self._ask_group(
            CONSUMER_GROUP_DESCRIBE,
            group,
            {"group_ids": [group], "include_authorized_operations": False},
            lambda answer: int(answer.groups[0].error_code),
        )
        one = answer.groups[0]
        if one.error_code in (codes.GROUP_ID_NOT_FOUND, codes.UNSUPPORTED_VERSION):
            return None
        raise_for(one.error_code, f"group {group}", one.error_message)
        members = [
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _partitions_of(member.assignment),
                _partitions_of(member.target_assignment),
            )
            for member in one.members
        ]
        coordinator = await self._calls.coordinators.find(GROUP, group)
        return GroupDescription(
            group, one.group_state, _CONSUMER, "consumer", one.assignor_name, coordinator, members
        )

    async def _describe_classic(self, group: str) -> GroupDescription:
        answer = await self._ask_group(
            DESCRIBE_GROUPS,
            group,
            {"groups": [group], "include_authorized_operations": False},
            lambda answer: int(answer.groups[0].error_code),
        )
        one = answer.groups[0]
        if one.error_code != codes.GROUP_ID_NOT_FOUND:
            raise_for(one.error_code, f"group {group}", one.error_message)
        members = [
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                _assigned(one.protocol_type, member.member_assignment),
                None,
            )
            for member in one.members
        ]
        coordinator = await self._calls.coordinators.find(GROUP, group)
        return GroupDescription(
            group,
            one.group_state or "Dead",
            "classic",
            one.protocol_type,
            one.protocol_data,
            coordinator,
            members,
        )

    async def delete_groups(self, groups: Sequence[str]) -> dict[str, BrokerError | None]:
        """Only what has no members can be deleted."""
        outcome: dict[str, BrokerError | None] = {}
        for group in groups:
            answer = await self._ask_group(
                DELETE_GROUPS,
                group,
                {"groups_names": [group]},
                lambda answer: int(answer.results[0].error_code),
            )
            outcome[group] = error_or_none(answer.results[0].error_code, f"group {group}")
        return outcome

    async def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, everywhere or at these; what it has not is left out."""
        topics = None
        if partitions is not None:
            topics = [
                {"name": name, "partition_indexes": some}
                for name, some in by_topic(partitions).items()
            ]
        fields = {
            "group_id": group,
            "topics": topics,
            "groups": [
                {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
            ],
            "require_stable": require_stable,
        }
        answer = await self._ask_group(
            OFFSET_FETCH,
            group,
            fields,
            _code_of_fetch,
            version_min=7 if require_stable else None,
            version_max=_BY_NAME_MAX,
        )
        found = answer.groups[0] if answer.groups else answer
        raise_for(found.error_code, f"offsets of {group}")
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for topic in found.topics:
            for one in topic.partitions:
                raise_for(one.error_code, f"offset of {group} in {topic.name}")
                if one.committed_offset >= 0:
                    offsets[topic.name, one.partition_index] = CommittedOffset(
                        one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                    )
        return offsets

    async def list_offsets_of_groups(
        self, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """What each of them has committed, many asked at once."""
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for start in range(0, len(groups), _GROUPS_AT_ONCE_MAX):
            some = groups[start : start + _GROUPS_AT_ONCE_MAX]
            flows = [self._core.spawn(self.list_group_offsets(group)) for group in some]
            found.update(zip(some, await gather(flows), strict=True))
        return found

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Sets a group's positions; a group with members refuses that."""
        topics: dict[str, list[Fields]] = {}
        for (topic, partition), position in as_offsets(offsets).items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": position.offset,
                    "committed_leader_epoch": position.leader_epoch,
                    "committed_metadata": position.metadata,
                }
            )
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time_ms": -1,
            "topics": [{"name": name, "partitions": some} for name, some in topics.items()],
        }
        answer = await self._ask_group(
            OFFSET_COMMIT, group, fields, _code_of_partitions, version_max=_BY_NAME_MAX
        )
        return _outcomes(answer, group)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerError | None]:
        fields = {
            "group_id": group,
            "topics": [
                {"name": name, "partitions": [{"partition_index": index} for index in some]}
                for name, some in by_topic(partitions).items()
            ],
        }
        answer = await self._ask_group(
            OFFSET_DELETE, group, fields, lambda answer: int(answer.error_code)
        )
        raise_for(answer.error_code, f"offsets of {group}")
        return _outcomes(answer, group)

    async def _ask_group(
        self,
        api_key: int,
        group: str,
        fields: Any,
        code_of: Any,
        *,
        version_min: int | None = None,
        version_max: int | None = None,
    ) -> Any:
        return await self._calls.ask(
            GROUP,
            group,
            api_key,
            lambda: fields,
            self._deadline_ms(),
            what=f"group {group}",
            code_of=code_of,
            version_min=version_min,
            version_max=version_max,
        )


def _partitions_of(assignment: Any) -> list[TopicPartition]:
    return sorted(
        (each.topic_name, partition)
        for each in assignment.topic_partitions
        for partition in each.partitions
    )


def _assigned(protocol_type: str, data: bytes) -> list[TopicPartition]:
    if protocol_type != "consumer" or not data:
        return []
    return sorted(decode_assignment(data).partitions)


def _code_of_fetch(answer: Any) -> int:
    found = answer.groups[0] if answer.groups else answer
    return int(found.error_code)


def _code_of_partitions(answer: Any) -> int:
    found = [one.error_code for topic in answer.topics for one in topic.partitions]
    return found[0] if found else codes.NONE


def _outcomes(answer: Any, group: str) -> dict[TopicPartition, BrokerError | None]:
    return {
        (topic.name, one.partition_index): error_or_none(
            one.error_code, f"offset of {group} in {topic.name}-{one.partition_index}"
        )
        for topic in answer.topics
        for one in topic.partitions
    }
