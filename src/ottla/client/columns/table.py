"""Fetched blocks as an Arrow table: topic, partition, offset, time, key, value, headers.

A column of keys or values is made without touching a record: a binary array whose slots are by
turns a field and the gap to the next one stands over the fetched bytes, and Arrow takes every other
slot. Nothing of the fetched bytes lives on in the table.

Always holds: rows stand in the order of the blocks, that is of each partition's offsets; a record
without headers has an empty list, one without a time (-1) a null.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.columns.memory import table_memory
from ottla.client.columns.rows import Rows, rows_of
from ottla.client.fetch_batches import RecordBlock
from ottla.records.columns import FieldColumn, Flags, HeaderColumns, Numbers, RecordColumns

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])

SCHEMA = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER_TYPE)),
    ]
)

EMPTY = SCHEMA.empty_table()

NO_TIMESTAMP = -1

_INT8, _INT32 = "int8", "int32"


class FetchedBlocks(NamedTuple):
    """Blocks of one partition, of which rows before `position` have been read already."""

    topic: str
    partition: int
    position: int
    blocks: Sequence[RecordBlock]


def table_of(fetched: Sequence[FetchedBlocks]) -> pa.Table:
    """One table of all rows."""
    return table_and_counts(fetched)[0]


def table_and_counts(fetched: Sequence[FetchedBlocks]) -> tuple[pa.Table, list[int]]:
    """One table of all rows, and how many of them are of each part."""
    blocks = [block for part in fetched for block in part.blocks]
    if not blocks:
        return EMPTY, [0] * len(fetched)
    rows = rows_of(blocks)
    columns = rows.columns
    values = columns.values()
    headers = columns.headers(values)
    keep, counts = _rows_to_keep(fetched, columns)
    topics = list(dict.fromkeys(part.topic for part in fetched))
    topic_numbers = [topics.index(part.topic) for part in fetched]
    arrays = [
        pa.DictionaryArray.from_arrays(
            _repeated(topic_numbers, counts), pa.array(topics, pa.string())
        ),
        _repeated([part.partition for part in fetched], counts),
        pa.array(_chosen(columns.offsets, keep)),
        _timestamps(_chosen(rows.timestamps, keep)),
        _timestamp_types(rows, keep),
        take_fields(columns.data, columns.keys(), keep),
        take_fields(columns.data, values, keep),
        _headers(columns.data, headers, keep, len(columns.offsets)),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA), counts.tolist()


def _repeated(numbers: Sequence[int], counts: Numbers) -> pa.Array:
    """Each number so many times; where there is one, the memory is that of other tables, too."""
    if len(numbers) == 1:
        return _constant(numbers[0], _INT32, int(counts[0]))
    return pa.array(np.repeat(np.array(numbers, np.int32), counts))


def _constant(number: int, kind: str, rows: int) -> pa.Array:
    return _constants(number, kind, 1 << rows.bit_length()).slice(0, rows)


@lru_cache(maxsize=32)
def _constants(number: int, kind: str, rows: int) -> pa.Array:
    return pa.array(np.full(rows, number, kind))


def _rows_to_keep(
    fetched: Sequence[FetchedBlocks], columns: RecordColumns
) -> tuple[Numbers | None, Numbers]:
    """Which rows have not been read before (None: all of them), and how many in each part. Only
    the first rows of a part can have been."""
    blocks = np.cumsum([0, *(len(part.blocks) for part in fetched)])
    firsts = columns.firsts[blocks]
    counts: Numbers = firsts[1:] - firsts[:-1]
    dropped: list[Numbers] = []
    for number, part in enumerate(fetched):
        rows = columns.offsets[firsts[number] : firsts[number + 1]]
        if len(rows) and rows[0] < part.position:
            before = np.flatnonzero(rows < part.position)
            dropped.append(before + firsts[number])
            counts[number] -= len(before)
    if not dropped:
        return None, counts
    keep = np.ones(len(columns.offsets), np.bool_)
    keep[np.concatenate(dropped)] = False
    return np.flatnonzero(keep), counts


def _chosen(column: Any, keep: Numbers | None) -> Any:
    return column if keep is None else column[keep]


def _timestamps(timestamps: Numbers) -> pa.Array:
    missing: Flags | None = timestamps == NO_TIMESTAMP
    if missing is not None and not missing.any():
        missing = None
    return pa.array(timestamps, pa.timestamp("ms", tz="UTC"), mask=missing)


def _timestamp_types(rows: Rows, keep: Numbers | None) -> pa.Array:
    """As in the protocol: 0 the producer's time, 1 the broker's."""
    types = rows.is_append_time.astype(np.int8)
    if not types.any():
        return _constant(0, _INT8, len(rows.timestamps) if keep is None else len(keep))
    return pa.array(_chosen(rows.columns.spread(types), keep))


def take_fields(data: Any, field: FieldColumn, keep: Numbers | None = None) -> pa.Array:
    """The field of each row that is kept, out of bytes in which they stand in this order."""
    if keep is not None:
        field = FieldColumn(field.starts[keep], field.lengths[keep])
    rows = len(field.starts)
    missing = field.lengths < 0
    if missing.all():
        return pa.nulls(rows, pa.binary())
    edges = np.empty(2 * rows, np.int32)
    edges[0::2] = field.starts
    edges[1::2] = field.ends()
    slots = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * rows - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    evens = np.arange(0, 2 * rows, 2, dtype=np.int32)
    places = pa.array(evens, mask=missing if missing.any() else None)
    return pc.take(slots, places, memory_pool=table_memory())


def _headers(data: Any, headers: HeaderColumns | None, keep: Numbers | None, rows: int) -> pa.Array:
    if headers is None:
        rows = rows if keep is None else len(keep)
        empty = pa.array([], HEADER_TYPE)
        return pa.ListArray.from_arrays(_constant(0, _INT32, rows + 1), empty)
    names = _names(take_fields(data, headers.names))
    pairs = pa.StructArray.from_arrays(
        [names, take_fields(data, headers.values)], fields=list(HEADER_TYPE)
    )
    lists = pa.ListArray.from_arrays(headers.firsts.astype(np.int32), pairs)
    return lists if keep is None else lists.take(pa.array(keep))


def _names(raw: pa.Array) -> pa.Array:
    """Names are UTF-8. Java shows a mark for what is not, and so does this."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [name.decode(errors="replace") for name in raw.to_pylist()]
        return pa.array(decoded, pa.string())
