"""The rows of fetched blocks: `RecordColumns` of all of them at once, whatever they stood in.

Owns the step from blocks (one a batch) to one set of columns: blocks of one frame are read where
they stand, others are put one behind the other first (a copy of 100 bytes takes 0.01 µs). Never
makes an object per record. What is broken raises ProtocolError(CORRUPT_MESSAGE).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ottla.base.ports import Buffer
from ottla.client.fetch_batches import RecordBlock
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME_MASK,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from ottla.records.columns import Flags, Numbers, RecordColumns, Region


class Rows(NamedTuple):
    """Columns of some blocks, and the times of their records; one row a record."""

    columns: RecordColumns
    timestamps: Numbers
    is_append_time: Flags
    """By block."""


def rows_of(blocks: Sequence[RecordBlock]) -> Rows:
    """All rows of `blocks`, in order; there is one block at least, and each has records."""
    data, regions = _one_buffer(blocks)
    fields = np.array([block.header for block in blocks], np.int64)
    columns = RecordColumns(data, regions, fields[:, BASE_OFFSET], fields[:, LAST_OFFSET_DELTA])
    is_append_time = fields[:, ATTRIBUTES] & LOG_APPEND_TIME_MASK != 0
    timestamps = columns.spread(fields[:, BASE_TIMESTAMP]) + columns.time_deltas
    if is_append_time.any():
        by_broker = columns.spread(is_append_time)
        timestamps[by_broker] = columns.spread(fields[:, MAX_TIMESTAMP])[by_broker]
    return Rows(columns, timestamps, is_append_time)


def _one_buffer(blocks: Sequence[RecordBlock]) -> tuple[Buffer, list[Region]]:
    data = blocks[0].data
    if all(block.data is data for block in blocks):
        return data, [
            Region(number, block.start, block.end, block.header[RECORD_COUNT])
            for number, block in enumerate(blocks)
        ]
    regions = []
    position = 0
    for number, block in enumerate(blocks):
        end = position + block.end - block.start
        regions.append(Region(number, position, end, block.header[RECORD_COUNT]))
        position = end
    joined = b"".join([memoryview(block.data)[block.start : block.end] for block in blocks])
    return joined, regions
