"""How far groups are behind, from what they have committed; once, or again and again.

Asks no coordinator about members: a thousand groups are a thousand small questions under way
together and one look at the ends of the partitions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from ottla.base.ids import TopicPartition
from ottla.cli.group_view import Offsets, existing_groups, lag_of, latest_offsets, sum_of
from ottla.cli.tables import table_of

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

Row = dict[str, Any]
Rows = list[Row]


class Signed(int):
    """A number that says which way it goes."""

    def __str__(self) -> str:
        return f"{int(self):+d}"


@dataclass(slots=True)
class Snapshot:
    """`committed` by group; `latest` of every partition that any of them has committed in."""

    timestamp_ms: int
    committed: dict[str, Offsets]
    latest: Offsets


def take_snapshot(connection: Connection, names: Sequence[str]) -> Snapshot:
    """Of these groups, which must exist, or of all."""
    admin = connection.group_admin()
    groups = list(dict.fromkeys(names)) or [one.group for one in admin.groups()]
    committed = admin.committed(groups)
    silent = [one for one in names if not committed[one]]
    if silent:
        # It has no commit, or it does not exist: only the coordinator can tell.
        existing_groups(connection, silent)
    partitions = {one for offsets in committed.values() for one in offsets}
    return Snapshot(time.time_ns() // 1_000_000, committed, latest_offsets(connection, partitions))


def rows_of(snapshot: Snapshot, *, by_partition: bool) -> Rows:
    rows: Rows = []
    for group, committed in sorted(snapshot.committed.items()):
        if by_partition:
            rows += [
                _partition_row(group, one, offset, snapshot.latest.get(one))
                for one, offset in sorted(committed.items())
            ]
        else:
            topics = sorted({topic for topic, _ in committed})
            rows += [_topic_row(group, topic, committed, snapshot.latest) for topic in topics]
    return rows


def _partition_row(group: str, one: TopicPartition, committed: int, latest: int | None) -> Row:
    return {
        "group": group,
        "topic": one[0],
        "partition": one[1],
        "committed_offset": committed,
        "latest_offset": latest,
        "lag": lag_of(committed, latest),
    }


def _topic_row(group: str, topic: str, committed: Offsets, latest: Offsets) -> Row:
    ours = {one: offset for one, offset in committed.items() if one[0] == topic}
    lags = {one: lag_of(offset, latest.get(one)) for one, offset in ours.items()}
    known = [lag for lag in lags.values() if lag is not None]
    return {
        "group": group,
        "topic": topic,
        "partitions": len(ours),
        "lag": sum_of(lags.values()),
        "lag_max": max(known, default=None),
    }


# ---------------------------------------------------------------------------------------- rates


def add_rates(rows: Rows, before: Snapshot | None, now: Snapshot) -> Rows:
    """With what changed since the snapshot before: None for what was not there then."""
    for row in rows:
        partitions = _partitions_of(row, now)
        read = _difference(before, now, row["group"], partitions)
        written = _written(before, now, partitions)
        row["change"] = None if read is None or written is None else Signed(written - read)
        seconds = 0.0 if before is None else (now.timestamp_ms - before.timestamp_ms) / 1_000
        row["read_per_second"] = _per_second(read, seconds)
        row["written_per_second"] = _per_second(written, seconds)
    return rows


def _partitions_of(row: Row, snapshot: Snapshot) -> list[TopicPartition]:
    if "partition" in row:
        return [(row["topic"], row["partition"])]
    return [one for one in snapshot.committed[row["group"]] if one[0] == row["topic"]]


def _difference(
    before: Snapshot | None, now: Snapshot, group: str, partitions: Sequence[TopicPartition]
) -> int | None:
    then = {} if before is None else before.committed.get(group, {})
    if any(one not in then for one in partitions):
        return None
    return sum(now.committed[group][one] - then[one] for one in partitions)


def _written(
    before: Snapshot | None, now: Snapshot, partitions: Sequence[TopicPartition]
) -> int | None:
    if before is None or any(
        one not in now.latest or one not in before.latest for one in partitions
    ):
        return None
    return sum(now.latest[one] - before.latest[one] for one in partitions)


def _per_second(count: int | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else round(count / seconds, 1)


# ---------------------------------------------------------------------------------------- shown


def columns_of(*, by_partition: bool, with_rates: bool) -> dict[str, str]:
    """Heading by the key of a row."""
    columns = {"group": "GROUP", "topic": "TOPIC"}
    if by_partition:
        columns |= {"partition": "PARTITION", "committed_offset": "COMMITTED"}
        columns |= {"latest_offset": "LATEST", "lag": "LAG"}
    else:
        columns |= {"partitions": "PARTITIONS", "lag": "LAG", "lag_max": "WORST"}
    if with_rates:
        columns |= {"change": "CHANGE", "read_per_second": "READ/S"}
        columns |= {"written_per_second": "WRITTEN/S"}
    return columns


def lag_table(rows: Rows, *, by_partition: bool, with_rates: bool = False) -> Table:
    columns = columns_of(by_partition=by_partition, with_rates=with_rates)
    return table_of(list(columns.values()), [[row[key] for key in columns] for row in rows])
