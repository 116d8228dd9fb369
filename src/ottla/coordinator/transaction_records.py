"""Kafka's record formats in `__transaction_state`, and what one record says of a transaction.

Owns bytes, and nothing of what they mean. The key is of version 0: the transactional id. Values are
written in version 1, the one with tags, and read in both that a Kafka may have left behind.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.base.ids import TopicPartition
from ottla.coordinator.offsets_records import UnreadableRecord
from ottla.coordinator.shard import Record

EMPTY = 0
ONGOING = 1
PREPARE_COMMIT = 2
PREPARE_ABORT = 3
COMPLETE_COMMIT = 4
COMPLETE_ABORT = 5
DEAD = 6
PREPARE_EPOCH_FENCE = 7

DECIDED = (PREPARE_COMMIT, PREPARE_ABORT)
COMPLETED = (COMPLETE_COMMIT, COMPLETE_ABORT)

STATE_NAMES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
)

NO_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
NO_TIMEOUT = 2**31 - 1
"""The time-out of transactions that are never aborted for their age (KIP-939)."""
NOT_TAKEN = -1
"""Of a transaction that still has the time-out it began with."""

KEY_VERSION = 0
_VALUE_VERSION = 1

_KEY_START = struct.Struct(">hH")
_VALUE_START = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_NULL_ARRAY = b"\x00"

_TAG_PREVIOUS_ID = 0
_TAG_NEXT_ID = 1
_TAG_CLIENT_VERSION = 2
_TAG_NEXT_EPOCH = 3
# Of our own, far above those that Kafka may come to use. Its readers skip tags they do not know.
_TAG_FORGETS = 10_000
_TAG_TIMEOUT_BEFORE = 10_001

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class Transaction(NamedTuple):
    """What the log holds of one transactional id.

    `last_epoch` is the epoch before the last bump, by which a repeated request is known; no record
    holds it. `client_version` is 2 for clients whose epoch grows with each transaction (KIP-890).
    `next_producer_id` is set between the decision and its completion when the epochs of
    `producer_id` are used up. Together with `next_producer_epoch` it is what the client goes by
    while its transaction, which keeps its own id and epoch, is prepared (KIP-939). `forgets`: the
    id is to be forgotten when its markers are there. `timeout_before_ms` is the time-out that its
    own producer's prepare took away, until the transaction is complete; nothing else sets it.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: int
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_version: int = 0
    last_epoch: int = NO_EPOCH
    next_producer_epoch: int = NO_EPOCH
    forgets: bool = False
    timeout_before_ms: int = NOT_TAKEN

    def is_prepared(self) -> bool:
        """Open, but nothing can be added to it: it waits to be committed or aborted."""
        return self.state == ONGOING and self.next_producer_epoch != NO_EPOCH

    def is_prepared_by_its_own(self) -> bool:
        """By the producer that wrote it, for whoever that one tells of it."""
        return self.is_prepared() and self.timeout_before_ms != NOT_TAKEN

    def client(self) -> tuple[int, int]:
        """The producer id and epoch that its client has."""
        if self.next_producer_epoch != NO_EPOCH:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch


def transaction_record(transactional_id: str, transaction: Transaction) -> Record:
    return Record(
        transaction_key(transactional_id),
        transaction_value(transaction),
        (transactional_id, transaction),
    )


def tombstone(transactional_id: str) -> Record:
    return Record(transaction_key(transactional_id), None, (transactional_id, None))


def transaction_key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return _KEY_START.pack(KEY_VERSION, len(name)) + name


def read_key(key: bytes) -> str:
    try:
        version, length = _KEY_START.unpack_from(key)
        if version != KEY_VERSION or len(key) < _KEY_START.size + length:
            raise UnreadableRecord(f"a key of version {version}")
        return key[_KEY_START.size : _KEY_START.size + length].decode()
    except (struct.error, UnicodeDecodeError) as cause:
        raise UnreadableRecord("a transactional id with a damaged key") from cause


# -- writing ----------------------------------------------------------------------------------


def transaction_value(transaction: Transaction) -> bytes:
    start = _VALUE_START.pack(
        _VALUE_VERSION,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state,
    )
    times = _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    partitions = _NULL_ARRAY
    if transaction.state != EMPTY:
        partitions = _partitions(transaction.partitions)
    return b"".join((start, partitions, times, _tags(transaction)))


