"""The records of many batches as columns: where each begins and ends, its offset and time, where
its key, its value and its headers are.

One Python pass over the lengths of the records, which alone tell where the next one begins; all
other numbers are read for all records at once with numpy. About 0.3 µs a record, where a loop that
reads field by field takes 2. The cleaner reads keys this way, the client whole tables.

Never trusts a number: nothing that is read here may lead outside of its record. What does not fit
raises ProtocolError(CORRUPT_MESSAGE). Loaded on first use only: numpy takes 0.1 s to import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.base.errors import ProtocolError
from ottla.base.ports import Buffer
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.varints import read_varint

Numbers: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]

VARLONG_SHIFT_MAX = 63

_SIDE_BY_SIDE_MIN = 128
"""So many regions must go on at once, in the mean, for numpy to be faster than a loop."""

_RUN_MIN = 8
"""Fewer records of one size are not worth a slice."""
_RUN_PAUSE = 16

_TWO_BYTES = [2 + ((low & 127) >> 1) for low in range(256)]
"""By the first of two bytes that tell the length of a record: what it adds to the size."""

_HEADER_BYTES_MIN = 2
"""What a header of a record takes at least: two lengths."""


class Region(NamedTuple):
    """The records of one batch, at [start, end) of some bytes; `number` is the caller's."""

    number: int
    start: int
    end: int
    records: int


class FieldColumn(NamedTuple):
    """A field of every record: where it begins and how long it is; -1 stands for null."""

    starts: Numbers
    lengths: Numbers

    def ends(self) -> Numbers:
        ends: Numbers = self.starts + np.maximum(self.lengths, 0)
        return ends


class HeaderColumns(NamedTuple):
    """The headers of all records, one after the other: `firsts[n]` is the first of row n, and the
    last number is how many there are in all."""

    firsts: Numbers
    names: FieldColumn
    values: FieldColumn


