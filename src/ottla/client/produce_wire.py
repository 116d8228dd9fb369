"""Produce as a client says it: the request around batches that are bytes already, and its answer.

The counterpart of `protocol.produce`. The batches themselves are never copied: a request is a list
of buffers. `produce_request` has the short way of a single batch.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import check
from ottla.base.ports import Buffer
from ottla.protocol import messages
from ottla.protocol.api_keys import PRODUCE
from ottla.protocol.primitives import compact_string, legacy_string, uvarint

FIRST_WITH_TOPIC_ID = 13
FIRST_FLEXIBLE = 9

_pack_acks_timeout = struct.Struct(">hi").pack
_pack_acks_timeout_count = struct.Struct(">hii").pack
_pack_int = struct.Struct(">i").pack
_pack_index_length = struct.Struct(">ii").pack

TopicKey = str | uuid.UUID
Batches = Mapping[str, Sequence[tuple[int, Sequence[Buffer]]]]
"""By topic: a partition and its batch, in as many pieces as it happens to be."""


class PartitionAnswer(NamedTuple):
    error_code: int
    base_offset: int
    append_time_ms: int
    message: str | None = None
    leader: tuple[int, int] | None = None  # (node id, leader epoch), where the broker knows better
    record_errors: tuple[tuple[int, str | None], ...] = ()


class ProduceAnswer(NamedTuple):
    partitions: dict[tuple[TopicKey, int], PartitionAnswer]
    throttle_time_ms: int = 0
    endpoints: tuple[tuple[int, str, int, str | None], ...] = ()


def encode_produce(
    version: int,
    batches: Batches,
    topic_ids: Mapping[str, uuid.UUID],
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> list[Buffer]:
    if version < FIRST_FLEXIBLE:
        return _encode_legacy(batches, transactional_id, acks, timeout_ms)
    parts: list[Buffer] = []
    head = (
        compact_string(transactional_id)
        + _pack_acks_timeout(acks, timeout_ms)
        + uvarint(len(batches) + 1)
    )
    for name, partitions in batches.items():
        head += topic_ids[name].bytes if version >= FIRST_WITH_TOPIC_ID else compact_string(name)
        head += uvarint(len(partitions) + 1)
        for index, pieces in partitions:
            size = sum(map(len, pieces))
            parts += head + _pack_int(index) + uvarint(size + 1), *pieces
            head = b"\0"
        head += b"\0"
    parts.append(head + b"\0")
    return parts


def _encode_legacy(
    batches: Batches, transactional_id: str | None, acks: int, timeout_ms: int
) -> list[Buffer]:
    parts: list[Buffer] = []
    head = legacy_string(transactional_id) + _pack_acks_timeout_count(
        acks, timeout_ms, len(batches)
    )
    for name, partitions in batches.items():
        head += legacy_string(name) + _pack_int(len(partitions))
        for index, pieces in partitions:
            parts += head + _pack_index_length(index, sum(map(len, pieces))), *pieces
            head = b""
    check(head == b"", "a request has batches")
    return parts


def decode_produce(version: int, body: Buffer) -> ProduceAnswer:
    answer = messages.decode_response(PRODUCE, version, body)
    partitions: dict[tuple[TopicKey, int], PartitionAnswer] = {}
    for topic in answer.responses:
        key: TopicKey = topic.topic_id if version >= FIRST_WITH_TOPIC_ID else topic.name
        for one in topic.partition_responses:
            leader = getattr(one, "current_leader", None)
            partitions[key, one.index] = PartitionAnswer(
                one.error_code,
                one.base_offset,
                one.log_append_time_ms,
                one.error_message,
                None
                if leader is None or leader.leader_id < 0
                else (leader.leader_id, leader.leader_epoch),
                tuple((it.batch_index, it.batch_index_error_message) for it in one.record_errors),
            )
    endpoints = tuple(
        (one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints or ()
    )
    return ProduceAnswer(partitions, answer.throttle_time_ms, endpoints)
