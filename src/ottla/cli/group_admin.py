"""Questions about consumer groups, and changes to them, to the cluster's coordinators.

Knows the client library; gives plain values of `group_model`. A group that nobody has heard of is
`Dead`, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka import admin as confluent_admin

from ottla.base.ids import TopicPartition
from ottla.cli.client_errors import reason_of
from ottla.cli.failure import Failure
from ottla.cli.group_model import DEAD, EMPTY, GroupDetail, GroupMember, GroupSummary

# Its types are half there and differ from release to release; behind this door they are ours.
kafka_admin: Any = confluent_admin

# Kafka's own words for the states, by the library's.
STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": DEAD,
    "EMPTY": EMPTY,
    # The library knows neither Assigning nor Reconciling, the other states of KIP-848 groups.
    "UNKNOWN": "Rebalancing",
}
# Questions under way at once: enough to hide the way to the broker, without flooding it.
GROUPS_AT_ONCE_MAX = 200

Answer = Callable[[Any, str], Any]


class GroupAdmin:
    def __init__(self, admin: Any, timeout_s: float, answer: Answer) -> None:
        self._admin = admin
        self._timeout_s = timeout_s
        self._answer = answer

    def groups(self) -> list[GroupSummary]:
        found = self._answer(
            self._admin.list_consumer_groups(request_timeout=self._timeout_s), "groups"
        )
        for error in found.errors or ():
            raise Failure(f"groups: {_reason(error)}") from error
        return sorted(
            (
                GroupSummary(
                    group=one.group_id,
                    state=STATES[one.state.name],
                    protocol=one.type.name.lower(),
                    simple=one.is_simple_consumer_group,
                )
                for one in found.valid
            ),
            key=lambda one: one.group,
        )

    def describe(self, groups: Sequence[str]) -> list[GroupDetail]:
        """In the order asked for."""
        if not groups:
            return []
        futures = self._call("groups", self._admin.describe_consumer_groups, list(groups))
        return [_detail_of(self._answer(futures[one], f"group {one}")) for one in groups]

    def committed(self, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
        """What each group has committed; nothing where it has not, or where there is no group."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for start in range(0, len(groups), GROUPS_AT_ONCE_MAX):
            # The library takes one group a call, but many calls may be under way.
            futures = {
                one: self._call(
                    f"group {one}",
                    self._admin.list_consumer_group_offsets,
                    [ConsumerGroupTopicPartitions(one)],
                )[one]
                for one in groups[start : start + GROUPS_AT_ONCE_MAX]
            }
            for one, future in futures.items():
                answer = self._answer(future, f"committed offsets of group {one}")
                found[one] = _offsets_of(one, answer.topic_partitions)
        return found

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        wanted = [
            KafkaTopicPartition(topic, partition, offset)
            for (topic, partition), offset in offsets.items()
        ]
        futures = self._call(
            f"group {group}",
            self._admin.alter_consumer_group_offsets,
            [ConsumerGroupTopicPartitions(group, wanted)],
        )
        _offsets_of(group, self._answer(futures[group], f"group {group}").topic_partitions)

    def delete(self, group: str) -> None:
        futures = self._call(f"group {group}", self._admin.delete_consumer_groups, [group])
        self._answer(futures[group], f"group {group}")

    def _call(self, what: str, call: Callable[..., Any], wanted: list[Any]) -> Any:
        try:
            return call(wanted, request_timeout=self._timeout_s)
        except (KafkaException, ValueError, TypeError) as cause:
            # The library refuses some arguments before it sends them.
            raise Failure(f"{what}: {cause}") from cause


def _offsets_of(group: str, partitions: Sequence[Any]) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for one in partitions:
        if one.error is not None:
            raise Failure(f"group {group}, {one.topic}-{one.partition}: {reason_of(one.error)}")
        if one.offset >= 0:
            offsets[one.topic, one.partition] = one.offset
    return offsets


def _detail_of(group: Any) -> GroupDetail:
    return GroupDetail(
        group=group.group_id,
        state=STATES[group.state.name],
        protocol=group.type.name.lower(),
        assignor=group.partition_assignor or None,
        coordinator=group.coordinator.id,
        members=sorted(map(_member_of, group.members), key=lambda one: one.member_id),
    )


def _member_of(member: Any) -> GroupMember:
    target = member.target_assignment
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        # Java writes addresses with a slash before them.
        host=member.host.removeprefix("/"),
        partitions=_partitions_of(member.assignment),
        target=None if target is None else _partitions_of(target),
    )


def _partitions_of(assignment: Any) -> list[TopicPartition]:
    return sorted((one.topic, one.partition) for one in assignment.topic_partitions)


def _reason(error: BaseException) -> str:
    if isinstance(error, KafkaException):
        return reason_of(error.args[0])
    return str(error)
