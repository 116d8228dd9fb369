"""A batch in the making: records are written into its bytes as they come.

Owns the encoding of records on the producer's hot path (`records.batch_builder` is the plain way to
say the same; tests compare them), who waits for the batch, and its outcome. No object is kept per
record; a batch that the broker finds too large is split by reading its own bytes again.

Never sends itself and knows no clock. Always holds: once sealed it takes no record; it is done at
most once; its numbering changes only through `encode`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.base.errors import InvariantError, OttlaError, check
from ottla.base.ports import Buffer
from ottla.client.delivery import outcome_of
from ottla.records.batch_header import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC_V2,
    MAX_TIMESTAMP,
    TRANSACTIONAL_MASK,
    read_header,
)
from ottla.records.batch_view import records_of
from ottla.records.compression import NONE, compress
from ottla.records.crc32c import crc32c
from ottla.records.varints import varint

if TYPE_CHECKING:
    from ottla.client.connection import Connection
    from ottla.client.lanes import Lane

logger = logging.getLogger("ottla.client")

Headers = Sequence[tuple[str, bytes | None]]
DeliveryCallback = Callable[[Any, Any], None]

NO_SEQUENCE = -1
# Of nearly every number in a record; made by the first batch, since it takes some milliseconds.
_TABLE_SIZE = 16_384
_varints: tuple[bytes, ...] = ()
_EMPTY_HEADER = bytes(HEADER_SIZE)
_pack_crc = Struct(">I").pack_into


def load_varints() -> None:
    """Before the first `append`: makes the table of short numbers."""
    global _varints  # noqa: PLW0603
    if not _varints:
        _varints = tuple(map(varint, range(_TABLE_SIZE)))


class ProducerBatch:
    # Most of a batch's fields keep these values for most of its life; an instance that begins with
    # few of its own is made in half the time.
    count = 0
    base_timestamp = 0
    max_timestamp = -(1 << 63)  # older than any that can be said
    _time_part = b""  # of the latest record
    number: tuple[int, ...] = ()  # in the order of beginning; a part has its whole's in front
    charged_bytes = 0  # of buffer.memory
    is_sealed = False
    encoded: bytearray | None = None
    is_transactional = False
    producer_id = -1
    epoch = -1
    sequence = NO_SEQUENCE
    ordinal = 0  # in the row of numbered batches of its lane
    attempts = 0
    last_error: OttlaError | None = None  # of the last attempt
    connection: Connection | None = None  # on which it was last sent
    on_wire = False
    # Whether an attempt ended without an answer: then it may be in the log, until a broker that
    # would know says that it is not.
    may_be_stored = False
    done = False
    base_offset = -1
    append_time_ms = -1
    error: OttlaError | None = None
    parts: list[ProducerBatch] | None = None
    callbacks: list[tuple[int, int, DeliveryCallback]] | None = None
    waiters: list[tuple[int, Callable[[], None]]] | None = None

    def __init__(self, lane: Lane, bytes_max: int, created_ms: float, deadline_ms: float) -> None:
        self.lane = lane
        self.bytes_max = bytes_max
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        self.records = bytearray(_EMPTY_HEADER)

    # ------------------------------------------------------------------------------- records

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers | None
    ) -> int:
        """The record's index, or -1 where there is no room for it."""
        table, records, count = _varints, self.records, self.count
        if timestamp_ms == self.max_timestamp:
            time_part = self._time_part  # nearly always: many records come in a millisecond
        else:
            time_part = self._part_of_time(timestamp_ms)
        index_part = table[count] if count < _TABLE_SIZE else varint(count)
        if value is None:
            value, value_part, value_size = b"", b"\1", 0
        else:
            value_size = len(value)
            value_part = table[value_size] if value_size < _TABLE_SIZE else varint(value_size)
        if key is None and not headers:
            size = 3 + len(time_part) + len(index_part) + len(value_part) + value_size
            parts = (b"\0", time_part, index_part, b"\1", value_part, value, b"\0")
        else:
            key_part = b"\1" if key is None else varint(len(key)) + key
            headers_part = b"\0" if not headers else _encode_headers(headers)
            parts = (b"\0", time_part, index_part, key_part, value_part, value, headers_part)
            size = sum(map(len, parts))
        size_part = table[size] if size < _TABLE_SIZE else varint(size)
        if count and len(records) + len(size_part) + size > self.bytes_max:
            return -1
        records += size_part
        records += b"".join(parts)
        self.count = count + 1
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
            self._time_part = time_part
        return count

    def _part_of_time(self, timestamp_ms: int) -> bytes:
        if not self.count:
            self.base_timestamp = timestamp_ms
        delta = timestamp_ms - self.base_timestamp
        return _varints[delta] if 0 <= delta < _TABLE_SIZE else varint(delta)

    @classmethod
    def of_encoded(
        cls, lane: Lane, encoded: Buffer, created_ms: float, deadline_ms: float
    ) -> ProducerBatch:
        """A whole batch that somebody else encoded; it only gets its numbers here."""
        batch = cls(lane, len(encoded), created_ms, deadline_ms)
        batch.records = encoded if isinstance(encoded, bytearray) else bytearray(encoded)
        header = read_header(batch.records)
        batch.count = header[-1]
        batch.base_timestamp = header[BASE_TIMESTAMP]
        batch.max_timestamp = header[MAX_TIMESTAMP]
        batch.encoded = batch.records
        batch.is_sealed = True
        return batch

    @property
    def size(self) -> int:
        """What it takes on the wire, as far as that is known."""
        return len(self.records if self.encoded is None else self.encoded)

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.count - 1) & 0x7FFFFFFF

    # ------------------------------------------------------------------------------ encoding

    def encode(self, codec: int, level: int | None) -> None:
        """Makes it ready for the wire with the numbers that it has now; again after new ones."""
        self.is_sealed = True
        encoded = self.encoded
        if encoded is None:
            encoded = self.records
            if codec != NONE:
                packed = compress(codec, memoryview(encoded)[HEADER_SIZE:], level)
                encoded = bytearray(_EMPTY_HEADER)
                encoded += packed
            self.encoded = encoded
            attributes = codec
        else:
            attributes = read_header(encoded)[ATTRIBUTES] & ~TRANSACTIONAL_MASK
        HEADER.pack_into(
            encoded,
            0,
            0,
            len(encoded) - LENGTH_END,
            -1,
            MAGIC_V2,
            0,
            attributes | (TRANSACTIONAL_MASK if self.is_transactional else 0),
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.epoch,
            self.sequence,
            self.count,
        )
        _pack_crc(encoded, CRC_POSITION, crc32c(memoryview(encoded)[ATTRIBUTES_POSITION:]))

    def split(self, bytes_max: int) -> list[ProducerBatch]:
        """The same records in smaller batches, in order, with their share of the sequence.

        Half of the records at most in each, so that splitting what was split comes to an end.
        """
        check(self.count > 1 and self.encoded is not None, "one record cannot be split")
        assert self.encoded is not None
        parts: list[ProducerBatch] = []
        sequence = self.sequence
        limit = (self.count + 1) // 2
        for record in records_of(bytes(self.encoded), 1 << 30):
            values = (record.timestamp, record.key, record.value, record.headers)
            if not parts or parts[-1].count >= limit or parts[-1].append(*values) < 0:
                part = ProducerBatch(self.lane, bytes_max, self.created_ms, self.deadline_ms)
                part.is_transactional = self.is_transactional
                part.attempts, part.last_error = self.attempts, self.last_error
                part.number = (*self.number, len(parts))
                part.ordinal = self.ordinal
                part.append(*values)
                parts.append(part)
        parts[0].charged_bytes = self.charged_bytes
        for part in parts:
            part.is_sealed = True
            if sequence != NO_SEQUENCE:
                part.producer_id, part.epoch, part.sequence = self.producer_id, self.epoch, sequence
                sequence = (sequence + part.count) & 0x7FFFFFFF
        self._hand_over(parts)
        return parts

    def _hand_over(self, parts: list[ProducerBatch]) -> None:
        """Who waits for a record waits for the part that carries it now."""
        begin = 0
        for part in parts:
            end = begin + part.count
            part.callbacks = [
                (index - begin, timestamp_ms, callback)
                for index, timestamp_ms, callback in self.callbacks or ()
                if begin <= index < end
            ] or None
            part.waiters = [
                (index - begin, waiter)
                for index, waiter in self.waiters or ()
                if begin <= index < end
            ] or None
            begin = end
        self.parts, self.callbacks, self.waiters = parts, None, None

    # ------------------------------------------------------------------------------- outcome

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self._finish()

    def fail(self, error: OttlaError) -> None:
        self.error = error
        self._finish()

    def _finish(self) -> None:
        if self.done:
            raise InvariantError("a batch is done once")
        self.done = True
        waiters = self.waiters
        if waiters is not None:
            self.waiters = None
            for _, waiter in waiters:
                waiter()

    def call_back(self, index: int, timestamp_ms: int, callback: DeliveryCallback) -> None:
        """A user's function is to be told of this record's outcome."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, timestamp_ms, callback))

    def release(self) -> None:
        """Nobody needs its bytes any more; handles of its records may live on."""
        self.records = bytearray()
        self.encoded = None
        self.connection = None

    def run_callbacks(self) -> None:
        """Users' own, in the order of the records; called without the lock."""
        callbacks, self.callbacks = self.callbacks, None
        for index, timestamp_ms, callback in callbacks or ():
            try:
                callback(*outcome_of(self, index, timestamp_ms))
            except Exception:
                # Of this record alone: the others' have a right to be told.
                logger.exception("a callback of the application failed")


def _encode_headers(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += varint(len(encoded)), encoded
        if value is None:
            parts.append(b"\1")
        else:
            parts += varint(len(value)), value
    return b"".join(parts)
