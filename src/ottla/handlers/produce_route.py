"""The short way of a produce: straight to the partition that the connection's last one went to.

A producer sends batch after batch to the same partition, and the requests differ in little but the
batch. So what was looked up and decided for one (topic, partition, how the answer begins) is kept
as a route, and the next request whose head is the same, byte for byte, takes it: about half the
cost of the long way through `api_00_produce`.

It serves only what is stored and acknowledged at once. For everything else, a refusal included, it
does nothing and returns None; the long way then finds the reason and gives the answer. So there is
one place that refuses, and this one cannot differ from it.
"""

from __future__ import annotations

import struct

from ottla.base.errors import ProtocolError, StorageError
from ottla.base.limits import LOOP_DECOMPRESS_BYTES_MAX
from ottla.base.ports import Buffer
from ottla.handlers.context import Context
from ottla.handlers.produce_admission import is_in_transaction
from ottla.protocol.api_keys import PRODUCE
from ottla.protocol.produce import ProduceRequest
from ottla.records.batch_header import ATTRIBUTES, TRANSACTIONAL_MASK
from ottla.records.validation import (
    LOG_APPEND_TIME,
    familiar_header,
    needs_pool,
    validate_unfamiliar,
)
from ottla.replication.partition import Partition

FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_ZSTD = 7

SHORTEST = 63  # anything shorter has no batch in it
HEAD_START = 7  # behind the transactional id (null), the acks and the time-out
TAIL = b"\0\0\0"  # no tags: of the partition, the topic, the request
ACKS = struct.Struct(">h").unpack_from
SIZE_AND_CORRELATION_ID = struct.Struct(">ii").pack
# Error code, base offset, append time, log start; no record errors, no message, no tags of the
# partition and the topic; throttle time, no tags.
PRODUCED = struct.Struct(">hqqqBBBBiB")


class ProduceRoute:
    """Where requests go whose bytes from the topic count to the partition index are `head`."""

    __slots__ = ("_answer_head", "_end", "_head", "_partition")

    api_key = PRODUCE

    def __init__(self, head: bytes, partition: Partition) -> None:
        self._head = head
        self._end = HEAD_START + len(head)
        self._partition = partition
        # The answer names topic and partition in the same bytes, behind its header's tags.
        self._answer_head = b"\0" + head

    def answer(self, context: Context, body: memoryview, correlation_id: int) -> bytes | None:
        if len(body) < SHORTEST or body[0] or body[HEAD_START : self._end] != self._head:
            return None
        records = _records(body, self._end)
        if records is None:
            return None
        now_ms = context.services.clock.wall_ms()
        acks = ACKS(body, 1)[0]
        stored = store_at_once(context, self._partition, records, acks, now_ms, False)
        if stored is None:
            return None
        base_offset, append_time_ms, log_start_offset = stored
        head = self._answer_head
        return b"%b%b%b" % (
            SIZE_AND_CORRELATION_ID(4 + len(head) + PRODUCED.size, correlation_id),
            head,
            PRODUCED.pack(0, base_offset, append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0),
        )


def learn(context: Context, body: memoryview, request: ProduceRequest, at: Partition) -> None:
    """Keep the route of a request with one batch that went the long way and was stored."""
    if context.api_version < FIRST_FLEXIBLE_VERSION or request.transactional_id is not None:
        return
    name = request.topics[0][0]
    topic_size = 16 if name is None else _compact_size(name)
    head_size = 1 + topic_size + 1 + 4
    context.route = ProduceRoute(bytes(body[HEAD_START : HEAD_START + head_size]), at)


def store_at_once(
    context: Context,
    partition: Partition,
    records: memoryview,
    acks: int,
    now_ms: int,
    is_transactional: bool,
) -> tuple[int, int, int] | None:
    """Base offset, append time and log start of a batch that is stored and needs no waiting.

    None, with nothing stored, if there is anything to refuse or to wait for. `is_transactional`:
    the request names a transactional id, without which no batch of a transaction is taken.
    """
    rules = partition.rules_at_once(acks)
    if rules is None or context.api_version < FIRST_VERSION_WITH_ZSTD:
        return None
    try:
        header = familiar_header(records, rules, now_ms)
        batch: Buffer = records
        if header is None:
            if len(records) > LOOP_DECOMPRESS_BYTES_MAX and needs_pool(records, rules):
                return None
            validated = validate_unfamiliar(records, rules, now_ms)
            header, batch = validated.header, validated.batch
        if header[ATTRIBUTES] & TRANSACTIONAL_MASK and not (
            is_transactional and is_in_transaction(partition, header)
        ):
            return None
        appended = partition.append(batch, header, now_ms)
    except ProtocolError:
        return None
    except StorageError as failure:
        context.services.storage_failed(failure)
        return None
    append_time_ms = appended.timestamp if rules.timestamp_type == LOG_APPEND_TIME else -1
    return appended.base_offset, append_time_ms, appended.log_start_offset


def _records(body: memoryview, position: int) -> memoryview | None:
    """The records of the one partition, if nothing but the empty tags stands behind them."""
    length = body[position]
    position += 1
    if length > 127:
        more = body[position]
        position += 1
        length += (more << 7) - 128
        if more > 127:
            more = body[position]
            position += 1
            length += (more << 14) - (128 << 7)
            if more > 127:
                return None
    end = position + length - 1
    if length == 0 or body[end:] != TAIL:
        return None
    return body[position:end]


def _compact_size(name: str) -> int:
    size = len(name.encode())
    return size + (1 if size < 127 else 2)