def _partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [_unsigned(len(topics) + 1)]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts.append(_unsigned(len(name) + 1))
        parts.append(name)
        parts.append(_unsigned(len(indexes) + 1))
        parts.extend(map(_INT32.pack, indexes))
        parts.append(b"\x00")
    return b"".join(parts)


def _tags(transaction: Transaction) -> bytes:
    tags = []
    if transaction.previous_producer_id != NO_ID:
        tags.append(b"\x00\x08" + _INT64.pack(transaction.previous_producer_id))
    if transaction.next_producer_id != NO_ID:
        tags.append(b"\x01\x08" + _INT64.pack(transaction.next_producer_id))
    if transaction.client_version:
        tags.append(b"\x02\x02" + _INT16.pack(transaction.client_version))
    if transaction.next_producer_epoch != NO_EPOCH:
        tags.append(b"\x03\x02" + _INT16.pack(transaction.next_producer_epoch))
    if transaction.forgets:
        tags.append(_unsigned(_TAG_FORGETS) + b"\x02" + _INT16.pack(1))
    if transaction.timeout_before_ms != NOT_TAKEN:
        before = _INT64.pack(transaction.timeout_before_ms)
        tags.append(_unsigned(_TAG_TIMEOUT_BEFORE) + b"\x08" + before)
    return bytes((len(tags),)) + b"".join(tags)


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# -- reading ----------------------------------------------------------------------------------


def read_value(value: bytes) -> Transaction:
    try:
        version, producer_id, epoch, timeout_ms, state = _VALUE_START.unpack_from(value)
        if version not in (0, _VALUE_VERSION):
            raise UnreadableRecord(f"a transaction in version {version}")
        if not EMPTY <= state <= DEAD:
            raise UnreadableRecord(f"a transaction in state {state}")
        reader = _Reader(value, _VALUE_START.size, is_flexible=version == _VALUE_VERSION)
        partitions = reader.partitions()
        updated_ms, started_ms = reader.times()
        tags = reader.tags()
    except (struct.error, IndexError, UnicodeDecodeError) as cause:
        raise UnreadableRecord("a damaged transaction") from cause
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        updated_ms,
        started_ms,
        previous_producer_id=tags.get(_TAG_PREVIOUS_ID, NO_ID),
        next_producer_id=tags.get(_TAG_NEXT_ID, NO_ID),
        client_version=tags.get(_TAG_CLIENT_VERSION, 0),
        next_producer_epoch=tags.get(_TAG_NEXT_EPOCH, NO_EPOCH),
        forgets=bool(tags.get(_TAG_FORGETS, 0)),
        timeout_before_ms=tags.get(_TAG_TIMEOUT_BEFORE, NOT_TAKEN),
    )


class _Reader:
    """Walks one value; what does not fit raises struct.error or IndexError."""

    __slots__ = ("_at", "_data", "_is_flexible")

    def __init__(self, data: bytes, at: int, *, is_flexible: bool) -> None:
        self._data = data
        self._at = at
        self._is_flexible = is_flexible

    def partitions(self) -> frozenset[TopicPartition]:
        found: set[TopicPartition] = set()
        for _ in range(self._count()):
            topic = self._string()
            for _ in range(self._count()):
                found.add((topic, self._fixed(_INT32)))
            self._skip_tags()
        return frozenset(found)

    def times(self) -> tuple[int, int]:
        return self._fixed(_INT64), self._fixed(_INT64)

    def tags(self) -> dict[int, int]:
        """Tags that are known here; all of them are numbers."""
        if not self._is_flexible:
            return {}
        found = {}
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            content = self._bytes(size)
            if size in (2, 8):
                found[tag] = int.from_bytes(content, "big", signed=True)
        return found

    def _skip_tags(self) -> None:
        if self._is_flexible:
            for _ in range(self._varint()):
                self._varint()
                self._bytes(self._varint())

    def _count(self) -> int:
        count = self._varint() - 1 if self._is_flexible else self._fixed(_INT32)
        if count > len(self._data):
            raise IndexError("more than there is room for")
        return count

    def _string(self) -> str:
        length = self._varint() - 1 if self._is_flexible else self._fixed(_INT16)
        return self._bytes(length).decode()

    def _bytes(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise IndexError("a length that runs over the end")
        return self._data[start : self._at]

    def _fixed(self, kind: struct.Struct) -> int:
        (value,) = kind.unpack_from(self._data, self._at)
        self._at += kind.size
        return int(value)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
