"""Handing out what was fetched as one table: of many partitions at once, so that the fixed cost of
columns is paid once.

Decodes whole batches. Where the last one does not fit, what is over stays with its item and comes
first next time. Nothing counts as handed out before everything has been decoded; a partition that
cannot be read is left where it is, and its error is raised when it is first in line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.base.errors import ProtocolError
from ottla.base.ids import TopicPartition
from ottla.client.columns.table import EMPTY, FetchedBlocks, table_and_counts
from ottla.client.consumer_errors import CorruptBatchError
from ottla.client.fetch_queue import FetchedItem
from ottla.records.batch_header import LEADER_EPOCH, RECORD_COUNT

_FOR_TABLES = "tables"

_UNBOUNDED = 1 << 62


class TakenRows(NamedTuple):
    """How far an item has been handed out."""

    item: FetchedItem
    position: int
    epoch: int
    is_done: bool


class _Left(NamedTuple):
    """Rows that did not fit, and where the partition stands behind them."""

    table: pa.Table
    end: int
    epoch: int


class TableReader:
    """One call of `fetch_table`."""

    def __init__(self, max_rows: int | None, max_bytes: int | None, key: Any, value: Any) -> None:
        for name, given in (("max_rows", max_rows), ("max_bytes", max_bytes)):
            if given is not None and given < 1:
                raise ValueError(f"{name}={given}: at least 1 is needed")
        self._rows_max = max_rows or _UNBOUNDED
        self._bytes_max = max_bytes or _UNBOUNDED
        self._formats = {"key": key, "value": value}
        self._table: pa.Table = EMPTY
        self.began: dict[TopicPartition, tuple[int, int]] = {}
        """Where the rows of each partition begin, and in which epoch that was known."""

    @property
    def rows(self) -> int:
        return int(self._table.num_rows)

    def take(self, items: Sequence[FetchedItem]) -> list[TakenRows]:
        """Reads as much of `items` as fits; what was handed out of which."""
        taken = self._take(items)
        for item in [one.item for one in taken]:
            state = item.state
            self.began.setdefault(state.key, (state.position or 0, state.position_epoch))
        return taken

    def _take(self, items: Sequence[FetchedItem]) -> list[TakenRows]:
        left_over = _left_over(items[0])
        if left_over is not None:
            return [self._take_left_over(items[0], left_over)]
        gathered = self._gather(items)
        try:
            table, counts = table_and_counts(gathered)
        except ProtocolError:
            gathered, table, counts = _until_broken(gathered, items)
        taken = []
        over = max(0, table.num_rows - self._rows_max)
        for number, item in enumerate(items[: len(gathered)]):
            is_cut = over > 0 and number == len(gathered) - 1
            if is_cut:
                kept = counts[number] - over
                rows = table.slice(table.num_rows - counts[number])
                table = table.slice(0, self._rows_max)
                taken.append(_cut(item, rows, kept))
            else:
                taken.append(_whole(item))
        self._table = table
        return taken

    def table(self) -> pa.Table:
        table = self._table
        for name, chosen in self._formats.items():
            if chosen is not None:
                place = table.schema.get_field_index(name)
                decoded = chosen.decode(table[name])
                table = table.set_column(place, name, decoded)
        return table

    def _gather(self, items: Sequence[FetchedItem]) -> list[FetchedBlocks]:
        rows = size = 0
        gathered: list[FetchedBlocks] = []
        for item in items:
            if rows >= self._rows_max or size >= self._bytes_max:
                break
            if gathered and _left_over(item) is not None:
                break
            try:
                rows, size = self._open_blocks(item, rows, size)
            except ProtocolError as cause:
                if gathered:
                    break
                raise _corrupt(item, cause) from cause
            topic, partition = item.state.key
            position = item.state.position or 0
            gathered.append(FetchedBlocks(topic, partition, position, list(item.blocks)))
        return gathered

    def _open_blocks(self, item: FetchedItem, rows: int, size: int) -> tuple[int, int]:
        for block in item.blocks:
            rows += block.header[RECORD_COUNT]
            size += block.end - block.start
        if rows < self._rows_max and size < self._bytes_max:
            for block in item.more_blocks():
                rows += block.header[RECORD_COUNT]
                size += block.end - block.start
                if rows >= self._rows_max or size >= self._bytes_max:
                    break
        return rows, size

    def _take_left_over(self, item: FetchedItem, left: _Left) -> TakenRows:
        if left.table.num_rows <= self._rows_max:
            self._table = left.table
            return _whole(item)
        self._table = left.table.slice(0, self._rows_max)
        return _cut(item, left.table, self._rows_max)


def _left_over(item: FetchedItem) -> _Left | None:
    left = item.cached
    return left if item.cached_for is _FOR_TABLES and isinstance(left, _Left) else None


def _whole(item: FetchedItem) -> TakenRows:
    """All that was opened of an item has been handed out."""
    position, epoch = item.state.position or 0, -1
    if item.blocks:
        last = item.blocks[-1]
        position, epoch = last.next_offset(), last.header[LEADER_EPOCH]
    item.cached = item.cached_for = None
    item.blocks.clear()
    is_done = not item.has_more()
    if is_done and item.batches is not None:
        position = item.batches.position
    return TakenRows(item, position, epoch, is_done)


def _cut(item: FetchedItem, rows: pa.Table, kept: int) -> TakenRows:
    """`kept` of the rows have been handed out, the rest waits."""
    rest = rows.slice(kept)
    last = item.blocks[-1]
    item.cached = _Left(rest, last.next_offset(), last.header[LEADER_EPOCH])
    item.cached_for = _FOR_TABLES
    position = rest["offset"][0].as_py()
    item.drop_blocks_before(position)
    return TakenRows(item, position, item.blocks[0].header[LEADER_EPOCH], False)


def _until_broken(
    gathered: list[FetchedBlocks], items: Sequence[FetchedItem]
) -> tuple[list[FetchedBlocks], pa.Table, list[int]]:
    """One after the other, up to the first that cannot be read; raises if that is the first."""
    tables: list[pa.Table] = []
    counts: list[int] = []
    for item, part in zip(items, gathered, strict=False):
        try:
            table, _ = table_and_counts([part])
        except ProtocolError:
            if tables:
                break
            table = _until_broken_block(item, part)
        tables.append(table)
        counts.append(table.num_rows)
        if len(item.blocks) < len(part.blocks):
            break
    return gathered[: len(tables)], pa.concat_tables(tables), counts


def _until_broken_block(item: FetchedItem, part: FetchedBlocks) -> pa.Table:
    """The blocks before the one that is damaged; raises if that is the first."""
    tables: list[pa.Table] = []
    for block in part.blocks:
        try:
            tables.append(table_and_counts([part._replace(blocks=[block])])[0])
        except ProtocolError as cause:
            if not tables:
                raise _corrupt(item, cause) from cause
            break
    item.keep_blocks(len(tables))
    return pa.concat_tables(tables)


def _corrupt(item: FetchedItem, cause: ProtocolError) -> CorruptBatchError:
    return CorruptBatchError(item.state.key, item.damaged_at(), cause.message)
