"""The short way of a produce: straight to the partition that the connection's last one went to.

A producer sends batch after batch to the same partition, and the requests differ in little but the
batch. So what was looked up and decided for one (topic, partition, how the answer begins) is kept
as a route, and the next request whose head is the same, byte for byte, takes it: about half the
cost of the long way through `api_00_produce`.

It serves only what is stored, and waits for nothing but the other replicas. For everything else, a
refusal included, it does nothing and returns None; the long way then finds the reason and gives the
answer. So there is one place that refuses, and this one cannot differ from it. What becomes of a
batch while it waits is told in the long way's words, too.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError, StorageError
from ottla.base.limits import LOOP_DECOMPRESS_BYTES_MAX
from ottla.base.ports import Buffer
from ottla.handlers.commit_wait import CommitWait
from ottla.handlers.context import Context
from ottla.handlers.produce_admission import is_in_transaction
from ottla.log.partition_log import Appended
from ottla.protocol.api_keys import PRODUCE
from ottla.protocol.error_codes import NONE
from ottla.protocol.produce import ProduceRequest
from ottla.records.batch_header import ATTRIBUTES, TRANSACTIONAL_MASK, Header
from ottla.records.validation import (
    LOG_APPEND_TIME,
    ProduceRules,
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
ACKS_AND_TIMEOUT = struct.Struct(">hi").unpack_from
ALL = -1
SIZE_AND_CORRELATION_ID = struct.Struct(">ii").pack
# Error code, base offset, append time, log start; no record errors, no message, no tags of the
# partition and the topic; throttle time, no tags.
PRODUCED = struct.Struct(">hqqqBBBBiB")


NO_ERRORS: tuple[tuple[int, str | None], ...] = ()
Produced = tuple[Any, ...]
"""Index, error code, base offset, append time, log start, record errors, message, leader."""
TellAlone = Callable[[Context, str | None, uuid.UUID | None, Produced], bytes]
"""The long way's answer, of a topic with one partition."""


class ProduceRoute:
    """Where requests go whose bytes from the topic count to the partition index are `head`."""

    __slots__ = ("_answer_head", "_end", "_head", "_name", "_partition", "_tell", "_topic_id")

    api_key = PRODUCE

    def __init__(
        self, head: bytes, request: ProduceRequest, at: Partition, tell: TellAlone
    ) -> None:
        self._name, self._topic_id, _ = request.topics[0]
        self._tell = tell
        self._head = head
        self._end = HEAD_START + len(head)
        self._partition = at
        # The answer names topic and partition in the same bytes, behind its header's tags.
        self._answer_head = b"\0" + head

    def answer(
        self, context: Context, body: memoryview, correlation_id: int
    ) -> bytes | Deferred[bytes] | None:
        records = self._records_of(body)
        if records is None:
            return None
        now_ms = context.services.clock.wall_ms()
        acks, timeout_ms = ACKS_AND_TIMEOUT(body, 1)
        partition = self._partition
        rules = partition.rules_at_once(acks)
        if rules is None:
            if acks != ALL:
                return None
            rules = partition.rules_with_others()
            if rules is None:
                return None
        appended = _store(context, partition, records, rules, now_ms, False)
        if appended is None:
            return None
        append_time_ms = appended.timestamp if rules.timestamp_type == LOG_APPEND_TIME else -1
        stored = appended.base_offset, append_time_ms, appended.log_start_offset
        if acks != ALL or partition.high_watermark > appended.last_offset:
            return self._stored(correlation_id, stored)
        answer: Deferred[bytes] = Deferred()

        def ended(code: int) -> None:
            if code == NONE:
                answer.resolve(self._stored(correlation_id, stored))
            else:
                answer.resolve(self._failed(context, correlation_id, code, stored))

        CommitWait(context, partition, appended.last_offset, timeout_ms, ended)
        return answer

    def answer_run(
        self, context: Context, requests: Sequence[tuple[memoryview, int]]
    ) -> list[bytes]:
        """Those of plain batches that are stored at once and together, in one write."""
        partition, now_ms = self._partition, context.services.clock.wall_ms()
        batches: list[memoryview] = []
        headers: list[Header] = []
        acks = rules = None
        for body, _ in requests:
            records = self._records_of(body)
            if records is None:
                break
            if acks is None:
                acks = ACKS_AND_TIMEOUT(body, 1)[0]
                rules = partition.rules_at_once(acks)
            if rules is None or ACKS_AND_TIMEOUT(body, 1)[0] != acks or records.readonly:
                break
            header = familiar_header(records, rules, now_ms)
            if header is None:
                break
            batches.append(records)
            headers.append(header)
        if len(batches) < 2:
            return []
        try:
            stored = partition.append_run(batches, headers, now_ms)
        except StorageError as failure:
            context.services.storage_failed(failure)
            return []
        return [
            self._stored(correlation_id, (at.base_offset, -1, at.log_start_offset))
            for at, (_, correlation_id) in zip(stored, requests, strict=False)
        ]

    def _records_of(self, body: memoryview) -> memoryview | None:
        """The records in a request that is like the others."""
        if len(body) < SHORTEST or body[0] or body[HEAD_START : self._end] != self._head:
            return None
        return _records(body, self._end)

    def _stored(self, correlation_id: int, stored: tuple[int, int, int]) -> bytes:
        head = self._answer_head
        return b"%b%b%b" % (
            SIZE_AND_CORRELATION_ID(4 + len(head) + PRODUCED.size, correlation_id),
            head,
            PRODUCED.pack(NONE, *stored, 1, 0, 0, 0, 0, 0),
        )

    def _failed(
        self, context: Context, correlation_id: int, code: int, stored: tuple[int, int, int]
    ) -> bytes:
        produced = (self._partition.partition, code, *stored, NO_ERRORS, None, None)
        body = self._tell(context, self._name, self._topic_id, produced)
        return SIZE_AND_CORRELATION_ID(5 + len(body), correlation_id) + b"\0" + body


def learn(
    context: Context, body: memoryview, request: ProduceRequest, at: Partition, tell: TellAlone
) -> None:
    """Keep the route of a request with one batch that went the long way and was stored."""
    if context.api_version < FIRST_FLEXIBLE_VERSION or request.transactional_id is not None:
        return
    name = request.topics[0][0]
    topic_size = 16 if name is None else _compact_size(name)
    head_size = 1 + topic_size + 1 + 4
    head = bytes(body[HEAD_START : HEAD_START + head_size])
    context.route = ProduceRoute(head, request, at, tell)


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
    appended = _store(context, partition, records, rules, now_ms, is_transactional)
    if appended is None:
        return None
    append_time_ms = appended.timestamp if rules.timestamp_type == LOG_APPEND_TIME else -1
    return appended.base_offset, append_time_ms, appended.log_start_offset


def _store(
    context: Context,
    partition: Partition,
    records: memoryview,
    rules: ProduceRules,
    now_ms: int,
    is_transactional: bool,
) -> Appended | None:
    """None, with nothing stored, if there is anything to refuse or to wait for first."""
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
        return partition.append(batch, header, now_ms)
    except ProtocolError:
        return None
    except StorageError as failure:
        context.services.storage_failed(failure)
        return None


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