class RecordColumns:
    """One row a record. Positions are in `data`, which may be the fetched bytes themselves."""

    __slots__ = (
        "after_times",
        "counts",
        "data",
        "ends",
        "firsts",
        "key_lengths",
        "key_starts",
        "offsets",
        "packed",
        "regions",
        "starts",
        "time_deltas",
    )

    def __init__(
        self,
        data: Buffer,
        regions: Sequence[Region],
        base_offsets: Numbers,
        last_offset_deltas: Numbers,
    ) -> None:
        """The last two are by region."""
        self.data = data
        self.packed: Bytes = np.frombuffer(data, np.uint8)
        self.regions = regions
        counts = np.array([region.records for region in regions], np.int64)
        self.counts: Numbers = counts
        """The rows of each region."""
        # Before anything is made of so many rows, they have been found.
        self.starts: Numbers = record_starts(data, regions)
        self.firsts: Numbers = np.concatenate(([0], np.cumsum(counts)))
        """The first row of each region, and behind the last."""
        self.ends: Numbers = np.empty_like(self.starts)
        self.ends[:-1] = self.starts[1:]
        filled = counts > 0
        region_ends = np.array([region.end for region in regions], np.int64)
        self.ends[self.firsts[1:][filled] - 1] = region_ends[filled]
        lengths, bodies = read_varints(self.packed, self.starts)
        self.time_deltas, self.after_times = read_varints(self.packed, bodies + 1)
        offset_deltas, at = read_varints(self.packed, self.after_times)
        self.offsets: Numbers = self.spread(base_offsets) + offset_deltas
        self.key_lengths, self.key_starts = read_varints(self.packed, at)
        fits = (offset_deltas >= 0) & (offset_deltas <= self.spread(last_offset_deltas))
        fits &= lengths == self.ends - bodies
        self._require_field(fits, self.keys())

    def spread(self, by_region: Any) -> Any:
        """What each region has, for each of its rows."""
        return np.repeat(by_region, self.counts)

    def keys(self) -> FieldColumn:
        return FieldColumn(self.key_starts, self.key_lengths)

    def values(self) -> FieldColumn:
        lengths, starts = read_varints(self.packed, self.keys().ends())
        values = FieldColumn(starts, lengths)
        self._require_field(np.ones(len(starts), np.bool_), values)
        return values

    def has_values(self) -> Flags:
        """False for tombstones."""
        has: Flags = self.values().lengths >= 0
        return has

    def headers(self, values: FieldColumn) -> HeaderColumns | None:
        """What stands behind the values; None if no record has a header."""
        counts, at = read_varints(self.packed, values.ends())
        if not counts.any():
            self._require(at == self.ends)
            return None
        # Counts are held against the bytes before they become memory.
        self._require((counts >= 0) & (counts <= (self.ends - at) // _HEADER_BYTES_MIN))
        return self._read_headers(counts, at)

    def per_region(self, flags: Flags) -> list[int]:
        """How many rows of each region are flagged."""
        before = np.concatenate(([0], np.cumsum(flags)))
        counts: list[int] = (before[self.firsts[1:]] - before[self.firsts[:-1]]).tolist()
        return counts

    def _read_headers(self, counts: Numbers, at: Numbers) -> HeaderColumns:
        """The first header of all rows that have one, then the second, and so on."""
        firsts: Numbers = np.concatenate(([0], np.cumsum(counts)))
        name_starts, name_lengths, value_starts, value_lengths = (
            np.empty(firsts[-1], np.int64) for _ in range(4)
        )
        rows = np.flatnonzero(counts)
        ends = self.ends
        number = 0
        while len(rows):
            slots = firsts[rows] + number
            lengths, starts = read_varints(self.packed, at[rows])
            self._require_rows(rows, (lengths >= 0) & (lengths < ends[rows] - starts))
            name_starts[slots], name_lengths[slots] = starts, lengths
            lengths, starts = read_varints(self.packed, starts + lengths)
            self._require_rows(rows, (lengths >= -1) & (lengths <= ends[rows] - starts))
            value_starts[slots], value_lengths[slots] = starts, lengths
            at[rows] = starts + np.maximum(lengths, 0)
            number += 1
            rows = rows[counts[rows] > number]
        self._require(at == ends)
        return HeaderColumns(
            firsts,
            FieldColumn(name_starts, name_lengths),
            FieldColumn(value_starts, value_lengths),
        )

    def _require_field(self, fits: Flags, field: FieldColumn) -> None:
        """One more byte at least must follow a key and a value."""
        fits &= (field.lengths >= -1) & (field.starts < self.ends)
        fits &= field.lengths < self.ends - field.starts
        self._require(fits)

    def _require(self, fits: Flags) -> None:
        if not fits.all():
            row = int(np.argmin(fits))
            raise _damaged(f"the record at offset {int(self.offsets[row])} is broken")

    def _require_rows(self, rows: Numbers, fits: Flags) -> None:
        if not fits.all():
            row = int(rows[np.argmin(fits)])
            raise _damaged(f"a header of the record at offset {int(self.offsets[row])} is broken")


def read_varints(packed: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The signed number at each position, and the position behind it. What leads outside of the
    bytes is read from their end: whoever asks must look where it stood.

    Numbers of one column are mostly of one width, and then small ones: those are read in as few
    and as narrow steps as will do, 0.005 µs each; any others take 0.015.
    """
    first = packed.take(at, mode="clip")
    if len(first) == 0 or first.max() < 128:
        narrow: Numbers = _signed(first.view(np.int8)).astype(np.int64)
        return narrow, at + 1
    if first.min() > 127:
        second = packed.take(at + 1, mode="clip")
        if second.max() < 128:
            both = (first & 127).astype(np.int16) | second.astype(np.int16) << 7
            wider: Numbers = _signed(both).astype(np.int64)
            return wider, at + 2
    return _read_any_varints(packed, first.astype(np.int64), at + 1)


def _signed(codes: Any) -> Any:
    """Of codes whose highest bit is not set."""
    return (codes >> 1) ^ -(codes & 1)


def _read_any_varints(packed: Bytes, code: Numbers, at: Numbers) -> tuple[Numbers, Numbers]:
    wide = np.flatnonzero(code > 127)
    shift = 0
    code &= 127
    while len(wide):
        shift += 7
        if shift > VARLONG_SHIFT_MAX:
            raise _damaged("a number in a record has too many bits")
        following = packed.take(at[wide], mode="clip").astype(np.int64)
        at[wide] += 1
        code[wide] |= (following & 127) << shift
        wide = wide[following > 127]
    # The right shift of a varlong is one of its 64 bits without a sign.
    value: Numbers = ((code >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(code & 1)
    return value, at


def record_starts(data: Buffer, regions: Sequence[Region]) -> Numbers:
    """Follows the lengths from record to record; each region must end where its last one does.

    Many regions are walked side by side, few one after the other (bench/micro/bench_columns.py:
    0.03 to 0.1 µs a record against 0.15, or 0.01 where records are of one size).
    """
    counts = [region.records for region in regions]
    # Before memory is made of so many.
    if any(not _may_hold(region) for region in regions):
        raise _damaged("the number of records does not fit their bytes")
    if sum(counts) >= _SIDE_BY_SIDE_MIN * max(counts, default=1):
        return _walk_side_by_side(np.frombuffer(data, np.uint8), regions)
    walk = _Walk(data)
    try:
        for region in regions:
            walk.follow(region)
    except (IndexError, ProtocolError) as cause:
        raise _damaged("a record runs over the end of its batch") from cause
    return walk.starts()


def _may_hold(region: Region) -> bool:
    size = region.end - region.start
    return 0 < region.records <= size if size else region.records == 0


def _walk_side_by_side(packed: Bytes, regions: Sequence[Region]) -> Numbers:
    """The first record of all regions, then the second of those that have one, and so on."""
    counts = np.array([region.records for region in regions], np.int64)
    order = np.argsort(-counts, kind="stable")
    rising = counts[order][::-1]
    found: Numbers = np.empty(int(counts.sum()), np.int64)
    slots = (np.cumsum(counts) - counts)[order]
    at: Numbers = np.array([region.start for region in regions], np.int64)[order]
    left = len(regions)
    for step in range(int(rising[-1])):
        left = len(regions) - int(np.searchsorted(rising, step, side="right"))
        slots, at = slots[:left], at[:left]
        found[slots] = at
        slots += 1
        low = packed.take(at, mode="clip").astype(np.int64)
        high = packed.take(at + 1, mode="clip").astype(np.int64)
        is_wide = low > 127
        long = np.flatnonzero(is_wide & (high > 127))
        following = at + 1 + (low >> 1) + is_wide * ((high << 6) - 63)
        if len(long):
            lengths, bodies = read_varints(packed, at[long])
            if (lengths < 0).any() or (lengths > len(packed)).any():
                raise _damaged("the length of a record is wrong")
            following[long] = bodies + lengths
        at = following
    # Where a walk left its region, the lengths do not fit what comes next: the columns find that.
    return found


class _Walk:
    """Goes through regions record by record, in runs of records of one size where it can."""

    __slots__ = ("_data", "_followed", "_pieces")

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._pieces: list[Numbers] = []
        self._followed: list[int] = []

    def starts(self) -> Numbers:
        self._pieces.append(np.array(self._followed, np.int64))
        return np.concatenate(self._pieces)

    def follow(self, region: Region) -> None:
        _, at, end, left = region
        steps = _RUN_PAUSE
        while left:
            size, run = self._run_of_one_size(at, end, left)
            if run:
                if self._followed:
                    self._pieces.append(np.array(self._followed, np.int64))
                    self._followed = []
                self._pieces.append(np.arange(at, at + size * run, size))
                at += size * run
                left -= run
                continue
            walked = min(left, steps)
            at = self._follow_lengths(at, walked)
            left -= walked
            steps *= 2  # a search in vain costs as much as four records
        if at != end:
            raise _damaged("the records of a batch do not fill it")

    def _run_of_one_size(self, at: int, end: int, left: int) -> tuple[int, int]:
        """The size of the next records, and for how many it is the same. A stepped slice takes
        the same byte out of all lengths at once; where one differs, the run ends."""
        data = self._data
        low = data[at]
        if low < 128:
            width, size = 1, 1 + (low >> 1)
        else:
            high = data[at + 1]
            width, size = 2, _TWO_BYTES[low] + (high << 6)
            if high > 127:
                return 0, 0
        run = min(left, (end - at) // size)
        if run < _RUN_MIN or data[at + size] != low or data[at + size * (_RUN_MIN - 1)] != low:
            return 0, 0
        for place in range(at, at + width):
            column = bytes(data[place : place + size * (run - 1) + 1 : size])
            run -= len(column.lstrip(column[:1]))
        return (size, run) if run >= _RUN_MIN else (0, 0)

    def _follow_lengths(self, at: int, count: int) -> int:
        data, append, two_bytes = self._data, self._followed.append, _TWO_BYTES
        for _ in range(count):
            append(at)
            low = data[at]
            if low > 127:
                high = data[at + 1]
                if high < 128:
                    at += two_bytes[low] + (high << 6)
                else:
                    length, body = read_varint(data, at)
                    if length < 0:
                        raise _damaged("the length of a record is wrong")
                    at = body + length
            else:
                at += 1 + (low >> 1)
        return at


def _damaged(what: str) -> ProtocolError:
    return ProtocolError(CORRUPT_MESSAGE, what)
