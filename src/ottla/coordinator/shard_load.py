"""Reads a coordinator's log: the last value of each key, then what has to be replayed.

Of a million commits a thousand may be left, so keys and values are only sorted out while walking,
and nothing is decoded before the end. What comes out is what a fully compacted log would hold, in
the order of its offsets; a coordinator has to understand such a log anyway.

Records of a transaction count from its commit marker on, but keep the place that they have in the
log: a plain record behind them wins, whenever the transaction ends.

Every batch is checked: a coordinator that believed rotten ones would tell offsets that nobody has
committed, and its followers, which hold the right ones, would never be asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from ottla.base.errors import ProtocolError
from ottla.coordinator.offsets_records import UnreadableRecord
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    LENGTH_END,
    TRANSACTIONAL_MASK,
)
from ottla.records.batch_view import records_of
from ottla.records.crc32c import crc32c
from ottla.records.varints import read_varint

NO_PRODUCER_ID = -1

# Base offset, length, checksum, attributes, last offset delta, producer id, record count.
_OUTLINE = Struct(">qi5xIhi16xq6xi")

# Base offset, length, checksum, attributes, record count; then of the first record: its length in
# two bytes, the timestamp and offset deltas and the length of its key in one byte each.
_ONE_RECORD = Struct(">qi5xIh34xiBBxBBB")
_KEY_POSITION = 67
_PLAIN = CODEC_MASK | CONTROL_MASK | TRANSACTIONAL_MASK

_MARKER = Struct(">hh")
_COMMIT_MARKER = 1
_UNPACKED_BYTES_MAX = 64 * 1024 * 1024

Held = tuple[int, bytes | None]
"""Offset and value."""


class BrokenBatch(ProtocolError):
    """What stands at or shortly before `offset` is not what was written there."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(CORRUPT_MESSAGE, f"a batch at offset {offset} {reason}")
        self.offset = offset


class ShardLoad:
    __slots__ = ("_latest", "_open", "next_offset", "records_read")

    def __init__(self, start_offset: int) -> None:
        self.next_offset = start_offset
        self.records_read = 0
        self._latest: dict[bytes, Held] = {}
        self._open: dict[int, dict[bytes, Held]] = {}

    def read(self, data: bytes) -> None:
        """Whole batches, the next ones of the log. What is before `next_offset` is left out."""
        position, end = 0, len(data)
        last: dict[bytes, int] = {}
        while position + HEADER_SIZE <= end:
            # The first batch may begin before what is asked for, so it is looked at in full.
            position = self._read_one(data, position)
            position = self._skim(data, position, last)
        for key, start in last.items():
            self._keep(data, key, start)

    def _skim(self, data: bytes, position: int, last: dict[bytes, int]) -> int:
        """Goes over batches of one plain record, as single commits are, up to another kind.

        Of each key only the place of its last batch is noted: of a thousand commits for one key
        there is no need to look at the values of all but one.
        """
        unpack, end, view = _ONE_RECORD.unpack_from, len(data), memoryview(data)
        before, count_read = position, 0
        while position + _KEY_POSITION < end:
            found = unpack(data, position)
            _, length, checksum, attributes, count, low, high, time, delta, key = found
            if count != 1 or attributes & _PLAIN or low < 128 or high > 127:
                break
            behind = position + LENGTH_END + length
            if time or delta or key & 129 or behind > end:
                break
            if crc32c(view[position + ATTRIBUTES_POSITION : behind]) != checksum:
                break  # `_read_one` says so
            start = position + _KEY_POSITION
            last[data[start : start + (key >> 1)]] = before = position
            count_read += 1
            position = behind
        if count_read:
            self.records_read += count_read
            self.next_offset = unpack(data, before)[0] + 1
        return position

    def _keep(self, data: bytes, key: bytes, start: int) -> None:
        """What `_skim` has noted of a key, unless something later in the log says otherwise."""
        offset = _ONE_RECORD.unpack_from(data, start)[0]
        present = self._latest.get(key)
        if present is None or present[0] < offset:
            size, position = read_varint(data, start + _KEY_POSITION + len(key))
            value = None if size < 0 else data[position : position + size]
            self._latest[key] = (offset, value)

    def _read_one(self, data: bytes, position: int) -> int:
        outline = _OUTLINE.unpack_from(data, position)
        base_offset, length, checksum, attributes, last_delta, producer_id, count = outline
        end: int = position + LENGTH_END + length
        if end > len(data) or length < HEADER_SIZE - LENGTH_END:
            raise BrokenBatch(self.next_offset, "runs over the end of what was read")
        if crc32c(memoryview(data)[position + ATTRIBUTES_POSITION : end]) != checksum:
            raise BrokenBatch(self.next_offset, "has another checksum than its content")
        if base_offset + last_delta >= self.next_offset:
            self.records_read += count
            is_plain = not attributes & _PLAIN and base_offset >= self.next_offset
            if not is_plain or not self._read_plain(data, position + HEADER_SIZE, end, base_offset):
                self._read_batch(data[position:end], attributes, producer_id)
            self.next_offset = base_offset + last_delta + 1
        return end

    def _read_plain(self, data: bytes, position: int, end: int, base_offset: int) -> bool:
        """Reads records as coordinators write them, of one timestamp and no headers.

        False if there is anything else about them: then the batch has to be read in full.
        """
        found: dict[bytes, Held] = {}
        while position < end:
            size, body = read_varint(data, position)
            if data[body + 1]:
                # Another timestamp, in one byte or more: the cleaner has dated tombstones anew.
                return False
            delta, at = read_varint(data, body + 2)
            key_size, at = read_varint(data, at)
            key_end = at + key_size
            value_size, value = read_varint(data, key_end)
            position = body + size
            value_end = value + value_size if value_size >= 0 else value
            if key_size < 0 or value_end + 1 != position or data[value_end]:
                return False
            kept = data[value:value_end] if value_size >= 0 else None
            found[data[at:key_end]] = (base_offset + delta, kept)
        self._latest.update(found)
        return True

    def _read_batch(self, batch: bytes, attributes: int, producer_id: int) -> None:
        if attributes & CONTROL_MASK:
            self._read_marker(batch, producer_id)
            return
        held = self._latest
        if attributes & TRANSACTIONAL_MASK:
            held = self._open.setdefault(producer_id, {})
        for record in records_of(batch, _UNPACKED_BYTES_MAX):
            if record.key is None:
                raise UnreadableRecord(f"the record at offset {record.offset} has no key")
            if record.offset >= self.next_offset:
                held[record.key] = (record.offset, record.value)

    def _read_marker(self, batch: bytes, producer_id: int) -> None:
        for record in records_of(batch, _UNPACKED_BYTES_MAX):
            if record.key is None or len(record.key) < _MARKER.size:
                continue
            _, kind = _MARKER.unpack_from(record.key)
            ended = self._open.pop(producer_id, {})
            if kind == _COMMIT_MARKER:
                for key, held in ended.items():
                    present = self._latest.get(key)
                    if present is None or present[0] < held[0]:
                        self._latest[key] = held

    def live_records(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Key, value and the producer whose transaction is still open (-1: none), by offset."""
        found = [
            (offset, key, value, NO_PRODUCER_ID) for key, (offset, value) in self._latest.items()
        ]
        for producer_id, held in self._open.items():
            found += ((offset, key, value, producer_id) for key, (offset, value) in held.items())
        found.sort(key=lambda one: one[0])
        for _, key, value, producer_id in found:
            yield key, value, producer_id
