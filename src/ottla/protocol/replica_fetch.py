"""Fetch v18 as followers speak it: requests packed and answers read by hand.

The other side of `fetch_request` and `fetch_response`, for one version only, because both ends are
brokers of this kind. Most requests name one or two partitions of an incremental session, so a
request is a head, a few fixed structs and a tail that never changes. Records are handed on as views
of the answer. Every count and length is compared with the bytes that are left.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import MalformedRequest
from ottla.protocol.primitives import MALFORMED, read_tag, read_uvarint, skip_tags, uvarint

VERSION = 18

pack_partition = struct.Struct(">iiqiqiB").pack
"""Index, leader epoch, offset, last fetched epoch, log start, bytes at most, no tags."""

_pack_joining = struct.Struct(">iiqiqiBBBq").pack
_HIGH_WATERMARK_TAG = 1
_HIGH_WATERMARK_BYTES = 8
_pack_head = struct.Struct(">iiibii").pack
_pack_replica = struct.Struct(">BBBBiqB").pack
_pack_index = struct.Struct(">i").pack
_read_head = struct.Struct(">ihi").unpack_from
_read_topic_id = struct.Struct(">16s").unpack_from
_read_partition = struct.Struct(">ihqqqB").unpack_from
_read_epoch_and_end = struct.Struct(">iq").unpack_from

_PARTITION_BYTES = 31  # up to the count of aborted transactions
_ABORTED_BYTES = 17
_PREFERRED_BYTES = 4
_TAGS_MAX = 16
_DIVERGING_EPOCH = 0


class ReplicaFetched(NamedTuple):
    """One partition of an answer; `diverging` is (epoch, where it ends) in the leader's log."""

    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging: tuple[int, int] | None


def pack_joining(place: tuple[int, int, int, int, int, int], high_watermark: int) -> bytes:
    """Of a `place` as for `pack_partition`; and up to where the follower knows what is committed
    (KIP-1166)."""
    return _pack_joining(*place, 1, _HIGH_WATERMARK_TAG, _HIGH_WATERMARK_BYTES, high_watermark)


def pack_tail(replica_id: int, broker_epoch: int) -> bytes:
    """No rack, and as the only tag who is asking, in which life."""
    return _pack_replica(1, 1, 1, 13, replica_id, broker_epoch, 0)


def pack_replica_fetch(
    limits: tuple[int, int, int],
    session: tuple[int, int],
    topics: Mapping[bytes, Sequence[bytes]],
    forgotten: Mapping[bytes, Iterable[int]],
    tail: bytes,
) -> bytes:
    """`limits`: milliseconds to wait, bytes at least and at most. `session`: its id and epoch.
    `topics`: what `pack_partition` gave, by topic id."""
    parts = [_pack_head(*limits, 0, *session), uvarint(len(topics) + 1)]
    for topic_id, partitions in topics.items():
        parts += topic_id, uvarint(len(partitions) + 1), *partitions, b"\0"
    if forgotten:
        parts.append(uvarint(len(forgotten) + 1))
        for topic_id, indexes in forgotten.items():
            packed = [_pack_index(index) for index in indexes]
            parts += topic_id, uvarint(len(packed) + 1), *packed, b"\0"
    else:
        parts.append(b"\1")
    parts.append(tail)
    return b"".join(parts)


def read_replica_fetched(body: memoryview) -> tuple[int, int, list[ReplicaFetched]]:
    """The error of the whole, the session's id, and the partitions."""
    try:
        return _read(body)
    except MALFORMED as cause:
        raise MalformedRequest(f"answer to a replica's Fetch: {cause}") from cause


def _read(body: memoryview) -> tuple[int, int, list[ReplicaFetched]]:
    size = len(body)
    _, error_code, session_id = _read_head(body)
    topic_count, position = read_uvarint(body, 10)
    fetched: list[ReplicaFetched] = []
    for _ in range(topic_count - 1):
        (topic_id,) = _read_topic_id(body, position)
        partition_count, position = read_uvarint(body, position + 16)
        for _ in range(partition_count - 1):
            one, position = _read_one(body, position, size, topic_id)
            fetched.append(one)
        position, _ = skip_tags(body, position, size, _TAGS_MAX)
    return error_code, session_id, fetched


def _read_one(
    body: memoryview, position: int, size: int, topic_id: bytes
) -> tuple[ReplicaFetched, int]:
    index, code, high_watermark, _, log_start, aborted = _read_partition(body, position)
    position += _PARTITION_BYTES
    if aborted > 1:
        count, position = read_uvarint(body, position - 1)
        position += (count - 1) * _ABORTED_BYTES
    length, start = read_uvarint(body, position + _PREFERRED_BYTES)
    position = start + max(length - 1, 0)
    if position >= size:
        raise MalformedRequest(f"records of {length - 1} bytes, {size - start} are left")
    records = body[start:position]
    diverging = None
    if body[position]:
        diverging, position = _read_tags(body, position, size)
    else:
        position += 1
    return (
        ReplicaFetched(topic_id, index, code, high_watermark, log_start, records, diverging),
        position,
    )


def _read_tags(body: memoryview, position: int, size: int) -> tuple[tuple[int, int] | None, int]:
    count, position = read_uvarint(body, position)
    if count > _TAGS_MAX:
        raise MalformedRequest(f"{count} tagged fields are more than may be here")
    diverging = None
    for _ in range(count):
        tag, start, position = read_tag(body, position, size)
        if tag == _DIVERGING_EPOCH:
            epoch, end_offset = _read_epoch_and_end(body, start)
            diverging = (epoch, end_offset)
    return diverging, position
