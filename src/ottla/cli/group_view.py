"""What `ottla group` shows: gathered as plain JSON values, and laid out for people."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.ids import TopicPartition
from ottla.cli.failure import Failure
from ottla.cli.group_model import DEAD, GroupDetail, GroupMember
from ottla.cli.output import plural
from ottla.cli.tables import print_table
from ottla.cli.words import printable

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

Offsets = dict[TopicPartition, int]


def existing_groups(connection: Connection, names: Sequence[str]) -> list[GroupDetail]:
    admin = connection.group_admin()
    details = admin.describe(list(dict.fromkeys(names)))
    for detail in details:
        if detail.state == DEAD:
            known = [one.group for one in admin.groups()]
            near = difflib.get_close_matches(detail.group, known, n=1)
            hint = f"; did you mean {printable(near[0])}?" if near else ""
            raise Failure(f"group {printable(detail.group)} does not exist{hint}")
    return details


def latest_offsets(connection: Connection, partitions: Iterable[TopicPartition]) -> Offsets:
    """As Kafka's own tool counts: with records of open transactions. Not where there is no leader,
    or none that answers, nor for topics that are gone.
    """
    wanted = sorted(set(partitions) & led_partitions(connection, {one[0] for one in partitions}))
    found = connection.offsets_of_living(dict.fromkeys(wanted, "latest"), committed=False)
    return {one: offset.offset for one, offset in found.items() if offset is not None}


def led_partitions(connection: Connection, topics: Iterable[str]) -> set[TopicPartition]:
    there = {topic.name for topic in connection.topics()}
    return {
        (place.name, partition.partition)
        for place in connection.places(sorted(there & set(topics)))
        for partition in place.partitions
        if partition.leader is not None
    }


def lag_of(committed: int | None, latest: int | None) -> int | None:
    if committed is None or latest is None:
        return None
    # A topic that was deleted and made anew may end before what was committed.
    return max(0, latest - committed)


def sum_of(lags: Iterable[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


# ------------------------------------------------------------------------------------- describe


def describe_groups(connection: Connection, names: Sequence[str]) -> list[dict[str, Any]]:
    details = existing_groups(connection, names)
    committed = connection.group_admin().committed([one.group for one in details])
    latest = latest_offsets(
        connection,
        [one for offsets in committed.values() for one in offsets]
        + [one for detail in details for member in detail.members for one in member.partitions],
    )
    return [_group(detail, committed[detail.group], latest) for detail in details]


def _group(detail: GroupDetail, committed: Offsets, latest: Offsets) -> dict[str, Any]:
    owners = {one: member for member in detail.members for one in member.partitions}
    rows: list[dict[str, Any]] = []
    for one in sorted(committed.keys() | owners.keys()):
        owner = owners.get(one)
        rows.append(
            {
                "topic": one[0],
                "partition": one[1],
                "committed_offset": committed.get(one),
                "latest_offset": latest.get(one),
                "lag": lag_of(committed.get(one), latest.get(one)),
                "member_id": None if owner is None else owner.member_id,
                "client_id": None if owner is None else owner.client_id,
                "host": None if owner is None else owner.host,
            }
        )
    return {
        **_head(detail),
        "member_count": len(detail.members),
        "lag": sum_of(row["lag"] for row in rows),
        "partitions": rows,
    }


def _head(detail: GroupDetail) -> dict[str, Any]:
    return {
        "group": detail.group,
        "state": detail.state,
        "protocol": detail.protocol,
        "assignor": detail.assignor,
        "coordinator": detail.coordinator,
    }


def show_groups(groups: Sequence[Mapping[str, Any]]) -> None:
    for number, group in enumerate(groups):
        lag = [] if group["lag"] is None else [f"lag {group['lag']}"]
        _show_head(number, group, group["member_count"], lag)
        if not group["partitions"]:
            sys.stdout.write("nothing committed, nothing assigned\n")
            continue
        print_table(
            ["TOPIC", "PARTITION", "COMMITTED", "LATEST", "LAG", "MEMBER", "HOST"],
            [
                (
                    row["topic"],
                    row["partition"],
                    row["committed_offset"],
                    row["latest_offset"],
                    row["lag"],
                    row["member_id"],
                    row["host"],
                )
                for row in group["partitions"]
            ],
        )


def _show_head(
    number: int, group: Mapping[str, Any], member_count: int, more: Sequence[str] = ()
) -> None:
    if number:
        sys.stdout.write("\n")
    facts = [
        group["state"],
        f"{group['protocol']} protocol",
        *([] if group["assignor"] is None else [f"assignor {group['assignor']}"]),
        plural(member_count, "member"),
        f"coordinator {group['coordinator']}",
        *more,
    ]
    sys.stdout.write(printable(f"{group['group']}: {', '.join(facts)}") + "\n")


# -------------------------------------------------------------------------------------- members


def members_of_groups(connection: Connection, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {**_head(detail), "members": [_member(one) for one in detail.members]}
        for detail in existing_groups(connection, names)
    ]


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": _as_json(member.partitions),
        "target": None if member.target is None else _as_json(member.target),
    }


def _as_json(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def show_members(groups: Sequence[Mapping[str, Any]]) -> None:
    for number, group in enumerate(groups):
        members = group["members"]
        _show_head(number, group, len(members))
        if not members:
            continue
        # Only while a KIP-848 group moves partitions does it want others than there are.
        moving = any(one["target"] not in (None, one["partitions"]) for one in members)
        print_table(
            ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS", *["TARGET"] * moving],
            [
                [
                    one["member_id"],
                    one["instance_id"],
                    one["client_id"],
                    one["host"],
                    ranges_of(one["partitions"]),
                    *[ranges_of(one["target"] or ())] * moving,
                ]
                for one in members
            ],
        )


def ranges_of(partitions: Iterable[Mapping[str, Any]]) -> str | None:
    """`orders:0-3,7 payments:1`; None for no partition at all."""
    runs: dict[str, list[list[int]]] = {}
    for one in sorted((str(row["topic"]), int(row["partition"])) for row in partitions):
        of_topic = runs.setdefault(one[0], [])
        if of_topic and of_topic[-1][1] == one[1] - 1:
            of_topic[-1][1] = one[1]
        else:
            of_topic.append([one[1], one[1]])
    texts = [
        f"{topic}:{','.join(str(a) if a == b else f'{a}-{b}' for a, b in of_topic)}"
        for topic, of_topic in runs.items()
    ]
    return " ".join(texts) or None
