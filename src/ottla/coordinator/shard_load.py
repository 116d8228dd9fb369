"""Reads a coordinator's log: the last value of each key, then what has to be replayed.

Of a million commits a thousand may be left, so keys and values are only sorted out while walking,
and nothing is decoded before the end. What comes out is what a fully compacted log would hold, in
the order of its offsets; a coordinator has to understand such a log anyway.

Records of a transaction count from its commit marker on, but keep the place that they have in the
log: a plain record behind them wins, whenever the transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from ottla.base.errors import ProtocolError
from ottla.coordinator.offsets_records import UnreadableRecord
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_header import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    LENGTH_END,
    TRANSACTIONAL_MASK,
)
from ottla.records.batch_view import records_of

NO_PRODUCER_ID = -1

# Base offset, length, attributes, last offset delta, producer id, record count.
_OUTLINE = Struct(">qi9xhi16xq6xi")
_MARKER = Struct(">hh")
_COMMIT_MARKER = 1
_UNPACKED_BYTES_MAX = 64 * 1024 * 1024

Held = tuple[int, bytes | None]
"""Offset and value."""


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
        latest = self._latest
        unpack = _OUTLINE.unpack_from
        plain = CODEC_MASK | CONTROL_MASK | TRANSACTIONAL_MASK
        while position + HEADER_SIZE <= end:
            base_offset, length, attributes, last_delta, producer_id, count = unpack(data, position)
            batch_end = position + LENGTH_END + length
            if batch_end > end or length < HEADER_SIZE - LENGTH_END:
                raise ProtocolError(CORRUPT_MESSAGE, "a batch runs over the end of what was read")
            if base_offset + last_delta >= self.next_offset:
                self.records_read += count
                if not attributes & plain and count == 1:
                    # Nine of ten batches are one commit: no call, no object but key and value.
                    at = position + HEADER_SIZE + 1
                    if data[at - 1] > 127:
                        at += 1
                    key_size = data[at + 3]
                    if data[at + 1] | data[at + 2] or key_size & 129 or data[at - 1] > 127:
                        self._read_batch(data[position:batch_end], attributes, producer_id)
                    else:
                        at += 4
                        key_end = at + (key_size >> 1)
                        size = data[key_end]
                        start = key_end + 1
                        if size > 127:
                            size = size & 127 | data[start] << 7
                            start += 1
                        value_end = start + (size >> 1)
                        if value_end + 1 == batch_end and not data[value_end] and not size & 1:
                            latest[data[at:key_end]] = (base_offset, data[start:value_end])
                        else:
                            self._read_batch(data[position:batch_end], attributes, producer_id)
                else:
                    self._read_batch(data[position:batch_end], attributes, producer_id)
                self.next_offset = base_offset + last_delta + 1
            position = batch_end

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
