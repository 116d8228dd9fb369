"""The records of many batches as columns: where each begins and ends, its key, whether it has a
value, its time and offset.

One Python pass over the lengths of the records, which alone tell where the next one begins; all
other numbers are read for all records at once. About 0.4 µs a record, where a loop that reads field
by field takes 2. The checksum has been held against the bytes before; still nothing that is read
here may lead outside of its record: such a batch is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.base.errors import ProtocolError
from ottla.log.compaction_batches import BatchRun, CannotClean
from ottla.log.key_map import Bytes, Numbers
from ottla.records.batch_header import BASE_OFFSET, HEADER_SIZE, RECORD_COUNT
from ottla.records.varints import read_varint, varint

Flags = npt.NDArray[np.bool_]

VARLONG_SHIFT_MAX = 63

UNPACKED_BYTES_MAX = 8 * 1024 * 1024
"""Of packed batches, about this much is unpacked at a time: many small ones can be of many bytes
each, and a run is full of them."""


class Region(NamedTuple):
    """The records of batch `number` of a run, at [start, end) of some bytes."""

    number: int
    start: int
    end: int
    records: int


class RecordColumns:
    """One row a record. Positions are in `data`, which may be the chunk itself."""

    __slots__ = (
        "after_times",
        "data",
        "ends",
        "firsts",
        "key_lengths",
        "key_starts",
        "offsets",
        "owners",
        "packed",
        "regions",
        "starts",
        "time_deltas",
    )

    def __init__(self, data: bytes, regions: list[Region], base_offsets: Numbers) -> None:
        self.data = data
        self.packed: Bytes = np.frombuffer(data, np.uint8)
        self.regions = regions
        counts = np.array([region.records for region in regions], np.int64)
        self.firsts: Numbers = np.concatenate(([0], np.cumsum(counts)))
        """The first row of each region, and behind the last."""
        self.owners: Numbers = np.repeat(np.arange(len(regions)), counts)
        """The region of each row."""
        self.starts: Numbers = np.array(_record_starts(data, regions), np.int64)
        self.ends: Numbers = self._where_records_end(counts)
        lengths, bodies = self._read_varints(self.starts)
        self.time_deltas, self.after_times = self._read_varints(bodies + 1)
        offset_deltas, at = self._read_varints(self.after_times)
        self.offsets: Numbers = base_offsets[self.owners] + offset_deltas
        self.key_lengths, self.key_starts = self._read_varints(at)
        fits = (self.key_lengths >= -1) & (offset_deltas >= 0) & (bodies + lengths == self.ends)
        fits &= self.key_starts + np.maximum(self.key_lengths, 0) < self.ends
        self._require(fits)

    def has_values(self) -> Flags:
        """False for tombstones."""
        at = self.key_starts + np.maximum(self.key_lengths, 0)
        lengths, after = self._read_varints(at)
        self._require((lengths >= -1) & (after + np.maximum(lengths, 0) < self.ends))
        has: Flags = lengths >= 0
        return has

    def per_region(self, flags: Flags) -> list[int]:
        """How many rows of each region are flagged."""
        before = np.concatenate(([0], np.cumsum(flags)))
        counts: list[int] = (before[self.firsts[1:]] - before[self.firsts[:-1]]).tolist()
        return counts

    def _where_records_end(self, counts: Numbers) -> Numbers:
        ends = np.empty_like(self.starts)
        ends[:-1] = self.starts[1:]
        filled = counts > 0
        region_ends = np.array([region.end for region in self.regions], np.int64)
        ends[self.firsts[1:][filled] - 1] = region_ends[filled]
        return ends

    def _read_varints(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """The number at each position, and the position behind it. What leads outside of the bytes
        is read from their end; `_require` finds it."""
        code = self.packed.take(at, mode="clip").astype(np.int64)
        at = at + 1
        wide = np.flatnonzero(code > 127)
        shift = 0
        if len(wide):
            code &= 127
        while len(wide):
            shift += 7
            if shift > VARLONG_SHIFT_MAX:
                raise CannotClean("a number in a record has too many bits")
            following = self.packed.take(at[wide], mode="clip").astype(np.int64)
            at[wide] += 1
            code[wide] |= (following & 127) << shift
            wide = wide[following > 127]
        # The right shift of a varlong is one of its 64 bits without a sign.
        value: Numbers = ((code >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(code & 1)
        return value, at

    def _require(self, fits: Flags) -> None:
        if not fits.all():
            row = int(np.argmin(fits))
            raise CannotClean(f"the record at offset {int(self.offsets[row])} is broken")


def columns_of(run: BatchRun, numbers: list[int]) -> Iterator[RecordColumns]:
    """Of the batches `numbers` of a run, in order. Plain ones are read where they stand, all at
    once; packed ones are unpacked, some at a time."""
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
        yield RecordColumns(run.chunk, regions, _base_offsets(run, regions))


def _columns_of_packed(run: BatchRun, numbers: list[int]) -> Iterator[RecordColumns]:
    regions: list[Region] = []
    parts: list[bytes] = []
    position = 0
    for number in numbers:
        part = run.records_of(number)
        if regions and position + len(part) > UNPACKED_BYTES_MAX:
            yield RecordColumns(b"".join(parts), regions, _base_offsets(run, regions))
            regions, parts, position = [], [], 0
        end = position + len(part)
        regions.append(Region(number, position, end, run.headers[number][RECORD_COUNT]))
        parts.append(part)
        position = end
    yield RecordColumns(b"".join(parts), regions, _base_offsets(run, regions))


def _base_offsets(run: BatchRun, regions: list[Region]) -> Numbers:
    return np.array([run.headers[region.number][BASE_OFFSET] for region in regions], np.int64)


def _record_starts(data: bytes, regions: list[Region]) -> list[int]:
    """Follows the lengths from record to record; each region must end where its last one does."""
    starts: list[int] = []
    append = starts.append
    try:
        for _, position, end, count in regions:
            if _are_alike(data, position, end, count):
                starts += range(position, end, (end - position) // count)
                continue
            at = position
            for _ in range(count):
                append(at)
                code = data[at]
                if code < 128:
                    at += 1 + (code >> 1)
                    continue
                high = data[at + 1]
                if high < 128:
                    at += 2 + ((code & 127 | high << 7) >> 1)
                else:
                    length, body = read_varint(data, at)
                    at = body + length
            if at != end:
                raise CannotClean("the records of a batch do not fill it")
    except (IndexError, ProtocolError) as cause:
        raise CannotClean("a record runs over the end of its batch") from cause
    return starts


def _are_alike(data: bytes, start: int, end: int, count: int) -> bool:
    """Whether all records are of one size that is told in two bytes: then a stepped slice takes
    the same byte out of all lengths at once, and there is no need to follow them."""
    size = (end - start) // count
    if size * count != end - start or size < 3:
        return False
    code = varint(size - 2)
    return (
        len(code) == 2
        and data[start:end:size] == code[:1] * count
        and data[start + 1 : end : size] == code[1:] * count
    )
