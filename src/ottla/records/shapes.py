"""Shapes of batches seen often: the structure of all their records is checked by one match.

A producer of fixed-size values writes batch after batch of the same shape: as many records, of the
same sizes in all their parts. After LEARN_AFTER of them the shape is kept as a regular expression
that spells out every byte of structure (lengths, offset deltas, no headers) and passes over keys,
values and timestamp deltas. A match of 15 records takes 0.6 µs, where the walk takes 4. What has
more records is checked by columns, as the walk does it, but by slices that are known beforehand.

Owns the shapes and their bounds. Never refuses anything: what does not match is left to the walk
(`records/walk.py`). Invariant: what matches the walk would accept, and with the same largest delta.
A batch is counted after the walk took it, and each shape is tried on the batch it was made from.
"""

from __future__ import annotations

import re

from ottla.base.errors import ProtocolError
from ottla.protocol.error_codes import INVALID_RECORD
from ottla.records.varint_tables import DELTA_1, NOT_ABOVE
from ottla.records.varints import read_varint
from ottla.records.walk import block_end, offset_columns

MATCHED_MAX = 64
"""Their offset deltas have one byte. To compile the expression of a larger batch takes too long."""
RECORDS_MAX = 4096
LEARN_AFTER = 100
"""To compile one takes as long as several hundred batches without: it has to pay."""
SHAPES_MAX = 64
COUNTED_MAX = 256

Key = tuple[int, int]
"""How many records, and how many bytes they have together."""


class Shape:
    __slots__ = ("_delta_at", "_fullmatch", "_record_bytes", "has_keys")

    def __init__(self, data: bytes, start: int, count: int) -> None:
        """By the first of `count` records in `data`, which the walk has found right."""
        length, body = read_varint(data, start)
        end = body + length
        key_at = body + 3  # behind the attributes, one byte of time, one of offset
        key_length, key_from = read_varint(data, key_at)
        value_at = key_from + max(key_length, 0)
        value_length, value_from = read_varint(data, value_at)
        self.has_keys = key_length >= 0
        self._record_bytes = end - start
        self._delta_at = body + 1 - start
        before = re.escape(data[start:body]) + b".[\\x00-\\x7f]"
        key = re.escape(data[key_at:key_from]) + _any(key_length)
        value = re.escape(data[value_at:value_from]) + _any(value_length)
        pattern = b"".join(
            b"%b\\x%02x%b%b\\x00" % (before, 2 * index, key, value) for index in range(count)
        )
        self._fullmatch = re.compile(pattern, re.DOTALL).fullmatch

    def largest_delta(self, data: bytes, start: int) -> int | None:
        """The largest timestamp delta, if all from `start` on is of this shape and the largest is
        the last, as it is unless the producer's clock went back. None leaves it to the walk."""
        if self._fullmatch(data, start) is None:
            return None
        deltas = data[start + self._delta_at :: self._record_bytes]
        last = deltas[-1]
        return None if deltas.translate(None, NOT_ABOVE[last]) else DELTA_1[last]


class LongShape:
    """As a Shape, of more records: the bytes of structure that stand in the same place in each are
    compared at once, column by column. Of records that differ in the width of their offset deltas
    (from the 64th on) each run has columns of its own."""

    __slots__ = ("_columns", "_deltas", "_start", "has_keys")

    def __init__(self, start: int) -> None:
        self._start = start
        self._columns: list[tuple[slice, bytes]] = []
        self._deltas: list[slice] = []
        self.has_keys = True

    @classmethod
    def of(cls, data: bytes, start: int, count: int) -> LongShape | None:
        """By the first record of each run in `data`; None if these are not plain or not alike."""
        shape = cls(start)
        position, index = start, 0
        try:
            while index < count:
                stop = block_end(index, count)
                position = shape._add_run(data, position, index, stop - index)
                index = stop
        except (IndexError, ProtocolError):
            return None  # where records begin that are not all of one size can not be known
        return shape

    def _add_run(self, data: bytes, position: int, index: int, count: int) -> int:
        """The columns of `count` records from `position` on, by the first; returns their end."""
        length, body = read_varint(data, position)
        size = body + length - position
        end = position + count * size
        offsets = offset_columns(index, count)
        key_at = body + 2 + len(offsets)  # behind the attributes and one byte of time
        key_length, key_from = read_varint(data, key_at)
        value_at = key_from + max(key_length, 0)
        value_length, value_from = read_varint(data, value_at)
        no_headers_at = value_from + max(value_length, 0)
        if no_headers_at + 1 != position + size or data[no_headers_at]:
            raise ProtocolError(INVALID_RECORD, "a record with headers, or not of this size")
        self.has_keys = self.has_keys and key_length >= 0
        places = (*range(position, body), *range(key_at, key_from), *range(value_at, value_from))
        for at in (*places, no_headers_at):
            self._columns.append((slice(at, end, size), data[at : at + 1] * count))
        for at, column in enumerate(offsets, body + 2):
            self._columns.append((slice(at, end, size), column))
        self._deltas.append(slice(body + 1, end, size))
        return end

    def largest_delta(self, data: bytes, start: int) -> int | None:
        if start != self._start:
            return None
        for place, column in self._columns:
            if data[place] != column:
                return None
        deltas = b"".join([data[place] for place in self._deltas])
        last = deltas[-1]
        if last > 127 or deltas.translate(None, NOT_ABOVE[last]):
            return None
        return DELTA_1[last]


def _any(length: int) -> bytes:
    return b".{%d}" % length if length > 0 else b""


_shapes: dict[Key, Shape | LongShape] = {}
_counted: dict[Key, int] = {}

shape_of = _shapes.get


def count_batch(data: bytes, start: int, count: int) -> None:
    """The walk took a batch. Whoever sends many of the shape will be served faster from now on."""
    size = len(data) - start
    if count > RECORDS_MAX or (count <= MATCHED_MAX and size % count):
        return
    key = (count, size)
    seen = _counted.get(key, 0) + 1
    if seen < LEARN_AFTER:
        if seen == 1 and len(_counted) >= COUNTED_MAX:
            _counted.clear()
        _counted[key] = seen
        return
    # The pool validates too: another thread may just have cleared it.
    _counted.pop(key, None)
    _learn(key, data, start)


def _learn(key: Key, data: bytes, start: int) -> None:
    known = _shapes.get(key)
    if known is not None and known.largest_delta(data, start) is not None:
        return  # it was something else that kept these batches from the short cut
    shape = _shape(key, data, start)
    if shape is None or shape.largest_delta(data, start) is None:
        return
    if len(_shapes) >= SHAPES_MAX:
        _shapes.pop(next(iter(_shapes)), None)
    _shapes[key] = shape


def _shape(key: Key, data: bytes, start: int) -> Shape | LongShape | None:
    count, size = key
    if count > MATCHED_MAX:
        return LongShape.of(data, start, count)
    length, body = read_varint(data, start)
    if (body + length - start) * count != size:
        return None  # as many bytes, but not in records of one size
    return Shape(data, start, count)
