"""Questions about consumer groups, and changes to them, to the cluster's coordinators.

Knows the client; gives plain values of `group_model`. A group that nobody has heard of is `Dead`,
as in Kafka. Groups of other things than consumers (Connect's workers) are not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from ottla.base.ids import TopicPartition
from ottla.cli.client_errors import reason_of
from ottla.cli.failure import Failure
from ottla.cli.group_model import GroupDetail, GroupMember, GroupSummary
from ottla.client.admin import Admin
from ottla.client.admin_values import GroupDescription, MemberDescription

T = TypeVar("T")
# "": has commits, never had a member.
CONSUMERS = ("", "consumer")


class Ask(Protocol):
    """Calls, and makes a Failure about `what` of what goes wrong."""

    def __call__(self, what: str, call: Callable[[], T]) -> T: ...


class GroupAdmin:
    def __init__(self, admin: Admin, ask: Ask) -> None:
        self._admin = admin
        self._ask = ask

    def groups(self) -> list[GroupSummary]:
        return [
            GroupSummary(
                group=one.group_id,
                state=one.state,
                protocol=one.kind.lower(),
                simple=one.protocol_type == "",
            )
            for one in self._ask("groups", self._admin.list_groups)
            if one.protocol_type in CONSUMERS
        ]

    def describe(self, groups: Sequence[str]) -> list[GroupDetail]:
        """In the order asked for."""
        if not groups:
            return []
        found = self._ask(_named(groups), lambda: self._admin.describe_groups(groups))
        return [_detail_of(one) for one in found]

    def committed(self, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
        """What each group has committed; nothing where it has not, or where there is no group."""
        if not groups:
            return {}
        found = self._ask(
            f"committed offsets of {_named(groups)}",
            lambda: self._admin.list_offsets_of_groups(groups),
        )
        return {
            group: {partition: one.offset for partition, one in offsets.items()}
            for group, offsets in found.items()
        }

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        outcome = self._ask(
            f"group {group}", lambda: self._admin.alter_group_offsets(group, dict(offsets))
        )
        for (topic, partition), error in outcome.items():
            if error is not None:
                raise Failure(f"group {group}, {topic}-{partition}: {reason_of(error)}") from error

    def delete(self, group: str) -> None:
        error = self._ask(f"group {group}", lambda: self._admin.delete_groups([group]))[group]
        if error is not None:
            raise Failure(f"group {group}: {reason_of(error)}") from error


def _named(groups: Sequence[str]) -> str:
    return f"group {groups[0]}" if len(groups) == 1 else f"{len(groups)} groups"


def _detail_of(group: GroupDescription) -> GroupDetail:
    return GroupDetail(
        group=group.group_id,
        state=group.state,
        protocol=group.kind.lower(),
        assignor=group.assignor or None,
        coordinator=group.coordinator,
        members=sorted(map(_member_of, group.members), key=lambda one: one.member_id),
    )


def _member_of(member: MemberDescription) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        # Java writes addresses with a slash before them.
        host=member.client_host.removeprefix("/"),
        partitions=sorted(member.assignment),
        target=None if member.target is None else sorted(member.target),
    )
