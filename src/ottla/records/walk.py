"""The walk over the records of a batch at the produce door: every byte of structure, no object.

Owns the judgement whether the (unpacked) bytes behind a batch header are exactly `count` records:
in each of them the lengths of key, value and headers fill the record's own length, the offset
deltas are 0, 1, 2 and so on, and the last record ends where the bytes end. Never looks into keys,
values or headers, and never makes an object per record. What passes here every client can read.

Field by field a record costs Python 2 µs. So the walk has three gaits, and takes the fastest that
fits what comes next (CPython 3.11, bench/micro/bench_validation.py):

  `_identical`  records of the same size in all their parts, as producers of fixed-size values write
                them. A stepped slice takes the same byte out of all of them at once and compares
                it as a whole: 3 µs for a run of them, and 0.02 µs for each record in it.
  `_alike`      records whose numbers are of the same width, whatever their sizes: one `unpack_from`
                and table look-ups: 0.27 µs a record, 0.4 with a key, 0.25 more for each header.
                Where widths change, as with records around 64 bytes, 0.8 µs a record.
  `_one`        any record at all, field by field.

Invariant: the first two accept a record only if the third would; what they do not understand they
leave to it. So a record is judged by one rule (`_read_outline`), and the others are short cuts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ottla.base.errors import ProtocolError
from ottla.native import compiled
from ottla.protocol.error_codes import INVALID_RECORD
from ottla.records.varint_tables import (
    DELTA_1,
    DELTA_1_MIN,
    DELTA_2,
    DELTA_2_MIN,
    LENGTH_1,
    LENGTH_2,
    NOT_ABOVE,
    NOT_THAT_WIDE,
    VALUE_SIZE,
)
from ottla.records.varints import read_varint, read_varlong, varint

# Fewer identical records than this are not worth the ten slices.
_IDENTICAL_MIN = 8
# Where they were looked for in vain, it is not tried again for so many records.
_IDENTICAL_PAUSE = 32

_ONE_BYTE: Final = [bytes((byte,)) for byte in range(256)]

# Offset deltas are taken in blocks in which all are equally wide and differ in two bytes at most:
# the first 64 records, then up to each multiple of 8,192. Byte by byte, by the place in the block:
_BLOCK = 8192
_EVEN_BYTES = bytes(range(0, 128, 2))
_FIRST_BYTES = bytes(range(128, 256, 2)) * 128
_SECOND_BYTES_LAST = b"".join(bytes((high,)) * 64 for high in range(128))
_SECOND_BYTES = b"".join(bytes((128 | middle,)) * 64 for middle in range(128))

# And as whole numbers, where there are such.
_OFFSETS_1 = list(_EVEN_BYTES)
_OFFSETS_2 = [
    first | last << 8 for first, last in zip(_FIRST_BYTES, _SECOND_BYTES_LAST, strict=True)
]


def block_end(index: int, count: int) -> int:
    """The end of the block that `index` is in, or of all records."""
    end = 64 if index < 64 else (index | (_BLOCK - 1)) + 1
    return end if end < count else count


def offset_columns(index: int, count: int) -> tuple[bytes, ...]:
    """The bytes of the deltas of `count` records from `index` on, all in one block."""
    if index < 64:
        return (_EVEN_BYTES[index : index + count],)
    place = index & (_BLOCK - 1)
    first = _FIRST_BYTES[place : place + count]
    if index < _BLOCK:
        return first, _SECOND_BYTES_LAST[place : place + count]
    # What is behind the second byte is the same in the whole block.
    tail = varint(index)[2:]
    second = _SECOND_BYTES[place : place + count]
    return first, second, *(bytes((byte,)) * count for byte in tail)


def _offsets(index: int, stop: int) -> list[int] | list[bytes]:
    """The deltas of records `index` to `stop`, all in one block, as a layout unpacks them."""
    if index < 64:
        return _OFFSETS_1[index:stop]
    if index < _BLOCK:
        return _OFFSETS_2[index:stop]
    place = index & (_BLOCK - 1)
    return _offsets_of_block(index - place)[place : place + stop - index]


@lru_cache(maxsize=8)
def _offsets_of_block(index: int) -> list[bytes]:
    """As bytes, because numbers of three cannot be unpacked. A list takes 1 ms and 350 KiB."""
    return [bytes(delta) for delta in zip(*offset_columns(index, _BLOCK), strict=True)]


class _Layout:
    """How wide the numbers in the head of a record are, and how to read it then."""

    __slots__ = (
        "besides",
        "deltas",
        "deltas_min",
        "key_from",
        "length_width",
        "offset_at",
        "sizes",
        "unpack",
    )

    def __init__(self, length_width: int, delta_width: int, offset_width: int) -> None:
        # Length, timestamp delta, offset delta, key length, and the word behind that, which is
        # where the value begins if the key is null.
        form = ("", "B", "H", "3s", "4s", "5s")
        self.unpack = struct.Struct(
            f"<{form[length_width]}x{form[delta_width]}{form[offset_width]}BH"
        ).unpack_from
        self.length_width = length_width
        self.sizes = (LENGTH_1, LENGTH_2)[length_width - 1]
        self.deltas = (DELTA_1, DELTA_2)[delta_width - 1]
        self.deltas_min = (DELTA_1_MIN, DELTA_2_MIN)[delta_width - 1]
        self.offset_at = length_width + 1 + delta_width
        self.key_from = self.offset_at + offset_width + 1
        # All of a record but its key and its value (the latter with its length): the header count.
        self.besides = self.key_from + 1


_LAYOUTS: Final = [
    [[_Layout(length, delta, offset) for offset in (1, 2, 3, 4, 5)] for delta in (1, 2)]
    for length in (1, 2)
]


def _layout_at(data: bytes, position: int, index: int) -> _Layout:
    """The layout of record `index` at `position`, if it has any of these."""
    length_is_wide = data[position] > 127
    delta_is_wide = data[position + length_is_wide + 2] > 127
    # An index of 32 bits has up to five bytes.
    offset_width = (index > 63) + (index > 8191) + (index > 0xFFFFF) + (index > 0x7FFFFFF)
    return _LAYOUTS[length_is_wide][delta_is_wide][offset_width]


# Positions of the key's length, the key, the value's length and the end; then the timestamp delta.
_Outline = tuple[int, int, int, int, int]


def walk_records(data: bytes, position: int, count: int) -> RecordWalk:
    """Walks `count` records from `position` to the end of `data`, or raises INVALID_RECORD."""
    walk = RecordWalk(data, position, count)
    found = None if compiled is None else compiled.walk(data, position, count)
    if found is not None:
        walk.delta_max, walk.delta_not_below, walk.null_key_suspected = found
        return walk
    try:
        walk.run()
    except (IndexError, struct.error) as cause:
        raise ProtocolError(INVALID_RECORD, "a record runs over the end of its batch") from cause
    return walk


class RecordWalk:
    """Where a walk is, and what it found so far."""

    __slots__ = (
        "count",
        "data",
        "delta_max",
        "delta_not_below",
        "index",
        "null_key_suspected",
        "position",
        "start",
    )

    def __init__(self, data: bytes, start: int, count: int) -> None:
        self.data = data
        self.start = start
        self.position = start
        self.count = count
        self.index = 0
        self.delta_max = -NOT_THAT_WIDE
        # No timestamp delta is below this; it may be lower than the lowest.
        self.delta_not_below = NOT_THAT_WIDE
        # True if a key is null, and sometimes if none is.
        self.null_key_suspected = False

    def run(self) -> None:
        tried = 0
        while self.index < self.count:
            layout = _layout_at(self.data, self.position, self.index)
            # After an attempt in vain it takes a while until the next.
            if self.index >= tried:
                if self._identical(layout):
                    continue
                tried = self.index + _IDENTICAL_PAUSE
            if not self._alike(layout):
                self._one()
        if self.position != len(self.data):
            raise ProtocolError(INVALID_RECORD, "bytes are left over behind the last record")

    def outlines(self) -> Iterator[tuple[int, bool]]:
        """Timestamp delta and "has no key" of each record, after a walk that found all right."""
        position = self.start
        for index in range(self.count):
            outline = _read_outline(self.data, position, index)
            yield outline[4], _has_null_key(self.data, outline)
            position = outline[3]

    def _identical(self, layout: _Layout) -> bool:
        """Walks the next records as far as they are like the first of them in all their sizes.

        Record n of them begins at `start + n * size` if all before it are of that size, which is
        what the columns of its length say: so in a column only what stands before the first odd
        byte counts.
        """
        data, start, first = self.data, self.position, self.index
        alike = block_end(first, self.count) - first
        if alike < _IDENTICAL_MIN or layout.deltas is not DELTA_1:
            return False
        length, _, _, key, _ = layout.unpack(data, start)
        size = layout.sizes[length]
        fitting = (len(data) - start) // size
        alike = fitting if fitting < alike else alike
        if alike < _IDENTICAL_MIN or data[start + size] != data[start]:
            return False
        key_from = start + layout.key_from
        value_at = key_from if key == 1 else key_from + (key >> 1)
        if not _is_plain(data, key, value_at, start + size):
            return False
        stop = start + alike * size
        # The bytes that say a size: of the record, the key, the value, the number of headers.
        places = [start, key_from - 1, value_at, start + size - 1]
        if data[start] > 127:
            places.append(start + 1)
        if data[value_at] > 127:
            places.append(value_at + 1)
        for at in places:
            odd = data[at:stop:size].lstrip(_ONE_BYTE[data[at]])
            if odd:
                alike -= len(odd)
                stop = start + alike * size
        return self._take_identical(layout, size, alike)

    def _take_identical(self, layout: _Layout, size: int, alike: int) -> bool:
        """Checks what may differ in `alike` records of `size` bytes: the two deltas."""
        data, start, first = self.data, self.position, self.index
        stop = start + alike * size
        for at, expected in enumerate(offset_columns(first, alike), start + layout.offset_at):
            if data[at:stop:size] != expected:
                return False
        deltas = data[start + layout.offset_at - 1 : stop : size]
        if not deltas.isascii():
            return False
        # The last is the largest unless the producer's clock went back.
        last = deltas[-1]
        above = deltas.translate(None, NOT_ABOVE[last])
        highest = max(DELTA_1[code] for code in above) if above else DELTA_1[last]
        self._note_deltas(highest, DELTA_1_MIN)
        self.null_key_suspected |= data[start + layout.key_from - 1] == 1
        self.position = stop
        self.index = first + alike
        return True

    def _note_deltas(self, highest: int, not_below: int) -> None:
        # Spelled out: max() and min() cost as much as half a record each.
        self.delta_max = highest if highest > self.delta_max else self.delta_max
        lowest = self.delta_not_below
        self.delta_not_below = not_below if not_below < lowest else lowest

    def _alike(self, layout: _Layout) -> bool:
        """Walks the next records as far as their numbers are as wide as the layout says."""
        first = self.index
        data, position, highest = self.data, self.position, self.delta_max
        unpack, besides, key_from = layout.unpack, layout.besides, layout.key_from
        sizes, values, deltas = layout.sizes, VALUE_SIZE, layout.deltas
        index = first
        try:
            for expected in _offsets(first, block_end(first, self.count)):
                length, delta, offset, key, value = unpack(data, position)
                size = sizes[length]
                if key == 1:
                    self.null_key_suspected = True
                    rest = size - values[value] - besides
                elif key & 129:  # negative, or of two bytes
                    break
                else:
                    key >>= 1
                    at = position + key_from + key
                    rest = size - values[data[at] | data[at + 1] << 8] - besides - key
                end = position + size
                if (rest or data[end - 1]) and not _headers_fill(data, end, rest):
                    break
                if offset != expected:
                    break
                delta = deltas[delta]
                if delta > highest:
                    if delta == NOT_THAT_WIDE:
                        break
                    highest = delta
                position = end
                index += 1
        except (IndexError, struct.error):
            pass  # it was laid out differently after all, or is damaged: `_one` will tell
        self.position, self.index = position, index
        self._note_deltas(highest, layout.deltas_min)
        return index > first

    def _one(self) -> None:
        outline = _read_outline(self.data, self.position, self.index)
        self._note_deltas(outline[4], outline[4])
        self.null_key_suspected |= _has_null_key(self.data, outline)
        self.position = outline[3]
        self.index += 1


def _is_plain(data: bytes, key: int, value_at: int, end: int) -> bool:
    """Whether a record with this code for the length of its key has one value and no headers."""
    if (key & 129 and key != 1) or value_at + 1 >= end:
        return False
    size = VALUE_SIZE[data[value_at] | data[value_at + 1] << 8]
    return value_at + size + 1 == end and data[end - 1] == 0


def _headers_fill(data: bytes, end: int, rest: int) -> bool:
    """Whether the last `rest` bytes of a record are the headers that the byte before them counts.

    For up to 63 headers with keys of up to 63 bytes; False or IndexError may also mean "not one of
    those": what is not that wide leads far outside of the bytes.
    """
    if rest <= 0:
        return False
    position = end - rest
    count = data[position - 1]
    if count & 129:
        return False
    for _ in range(count >> 1):
        length = data[position]
        if length & 129:
            return False
        position += 1 + (length >> 1)
        length = data[position]
        if length > 127:
            length |= data[position + 1] << 8
        position += VALUE_SIZE[length]
    return position == end


def _has_null_key(data: bytes, outline: _Outline) -> bool:
    return outline[1] == outline[2] and data[outline[0]] & 1 == 1


def _read_outline(data: bytes, position: int, index: int) -> _Outline:
    """Reads record `index` at `position` field by field; refuses it if anything does not fit."""
    length, body = read_varint(data, position)
    end = body + length
    if length < 0 or end > len(data):
        raise ProtocolError(INVALID_RECORD, f"the length of record {index} is wrong")
    delta, offset_at = read_varlong(data, body + 1)
    offset_delta, key_at = read_varint(data, offset_at)
    if offset_delta != index:
        raise ProtocolError(INVALID_RECORD, f"record {index} has offset delta {offset_delta}")
    key_length, key_from = read_varint(data, key_at)
    value_at = key_from + key_length if key_length > 0 else key_from
    value_length, after = read_varint(data, value_at)
    if value_length > 0:
        after += value_length
    header_count, after = read_varint(data, after)
    if header_count > 0:
        after = _skip_headers(data, after, end, header_count)
    if key_length < -1 or value_length < -1 or header_count < 0 or after != end:
        raise ProtocolError(INVALID_RECORD, f"the fields of record {index} do not fill its length")
    return key_at, key_from, value_at, end, delta


def _skip_headers(data: bytes, position: int, end: int, count: int) -> int:
    """The position behind `count` headers; each takes two bytes at least."""
    if count * 2 > end - position:
        raise ProtocolError(INVALID_RECORD, "a record is too short for its headers")
    for _ in range(count):
        key_length, position = read_varint(data, position)
        value_length, position = read_varint(data, position + key_length)
        if key_length < 0 or value_length < -1:
            raise ProtocolError(INVALID_RECORD, "the length of a header is wrong")
        if value_length > 0:
            position += value_length
    return position
