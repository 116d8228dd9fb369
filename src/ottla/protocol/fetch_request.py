"""Fetch requests, 4-18, read by hand.

Every count and length is compared with the bytes that are left, and topics, partitions and tags
count against REQUEST_OBJECTS_MAX, before anything is made. What a version lacks has the protocol's
default; a version that is not among 4-18 is malformed.

v5 log start offset; v7 sessions (KIP-227); v9 leader epoch; v11 rack; v12 flexible, last fetched
epoch; v13 topic ids instead of names; v15 replica state as a tag; v17 replica directory; v18 the
follower's high watermark.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable

from ottla.base.errors import MalformedRequest
from ottla.base.limits import REQUEST_OBJECTS_MAX
from ottla.protocol.primitives import (
    MALFORMED,
    NULL_UUID,
    read_compact_string,
    read_long_uvarint,
    read_tag,
    read_uvarint,
    skip_tags,
    uuid_of,
)

VERSION_MIN = 4
VERSION_MAX = 18
_FIRST_WITH_SESSIONS = 7
_FIRST_FLEXIBLE = 12
_FIRST_WITH_TOPIC_ID = 13
_FIRST_WITH_REPLICA_STATE = 15
_FIRST_WITH_REPLICA_DIRECTORY = 17
_FIRST_WITH_HIGH_WATERMARK = 18

NO_HIGH_WATERMARK = (1 << 63) - 1
"""What a follower that does not tell its high watermark is taken to know (KIP-1166)."""

ForgottenTopic = tuple[str | None, uuid.UUID | None, list[int]]


class FetchPartition:
    """What a reader wants of one partition."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "replica_directory_id",
    )

    def __init__(
        self,
        partition: int,
        *,
        fetch_offset: int,
        partition_max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        replica_directory_id: uuid.UUID = NULL_UUID,
        high_watermark: int = NO_HIGH_WATERMARK,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark


FetchTopic = tuple[str | None, uuid.UUID | None, list[FetchPartition]]
"""(name, topic id, partitions): the name below v13, the id from there on."""


class FetchRequest:
    __slots__ = (
        "cluster_id",
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(
        self,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        replica_id: int = -1,
        replica_epoch: int = -1,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchTopic] | None = None,
        forgotten: list[ForgottenTopic] | None = None,
        rack_id: str = "",
        cluster_id: str | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics: list[FetchTopic] = [] if topics is None else topics
        self.forgotten: list[ForgottenTopic] = [] if forgotten is None else forgotten
        self.rack_id = rack_id
        self.cluster_id = cluster_id


_new = object.__new__

_read_head_with_replica = struct.Struct(">iiiibiiB").unpack_from
_read_head = struct.Struct(">iiibiiB").unpack_from
_read_legacy_head = struct.Struct(">iiiib").unpack_from
_read_session = struct.Struct(">ii").unpack_from
_read_partition = struct.Struct(">iiqiqiB").unpack_from
_read_partition_v9 = struct.Struct(">iiqqi").unpack_from
_read_partition_v5 = struct.Struct(">iqqi").unpack_from
_read_partition_v4 = struct.Struct(">iqi").unpack_from
_read_replica_state = struct.Struct(">iq").unpack_from
_read_high_watermark = struct.Struct(">q").unpack_from
_read_uuid = struct.Struct(">16s").unpack_from
_read_count = struct.Struct(">i").unpack_from
_read_length = struct.Struct(">h").unpack_from

# What most requests are, whole: one topic by its id with one partition, nothing forgotten, no rack,
# and nowhere a tag but that of a follower, who says who is asking.
_ONE_PARTITION = struct.Struct(">iiibii 1s 16s 1s iiqiqi 5s")
_ONE_PARTITION_BELOW_V15 = struct.Struct(">i iiibii 1s 16s 1s iiqiqi 5s")
_ONE_PARTITION_OF_FOLLOWER = struct.Struct(">iiibii 1s 16s 1s iiqiqi 7s iq 1s")
_ONE_ELEMENT = b"\2"
# No tags of the partition and the topic, none forgotten, an empty rack, no tags of the request.
_NOTHING_MORE = b"\0\0\1\1\0"
# The same, but for one tag of the request: the replica's state, of 13 bytes, without tags.
_REPLICA_STATE = b"\0\0\1\1\1\1\x0d"
_NO_TAGS = b"\0"
# The same request of a consumer, in the parts that a route compares: up to its session's epoch, the
# epoch, up to the offset, the offset, and the rest.
_USUAL = struct.Struct(">17s i 26s q 21s")
USUAL_BYTES = _ONE_PARTITION.size

UsualParts = tuple[bytes, int, bytes, int, bytes]
split_usual: Callable[[memoryview], UsualParts] = _USUAL.unpack

# The least that one element takes on the wire, by which a declared count is judged.
_TOPIC_BYTES_MIN = 3
_PARTITION_BYTES_MIN = 33
_LEGACY_TOPIC_BYTES_MIN = 6
_LEGACY_PARTITION_BYTES_MIN = 16


def read_fetch_request(version: int, body: memoryview) -> FetchRequest:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise MalformedRequest(f"Fetch v{version} is not spoken here")
    try:
        if version >= _FIRST_FLEXIBLE:
            return _read_one_partition(version, body) or _FlexibleReader(version, body).read()
        return _LegacyReader(version, body).read()
    except MALFORMED as cause:
        raise MalformedRequest(f"Fetch v{version}: {cause}") from cause


def is_usual(version: int, body: memoryview) -> bool:
    """Whether it is a consumer's, for one partition by the topic's id, and asks nothing special."""
    if version < _FIRST_WITH_REPLICA_STATE or len(body) != USUAL_BYTES:
        return False
    *_, topics, _, partitions, _, _, _, _, _, _, rest = _ONE_PARTITION.unpack(body)
    return topics == partitions == _ONE_ELEMENT and bool(rest == _NOTHING_MORE)


def _read_one_partition(version: int, body: memoryview) -> FetchRequest | None:
    """The usual request in one go, at a fifth of the cost; None if it is another."""
    size = len(body)
    if version < _FIRST_WITH_TOPIC_ID:
        return None
    if version < _FIRST_WITH_REPLICA_STATE:
        if size != _ONE_PARTITION_BELOW_V15.size:
            return None
        replica_id, *fields, rest = _ONE_PARTITION_BELOW_V15.unpack(body)
        replica_epoch = -1
    elif size == _ONE_PARTITION.size:
        *fields, rest = _ONE_PARTITION.unpack(body)
        replica_id = replica_epoch = -1
    elif size == _ONE_PARTITION_OF_FOLLOWER.size:
        *fields, state, replica_id, replica_epoch, end = _ONE_PARTITION_OF_FOLLOWER.unpack(body)
        rest = _NOTHING_MORE if state == _REPLICA_STATE and end == _NO_TAGS else b""
    else:
        return None
    if rest != _NOTHING_MORE:
        return None
    request: FetchRequest = _new(FetchRequest)
    one: FetchPartition = _new(FetchPartition)
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        topics,
        topic_id,
        partitions,
        one.partition,
        one.current_leader_epoch,
        one.fetch_offset,
        one.last_fetched_epoch,
        one.log_start_offset,
        one.partition_max_bytes,
    ) = fields
    if topics != _ONE_ELEMENT or partitions != _ONE_ELEMENT:
        return None
    one.replica_directory_id = NULL_UUID
    one.high_watermark = NO_HIGH_WATERMARK
    request.replica_id = replica_id
    request.replica_epoch = replica_epoch
    request.topics = [(None, uuid_of(topic_id), [one])]
    request.forgotten = []
    request.rack_id = ""
    request.cluster_id = None
    return request


class _Reader:
    """A request under way: where it is being read, and how many objects it may still hold."""

    __slots__ = ("body", "budget", "position", "size", "version")

    def __init__(self, version: int, body: memoryview) -> None:
        self.version = version
        self.body = body
        self.size = len(body)
        self.position = 0
        self.budget = REQUEST_OBJECTS_MAX

    def take(self, count: int, element_bytes_min: int) -> None:
        """Refuses an array that cannot be there, or that would be too much."""
        bytes_left = self.size - self.position
        if count < 0 or count * element_bytes_min > bytes_left:
            raise MalformedRequest(f"Fetch: an array of {count} in {bytes_left} bytes")
        self.budget -= count
        if self.budget < 0:
            raise MalformedRequest(f"Fetch: more than {REQUEST_OBJECTS_MAX} parts")

    def take_integers(self, count: int) -> list[int]:
        self.take(count, 4)
        integers = list(struct.unpack_from(f">{count}i", self.body, self.position))
        self.position += 4 * count
        return integers


class _FlexibleReader(_Reader):
    __slots__ = ()

    def read(self) -> FetchRequest:
        request: FetchRequest = _new(FetchRequest)
        request.replica_epoch = -1
        if self.version < _FIRST_WITH_REPLICA_STATE:
            (
                request.replica_id,
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                request.isolation_level,
                request.session_id,
                request.session_epoch,
                count,
            ) = _read_head_with_replica(self.body)
            self.position = 26
        else:
            request.replica_id = -1
            (
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                request.isolation_level,
                request.session_id,
                request.session_epoch,
                count,
            ) = _read_head(self.body)
            self.position = 22
        if count > 127:
            count, self.position = read_long_uvarint(self.body, self.position, count)
        self.take(count - 1, _TOPIC_BYTES_MIN)
        request.topics = [self._topic() for _ in range(count - 1)]
        count, self.position = read_uvarint(self.body, self.position)
        self.take(count - 1, _TOPIC_BYTES_MIN)
        request.forgotten = [self._forgotten() for _ in range(count - 1)]
        request.rack_id = self._string()
        request.cluster_id = None
        self._tags(request)
        return request

    def _topic(self) -> FetchTopic:
        name, topic_id = self._name()
        body, position = self.body, self.position
        count, self.position = read_uvarint(body, position)
        self.take(count - 1, _PARTITION_BYTES_MIN)
        partitions = []
        for _ in range(count - 1):
            one: FetchPartition = _new(FetchPartition)
            (
                one.partition,
                one.current_leader_epoch,
                one.fetch_offset,
                one.last_fetched_epoch,
                one.log_start_offset,
                one.partition_max_bytes,
                tags,
            ) = _read_partition(body, self.position)
            one.replica_directory_id = NULL_UUID
            one.high_watermark = NO_HIGH_WATERMARK
            self.position += 33
            if tags:
                self.position -= 1
                self._partition_tags(one)
            partitions.append(one)
        self._skip_tags()
        return name, topic_id, partitions

    def _forgotten(self) -> ForgottenTopic:
        name, topic_id = self._name()
        count, self.position = read_uvarint(self.body, self.position)
        partitions = self.take_integers(count - 1)
        self._skip_tags()
        return name, topic_id, partitions

    def _name(self) -> tuple[str | None, uuid.UUID | None]:
        if self.version < _FIRST_WITH_TOPIC_ID:
            return self._string(), None
        topic_id = uuid_of(*_read_uuid(self.body, self.position))
        self.position += 16
        return None, topic_id

    def _string(self) -> str:
        text, self.position = read_compact_string(self.body, self.position, self.size)
        if text is None:
            raise MalformedRequest("Fetch: null where a string must be")
        return text

    def _skip_tags(self) -> None:
        if self.body[self.position]:
            self.position, count = skip_tags(self.body, self.position, self.size, self.budget)
            self.budget -= count
        else:
            self.position += 1

    def _tag_count(self) -> int:
        count, self.position = read_uvarint(self.body, self.position)
        self.take(count, 2)
        return count

    def _partition_tags(self, partition: FetchPartition) -> None:
        for _ in range(self._tag_count()):
            tag, start, end = read_tag(self.body, self.position, self.size)
            if tag == 0 and self.version >= _FIRST_WITH_REPLICA_DIRECTORY:
                partition.replica_directory_id = uuid_of(*_read_uuid(self.body, start))
                start += 16
            elif tag == 1 and self.version >= _FIRST_WITH_HIGH_WATERMARK:
                (partition.high_watermark,) = _read_high_watermark(self.body, start)
                start += 8
            else:
                start = end
            self._end_tag(tag, start, end)

    def _tags(self, request: FetchRequest) -> None:
        for _ in range(self._tag_count()):
            tag, start, end = read_tag(self.body, self.position, self.size)
            if tag == 0:
                request.cluster_id, start = read_compact_string(self.body, start, self.size)
            elif tag == 1 and self.version >= _FIRST_WITH_REPLICA_STATE:
                request.replica_id, request.replica_epoch = _read_replica_state(self.body, start)
                self.position = start + 12
                self._skip_tags()
                start = self.position
            else:
                start = end
            self._end_tag(tag, start, end)

    def _end_tag(self, tag: int, reached: int, end: int) -> None:
        if reached != end:
            raise MalformedRequest(f"Fetch: tag {tag} has not the length that it declares")
        self.position = end


class _LegacyReader(_Reader):
    __slots__ = ()

    def read(self) -> FetchRequest:
        request: FetchRequest = _new(FetchRequest)
        (
            request.replica_id,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
        ) = _read_legacy_head(self.body)
        self.position = 17
        request.session_id, request.session_epoch = 0, -1
        if self.version >= _FIRST_WITH_SESSIONS:
            request.session_id, request.session_epoch = _read_session(self.body, 17)
            self.position = 25
        count = self._count()
        self.take(count, _LEGACY_TOPIC_BYTES_MIN)
        request.topics = [self._topic() for _ in range(count)]
        request.forgotten = []
        if self.version >= _FIRST_WITH_SESSIONS:
            count = self._count()
            self.take(count, _LEGACY_TOPIC_BYTES_MIN)
            request.forgotten = [self._forgotten() for _ in range(count)]
        request.rack_id = self._string() if self.version >= 11 else ""
        request.cluster_id = None
        request.replica_epoch = -1
        return request

    def _topic(self) -> FetchTopic:
        name = self._string()
        count = self._count()
        self.take(count, _LEGACY_PARTITION_BYTES_MIN)
        return name, None, [self._partition() for _ in range(count)]

    def _partition(self) -> FetchPartition:
        one: FetchPartition = _new(FetchPartition)
        one.current_leader_epoch = one.last_fetched_epoch = one.log_start_offset = -1
        one.replica_directory_id = NULL_UUID
        one.high_watermark = NO_HIGH_WATERMARK
        body, position = self.body, self.position
        if self.version >= 9:
            (
                one.partition,
                one.current_leader_epoch,
                one.fetch_offset,
                one.log_start_offset,
                one.partition_max_bytes,
            ) = _read_partition_v9(body, position)
            self.position = position + 28
        elif self.version >= 5:
            one.partition, one.fetch_offset, one.log_start_offset, one.partition_max_bytes = (
                _read_partition_v5(body, position)
            )
            self.position = position + 24
        else:
            one.partition, one.fetch_offset, one.partition_max_bytes = _read_partition_v4(
                body, position
            )
            self.position = position + 16
        return one

    def _forgotten(self) -> ForgottenTopic:
        name = self._string()
        return name, None, self.take_integers(self._count())

    def _count(self) -> int:
        (count,) = _read_count(self.body, self.position)
        self.position += 4
        return int(count)

    def _string(self) -> str:
        (length,) = _read_length(self.body, self.position)
        start = self.position + 2
        end = start + length
        if length < 0 or end > self.size:
            raise MalformedRequest(f"Fetch: a string of {length} bytes in {self.size - start}")
        self.position = end
        return str(self.body[start:end], "utf-8")
