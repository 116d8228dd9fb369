"""Fetch answers, 4 to 18, read by hand: where the records of each partition stand in the frame.

Records are not copied and not looked at. Every count and length is compared with the bytes that are
left before anything is made of it; what does not fit raises MalformedRequest, and the connection
ends. Requests are made by the codec: they are small, and most of a session's are empty.
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from ottla.base.errors import MalformedRequest
from ottla.base.ports import Buffer
from ottla.protocol.primitives import (
    MALFORMED,
    read_compact_string,
    read_tag,
    read_uvarint,
    skip_tags,
    uuid_of,
)

FIRST_WITH_TOPIC_ID = 13
_FIRST_WITH_LOG_START = 5
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_REPLICA = 11
_FIRST_FLEXIBLE = 12
_TAGS_MAX = 32

_CURRENT_LEADER = 1
_NODE_ENDPOINTS = 0

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEAD = struct.Struct(">ihi")
_PARTITION = struct.Struct(">ihqqq")
_PARTITION_BEFORE_LOG_START = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_LEADER = struct.Struct(">ii")

NO_REPLICA = -1


class FetchedPartition(NamedTuple):
    """Of one partition; its records are at [start, end) of the frame."""

    topic: str | uuid.UUID
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    preferred_replica: int
    start: int
    end: int
    leader: tuple[int, int] | None
    """(node id, leader epoch), where the broker knows a better one."""


class FetchAnswer(NamedTuple):
    frame: Buffer
    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: list[FetchedPartition]
    endpoints: list[tuple[int, str, int, str | None]]


def read_fetch_answer(version: int, body: Buffer) -> FetchAnswer:
    """`body` is the end of a frame."""
    view = memoryview(body)
    frame = view.obj if isinstance(view.obj, bytes | bytearray) else body
    reader = _Reader(frame, len(frame) - len(view), version)
    try:
        return reader.read()
    except MALFORMED as cause:
        raise MalformedRequest("a fetch answer ends too early, or holds no text") from cause


class _Reader:
    __slots__ = ("_data", "_is_flexible", "_size", "_version", "at")

    def __init__(self, data: Buffer, at: int, version: int) -> None:
        self._data = data
        self._size = len(data)
        self._version = version
        self._is_flexible = version >= _FIRST_FLEXIBLE
        self.at = at

    def read(self) -> FetchAnswer:
        throttle_ms, error_code, session_id = self._head()
        partitions: list[FetchedPartition] = []
        for _ in range(self._count(2)):
            topic = self._topic()
            count = self._count(_PARTITION_BEFORE_LOG_START.size)
            partitions += [self._partition(topic) for _ in range(count)]
            self._skip_tags()
        endpoints = self._endpoints() if self._is_flexible else []
        return FetchAnswer(self._data, throttle_ms, error_code, session_id, partitions, endpoints)

    def _head(self) -> tuple[int, int, int]:
        if self._version < _FIRST_WITH_SESSIONS:
            return self._int32(), 0, 0
        throttle_ms, error_code, session_id = _HEAD.unpack_from(self._data, self.at)
        self.at += _HEAD.size
        return throttle_ms, error_code, session_id

    def _topic(self) -> str | uuid.UUID:
        if self._version >= FIRST_WITH_TOPIC_ID:
            encoded = bytes(self._data[self.at : self.at + 16])
            self.at += 16
            if len(encoded) < 16:
                raise MalformedRequest("a topic id is cut off")
            return uuid_of(encoded)
        if self._is_flexible:
            name, self.at = read_compact_string(self._data, self.at, self._size)
        else:
            (length,) = _INT16.unpack_from(self._data, self.at)
            start = self.at + 2
            self.at = self._within(start + length) if length >= 0 else start
            name = str(self._data[start : self.at], "utf-8") if length >= 0 else None
        if name is None:
            raise MalformedRequest("a topic has no name")
        return name

    def _partition(self, topic: str | uuid.UUID) -> FetchedPartition:
        log_start = -1
        if self._version >= _FIRST_WITH_LOG_START:
            index, error, watermark, stable, log_start = _PARTITION.unpack_from(self._data, self.at)
            self.at += _PARTITION.size
        else:
            index, error, watermark, stable = _PARTITION_BEFORE_LOG_START.unpack_from(
                self._data, self.at
            )
            self.at += _PARTITION_BEFORE_LOG_START.size
        aborted = self._aborted()
        replica = self._int32() if self._version >= _FIRST_WITH_REPLICA else NO_REPLICA
        start, end = self._records()
        leader = self._partition_tags() if self._is_flexible else None
        return FetchedPartition(
            topic,
            index,
            error,
            watermark,
            stable,
            log_start,
            aborted,
            replica,
            start,
            end,
            leader,
        )

    def _aborted(self) -> list[tuple[int, int]] | None:
        count = self._nullable_count(_ABORTED.size)
        if count is None:
            return None
        aborted = []
        for _ in range(count):
            aborted.append(_ABORTED.unpack_from(self._data, self.at))
            self.at += _ABORTED.size
            self._skip_tags()
        return aborted

    def _records(self) -> tuple[int, int]:
        length = self._nullable_count(1)
        start = self.at
        self.at = self._within(start + (length or 0))
        return start, self.at

    def _partition_tags(self) -> tuple[int, int] | None:
        leader = None
        count, self.at = read_uvarint(self._data, self.at)
        for _ in range(self._few(count)):
            tag, at, self.at = read_tag(self._data, self.at, self._size)
            if tag == _CURRENT_LEADER:
                node_id, epoch = _LEADER.unpack_from(self._data, at)
                leader = (node_id, epoch)
        return leader

    def _endpoints(self) -> list[tuple[int, str, int, str | None]]:
        endpoints: list[tuple[int, str, int, str | None]] = []
        count, self.at = read_uvarint(self._data, self.at)
        for _ in range(self._few(count)):
            tag, at, end = read_tag(self._data, self.at, self._size)
            if tag == _NODE_ENDPOINTS:
                self.at = at
                for _ in range(self._count(8)):
                    node_id = self._int32()
                    host, self.at = read_compact_string(self._data, self.at, self._size)
                    port = self._int32()
                    rack, self.at = read_compact_string(self._data, self.at, self._size)
                    self._skip_tags()
                    endpoints.append((node_id, host or "", port, rack))
            self.at = end
        return endpoints

    def _skip_tags(self) -> None:
        if self._is_flexible:
            self.at, _ = skip_tags(self._data, self.at, self._size, _TAGS_MAX)

    def _few(self, count: int) -> int:
        if count > _TAGS_MAX:
            raise MalformedRequest(f"{count} tagged fields are more than may be here")
        return count

    def _int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self.at)
        self.at += _INT32.size
        return int(value)

    def _count(self, element_bytes_min: int) -> int:
        return self._nullable_count(element_bytes_min) or 0

    def _nullable_count(self, element_bytes_min: int) -> int | None:
        if self._is_flexible:
            count, self.at = read_uvarint(self._data, self.at)
            count -= 1
        else:
            count = self._int32()
        if count < 0:
            return None
        if count * element_bytes_min > self._size - self.at:
            raise MalformedRequest(f"a fetch answer cannot hold {count} entries")
        return count

    def _within(self, at: int) -> int:
        if at > self._size:
            raise MalformedRequest("a fetch answer ends too early")
        return at
