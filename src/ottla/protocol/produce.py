"""Produce 3-13 by hand: the request is read and the response packed without an object per record.

The generic codec would copy every batch and make a class for it; here the records of a partition
stay a view of the frame. Every count and length is compared with the bytes that are left, and the
topics and partitions of a request count against REQUEST_OBJECTS_MAX, before anything is made.

v5 log start offset; v8 record errors and a message; v9 flexible; v10 leader hints (KIP-951);
v13 topic ids instead of names. Reads a version that is not among 3-13 as malformed.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence

from ottla.base.errors import MalformedRequest, check
from ottla.base.limits import REQUEST_OBJECTS_MAX
from ottla.protocol.primitives import (
    MALFORMED,
    ONE_BYTE,
    compact_string,
    legacy_string,
    read_compact_string,
    read_long_uvarint,
    skip_tags,
    tagged_field,
    uuid_bytes,
    uuid_of,
    uvarint,
)

VERSION_MIN = 3
VERSION_MAX = 13
_FIRST_FLEXIBLE = 9
_FIRST_WITH_TOPIC_ID = 13

ProducedPartition = tuple[int, memoryview | None]
"""(index, records): a view of the frame, null as None."""

ProducedTopic = tuple[str | None, uuid.UUID | None, list[ProducedPartition]]
"""(name, topic id, partitions): the name below v13, the id from there on."""

RecordError = tuple[int, str | None]
"""(index of the record in its batch, message)."""

PartitionProduced = tuple[
    int, int, int, int, int, Sequence[RecordError], str | None, tuple[int, int] | None
]
"""(index, error_code, base_offset, log_append_time_ms, log_start_offset, record_errors,
error_message, current_leader as (leader_id, leader_epoch) or None)."""

TopicProduced = tuple[str | None, uuid.UUID | None, Sequence[PartitionProduced]]

NodeEndpoint = tuple[int, str, int, str | None]
"""(node_id, host, port, rack)."""

_read_acks_timeout_count = struct.Struct(">hii").unpack_from
_read_acks_timeout_short_count = struct.Struct(">hiB").unpack_from
_read_uuid = struct.Struct(">16s").unpack_from
_read_length = struct.Struct(">h").unpack_from
_read_count = struct.Struct(">i").unpack_from
_read_index_length = struct.Struct(">ii").unpack_from
_read_index_short_length = struct.Struct(">iB").unpack_from

# The least that one element takes on the wire, by which a declared count is judged.
_LEGACY_TOPIC_BYTES_MIN = 6
_LEGACY_PARTITION_BYTES_MIN = 8
_TOPIC_BYTES_MIN = 3
_PARTITION_BYTES_MIN = 6


class ProduceRequest:
    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: list[ProducedTopic],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


def read_produce_request(version: int, body: memoryview) -> ProduceRequest:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise MalformedRequest(f"Produce v{version} is not spoken here")
    try:
        if version >= _FIRST_FLEXIBLE:
            return _read_flexible(version, body)
        return _read_legacy(body)
    except MALFORMED as cause:
        raise MalformedRequest(f"Produce v{version}: {cause}") from cause


def _read_flexible(version: int, body: memoryview) -> ProduceRequest:
    size = len(body)
    transactional_id, position = None, 1
    if body[0]:
        transactional_id, position = read_compact_string(body, 0, size)
    acks, timeout_ms, count = _read_acks_timeout_short_count(body, position)
    position += 7
    if count > 127:
        count, position = read_long_uvarint(body, position, count)
    budget = _take(count - 1, _TOPIC_BYTES_MIN, size - position, REQUEST_OBJECTS_MAX)
    topics: list[ProducedTopic] = []
    for _ in range(count - 1):
        name: str | None = None
        topic_id: uuid.UUID | None = None
        if version >= _FIRST_WITH_TOPIC_ID:
            topic_id = uuid_of(*_read_uuid(body, position))
            position += 16
        else:
            name, position = read_compact_string(body, position, size)
            if name is None:
                raise MalformedRequest("Produce: a topic without a name")
        partitions, position, budget = _read_partitions(body, position, size, budget)
        topics.append((name, topic_id, partitions))
    position, budget = _skip_tags(body, position, size, budget)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_partitions(
    body: memoryview, position: int, size: int, budget: int
) -> tuple[list[ProducedPartition], int, int]:
    """The partitions of one topic and its tags, from the partition count on."""
    count = body[position]
    position += 1
    if count > 127:
        count, position = read_long_uvarint(body, position, count)
    budget = _take(count - 1, _PARTITION_BYTES_MIN, size - position, budget)
    partitions: list[ProducedPartition] = []
    for _ in range(count - 1):
        index, length = _read_index_short_length(body, position)
        position += 5
        records = None
        if length:
            if length > 127:
                length, position = read_long_uvarint(body, position, length)
            end = position + length - 1
            if end > size:
                raise MalformedRequest(f"Produce: {length - 1} bytes of records are not there")
            records = body[position:end]
            position = end
        if body[position]:
            position, budget = _skip_tags(body, position, size, budget)
        else:
            position += 1
        partitions.append((index, records))
    if body[position]:
        position, budget = _skip_tags(body, position, size, budget)
        return partitions, position, budget
    return partitions, position + 1, budget


def _skip_tags(body: memoryview, position: int, size: int, budget: int) -> tuple[int, int]:
    position, count = skip_tags(body, position, size, budget)
    return position, budget - count


def _take(count: int, element_bytes_min: int, bytes_left: int, budget: int) -> int:
    """What is left of the budget after `count` elements; refuses what cannot be there."""
    if count < 0 or count * element_bytes_min > bytes_left:
        raise MalformedRequest(f"Produce: an array of {count} in {bytes_left} bytes")
    if count > budget:
        raise MalformedRequest(f"Produce: more than {REQUEST_OBJECTS_MAX} topics and partitions")
    return budget - count


def _read_legacy(body: memoryview) -> ProduceRequest:
    size = len(body)
    transactional_id, position = _read_legacy_string(body, 0, size)
    acks, timeout_ms, count = _read_acks_timeout_count(body, position)
    position += 10
    budget = _take(count, _LEGACY_TOPIC_BYTES_MIN, size - position, REQUEST_OBJECTS_MAX)
    topics: list[ProducedTopic] = []
    for _ in range(count):
        name, position = _read_legacy_string(body, position, size)
        if name is None:
            raise MalformedRequest("Produce: a topic without a name")
        partitions, position, budget = _read_legacy_partitions(body, position, size, budget)
        topics.append((name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_legacy_string(body: memoryview, position: int, size: int) -> tuple[str | None, int]:
    (length,) = _read_length(body, position)
    position += 2
    end = position + length
    if length < 0 or end > size:
        if length == -1:
            return None, position
        raise MalformedRequest(f"Produce: a string of {length} bytes, {size - position} are left")
    return str(body[position:end], "utf-8"), end


def _read_legacy_partitions(
    body: memoryview, position: int, size: int, budget: int
) -> tuple[list[ProducedPartition], int, int]:
    (count,) = _read_count(body, position)
    position += 4
    budget = _take(count, _LEGACY_PARTITION_BYTES_MIN, size - position, budget)
    partitions: list[ProducedPartition] = []
    for _ in range(count):
        index, length = _read_index_length(body, position)
        position += 8
        end = position + length
        if length < 0 or end > size:
            if length != -1:
                raise MalformedRequest(f"Produce: {length} bytes of records are not there")
            partitions.append((index, None))
            continue
        partitions.append((index, body[position:end]))
        position = end
    return partitions, position, budget


# ------------------------------------------------------------------------------------- response

_pack_v3 = struct.Struct(">ihqq").pack
_pack_v5 = struct.Struct(">ihqqq").pack
_pack_v8 = struct.Struct(">ihqqqi").pack
# Partition, no record errors, no message, no tags; no tags of the topic, throttle time, no tags.
_pack_last_flexible = struct.Struct(">ihqqqBBBBiB").pack
# A partition of which there is nothing more to say: no record errors, no message, no tags.
_pack_flexible_plain = struct.Struct(">ihqqqBBB").pack
_pack_count = struct.Struct(">i").pack
_pack_leader = struct.Struct(">iiB").pack


def pack_produce_response(
    version: int,
    topics: Sequence[TopicProduced],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    check(VERSION_MIN <= version <= VERSION_MAX, "a Produce version that is served")
    if version < _FIRST_FLEXIBLE:
        return _pack_legacy(version, topics, throttle_time_ms)
    if len(topics) == 1 and not node_endpoints:
        name, topic_id, partitions = topics[0]
        if len(partitions) == 1:
            index, code, base, time_ms, start, errors, message, leader = partitions[0]
            if not errors and message is None and leader is None:
                # One batch to one partition, and it worked: what nearly every producer sends.
                topic = _pack_topic_name(version, name, topic_id)
                return b"\2%b\2%b" % (
                    topic,
                    _pack_last_flexible(
                        index, code, base, time_ms, start, 1, 0, 0, 0, throttle_time_ms, 0
                    ),
                )
    return _pack_flexible(version, topics, throttle_time_ms, node_endpoints)


def _pack_topic_name(version: int, name: str | None, topic_id: uuid.UUID | None) -> bytes:
    if version >= _FIRST_WITH_TOPIC_ID:
        return uuid_bytes(topic_id)
    check(name is not None, "a topic has a name below Produce v13")
    return compact_string(name)


def _pack_flexible(
    version: int,
    topics: Sequence[TopicProduced],
    throttle_time_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytes:
    parts = [uvarint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        parts.append(_pack_topic_name(version, name, topic_id))
        parts.append(uvarint(len(partitions) + 1))
        for one in partitions:
            index, code, base, time_ms, start, errors, message, leader = one
            if errors or message is not None or leader is not None:
                parts += _flexible_partition(version, one)
            else:
                parts.append(_pack_flexible_plain(index, code, base, time_ms, start, 1, 0, 0))
        parts.append(b"\0")
    parts.append(_pack_count(throttle_time_ms))
    if node_endpoints and version >= 10:
        parts += b"\1", tagged_field(0, pack_node_endpoints(node_endpoints))
    else:
        parts.append(b"\0")
    return b"".join(parts)


def _flexible_partition(version: int, partition: PartitionProduced) -> list[bytes]:
    index, code, base, time_ms, start, errors, message, leader = partition
    parts = [_pack_v5(index, code, base, time_ms, start), uvarint(len(errors) + 1)]
    for batch_index, text in errors:
        parts += _pack_count(batch_index), compact_string(text), b"\0"
    parts.append(compact_string(message))
    if leader is None or leader == (-1, -1) or version < 10:
        parts.append(b"\0")
    else:
        parts += b"\1", tagged_field(0, _pack_leader(*leader, 0))
    return parts


def pack_node_endpoints(node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The value of the NodeEndpoints tag, which Produce and Fetch have in common (KIP-951)."""
    parts = [uvarint(len(node_endpoints) + 1)]
    for node_id, host, port, rack in node_endpoints:
        parts += _pack_count(node_id), compact_string(host), _pack_count(port)
        parts += compact_string(rack), ONE_BYTE[0]
    return b"".join(parts)


def _pack_legacy(version: int, topics: Sequence[TopicProduced], throttle_time_ms: int) -> bytes:
    parts = [_pack_count(len(topics))]
    for name, _, partitions in topics:
        check(name is not None, "a topic has a name below Produce v13")
        parts += legacy_string(name), _pack_count(len(partitions))
        for index, code, base, time_ms, start, errors, message, _ in partitions:
            if version < 5:
                parts.append(_pack_v3(index, code, base, time_ms))
                continue
            if version < 8:
                parts.append(_pack_v5(index, code, base, time_ms, start))
                continue
            parts.append(_pack_v8(index, code, base, time_ms, start, len(errors)))
            for batch_index, text in errors:
                parts += _pack_count(batch_index), legacy_string(text)
            parts.append(legacy_string(message))
    parts.append(_pack_count(throttle_time_ms))
    return b"".join(parts)
