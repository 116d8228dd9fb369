"""The records of a run of batches as columns (`ottla.records.columns`), for the cleaner.

The checksum has been held against the bytes before; what is broken all the same is `CannotClean`,
and the log stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ottla.base.errors import ProtocolError
from ottla.log.compaction_batches import BatchRun, CannotClean
from ottla.records.batch_header import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET_DELTA, RECORD_COUNT
from ottla.records.columns import Flags, Numbers, RecordColumns, Region

UNPACKED_BYTES_MAX = 8 * 1024 * 1024
"""Of packed batches, about this much is unpacked at a time: many small ones can be of many bytes
each, and a run is full of them."""


def has_values(columns: RecordColumns) -> Flags:
    """False for tombstones."""
    try:
        return columns.has_values()
    except ProtocolError as cause:
        raise CannotClean(cause.message) from cause


def columns_of(run: BatchRun, numbers: list[int]) -> Iterator[RecordColumns]:
    """Of the batches `numbers` of a run, in order; all of them have records. Plain ones are read
    where they stand, all at once; packed ones are unpacked, some at a time."""
    if any(run.is_packed(number) for number in numbers):
        yield from _columns_of_packed(run, numbers)
    elif numbers:
        regions = [
            Region(
                number,
                run.starts[number] + HEADER_SIZE,
                run.end(number),
                run.headers[number][RECORD_COUNT],
            )
            for number in numbers
        ]
        yield _columns(run, run.chunk, regions)


def _columns_of_packed(run: BatchRun, numbers: list[int]) -> Iterator[RecordColumns]:
    regions: list[Region] = []
    parts: list[bytes] = []
    position = 0
    for number in numbers:
        part = run.records_of(number)
        if regions and position + len(part) > UNPACKED_BYTES_MAX:
            yield _columns(run, b"".join(parts), regions)
            regions, parts, position = [], [], 0
        end = position + len(part)
        regions.append(Region(number, position, end, run.headers[number][RECORD_COUNT]))
        parts.append(part)
        position = end
    yield _columns(run, b"".join(parts), regions)


def _columns(run: BatchRun, data: bytes, regions: list[Region]) -> RecordColumns:
    try:
        return RecordColumns(
            data,
            regions,
            _of_headers(run, regions, BASE_OFFSET),
            _of_headers(run, regions, LAST_OFFSET_DELTA),
        )
    except ProtocolError as cause:
        raise CannotClean(cause.message) from cause


def _of_headers(run: BatchRun, regions: list[Region], place: int) -> Numbers:
    return np.array([run.headers[region.number][place] for region in regions], np.int64)
