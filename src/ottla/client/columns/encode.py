"""Rows of Arrow columns as record batches, laid out byte for byte as `records.batch_builder` does
it, with no Python object per record.

The numbers of all records are written by numpy into one small piece before the key and one before
the value; pieces, keys, values and headers are gathered (`gather`). About 0.1 µs a record of 100
bytes.

Never decides which partition a row belongs to (`partitioning`), nor what a batch's producer id and
sequence are: `RecordStretch.batch` leaves them to the producer, and with them the checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.columns.gather import Strings, gather
from ottla.client.columns.varint_columns import Pieces, Varints
from ottla.records.columns import Flags, Numbers

RECORD_OVERHEAD_MAX = 21
"""Beside key, value, headers and their four lengths: the record's own length, attributes, and both
deltas."""

_NO_HEADERS = b"\x00"
"""Their number, at the end of a record."""


class RowColumns(NamedTuple):
    """What rows are made of; arrays of equal length, null or None for what a record has not."""

    keys: pa.Array | None
    values: pa.Array | None
    headers: pa.Array | None
    timestamps: Numbers

    def take(self, order: Numbers) -> RowColumns:
        indices = pa.array(order)
        return RowColumns(
            None if self.keys is None else self.keys.take(indices),
            None if self.values is None else self.values.take(indices),
            None if self.headers is None else self.headers.take(indices),
            self.timestamps[order],
        )


class RecordStretch(NamedTuple):
    """The records of one batch, not packed: bytes, how many, first and latest time."""

    records: memoryview
    record_count: int
    base_timestamp: int
    max_timestamp: int


class Encoder:
    """Rows, at least one, that have been measured; the batches are cut before they are encoded,
    since a record names its place in its batch. With an `order` they are those rows in that
    order, and everything that is said of rows here is of that order."""

    __slots__ = ("_fields", "_headers", "_order", "_rows", "_timestamps", "sizes_max")

    def __init__(self, rows: RowColumns, order: Numbers | None = None) -> None:
        self._order = order
        self._timestamps = rows.timestamps if order is None else rows.timestamps[order]
        self._rows = len(rows.timestamps)
        self._fields = [_Field(one, self._rows, order) for one in (rows.keys, rows.values)]
        self._headers = _Headers(rows.headers, self._rows, order)
        self.sizes_max: Numbers = (
            RECORD_OVERHEAD_MAX
            + self._fields[0].sizes
            + self._fields[1].sizes
            + self._headers.sizes
        )
        """No record takes more bytes, wherever its batch begins."""

    def encode(self, cuts: Sequence[int]) -> Iterator[RecordStretch]:
        """Batches of the rows from each cut to the next; the first is 0, the last the end."""
        firsts = np.array(cuts[:-1], np.int64)
        counts: Numbers = np.array(cuts[1:], np.int64) - firsts
        offset_deltas: Numbers = np.arange(self._rows) - np.repeat(firsts, counts)
        time_deltas = self._timestamps - np.repeat(self._timestamps[firsts], counts)
        latest = np.maximum.reduceat(self._timestamps, firsts).tolist()
        data, edges = self._join(Varints.of(time_deltas), Varints.of(offset_deltas))
        view = memoryview(data)
        starts = edges[np.array(cuts, np.int64)].tolist()
        for batch, count in enumerate(counts.tolist()):
            base_timestamp = int(self._timestamps[cuts[batch]])
            records = view[starts[batch] : starts[batch + 1]]
            yield RecordStretch(records, count, base_timestamp, latest[batch])

    def _join(self, time_deltas: Varints, offset_deltas: Varints) -> tuple[pa.Buffer, Numbers]:
        """The bytes of all records, and where each begins."""
        keys, values = self._fields
        lengths = keys.sizes + values.sizes + self._headers.sizes
        lengths += 1 + time_deltas.widths
        lengths += offset_deltas.widths
        head: list[Varints | bytes] = [Varints.of(lengths), b"\x00", time_deltas, offset_deltas]
        end = b"" if self._headers.parts else _NO_HEADERS
        if end:
            head.insert(0, end)  # of the record before: saves a part for each
        parts: list[Strings] = []
        for field in self._fields:
            head.append(field.lengths)
            if field.array is not None:
                pieces = _as_array(Pieces(head, self._rows))
                parts += [Strings(pieces), Strings(field.array, self._order)]
                head = []
        if head:  # there are no values at all
            parts.append(Strings(_as_array(Pieces(head, self._rows))))
        data, edges = gather([*parts, *self._headers.parts], end)
        edges += len(end)
        return data, edges


class _Field:
    """Keys or values: their lengths, the bytes (None if all are null) and what both take. The bytes
    alone are in the order of the table."""

    __slots__ = ("array", "lengths", "sizes")

    def __init__(self, array: pa.Array | None, rows: int, order: Numbers | None) -> None:
        if array is None or array.null_count == rows:
            self.array = None
            self.lengths = Varints(np.ones(rows, np.uint64))
            self.sizes: Numbers = np.ones(rows, np.int64)
            return
        self.array = array
        missing, lengths = lengths_of(array)
        told = lengths if missing is None else np.where(missing, -1, lengths)
        if order is not None:
            lengths, told = lengths[order], told[order]
        self.lengths = Varints.of(told)
        self.sizes = lengths + self.lengths.widths


class _Headers:
    """The number of headers of each row and their bytes, as they stand at the end of a record; no
    parts where no row has any. The parts alone are in the order of the table."""

    __slots__ = ("parts", "sizes")

    def __init__(self, lists: pa.Array | None, rows: int, order: Numbers | None) -> None:
        self.parts: list[Strings] = []
        if lists is None or len(lists.flatten()) == 0:
            self.sizes: Numbers = np.full(rows, len(_NO_HEADERS), np.int64)
            return
        counts = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        pairs = lists.flatten()
        names = pairs.field(0).cast(pa.binary())
        data, edges = _join_headers([names, pairs.field(1)], len(pairs))
        firsts: Numbers = np.concatenate(([0], np.cumsum(counts)))
        row_edges = edges[firsts]
        together = pa.BinaryArray.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(row_edges.astype(np.int32)), data]
        )
        numbers = Varints.of(counts)
        sizes = row_edges[1:] - row_edges[:-1] + numbers.widths
        self.sizes = sizes if order is None else sizes[order]
        self.parts = [
            Strings(_as_array(Pieces([numbers], rows)), order),
            Strings(together, order),
        ]


def _join_headers(columns: list[pa.Array], rows: int) -> tuple[pa.Buffer, Numbers]:
    parts: list[Strings] = []
    for column in columns:
        field = _Field(column, rows, None)
        parts.append(Strings(_as_array(Pieces([field.lengths], rows))))
        if field.array is not None:
            parts.append(Strings(field.array))
    return gather(parts)


def lengths_of(array: pa.Array) -> tuple[Flags | None, Numbers]:
    """Which rows of a binary array are null (None if there are none), and how long each is."""
    lengths = pc.binary_length(array)
    if array.null_count == 0:
        return None, lengths.to_numpy().astype(np.int64)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    return missing, lengths.fill_null(0).to_numpy().astype(np.int64)


def _as_array(pieces: Pieces) -> pa.Array:
    edges = pieces.edges.astype(np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(),
        len(edges) - 1,
        [None, pa.py_buffer(edges), pa.py_buffer(pieces.packed)],
    )


def cut_by_size(sizes_max: Numbers, first: int, end: int, limit: int) -> list[int]:
    """Where batches of the rows [first, end) begin, each of at most `limit` bytes of records, but
    one record at least."""
    cuts = []
    reached = np.cumsum(sizes_max[first:end])
    at = 0
    while at < end - first:
        cuts.append(first + at)
        before = int(reached[at - 1]) if at else 0
        at = max(at + 1, int(np.searchsorted(reached, before + limit, side="right")))
    return cuts
