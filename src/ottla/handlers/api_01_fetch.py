"""Fetch 4-18: records by offset, with long poll and incremental sessions.

v7 sessions (KIP-227); v10 zstd; v11 rack; v12 epochs and divergence (KIP-595); v13 topic ids;
v15 replica state as a tag; v16 leader hints. Records are handed on as slices of segment files:
their bytes never enter Python.

A fetch that finds too little waits, known to each of its partitions, until an append or the
watermark wakes it or its time is up; nothing polls.
"""

from __future__ import annotations

import uuid

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError, StorageError
from ottla.base.ports import Timer
from ottla.handlers.context import Context
from ottla.handlers.replica_fetch import handle_replica_fetch
from ottla.handlers.reply import Reply
from ottla.log.partition_log import LogSlice, PartitionLog
from ottla.protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.protocol.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    fetch_response_parts,
    read_fetch_request,
)
from ottla.records import compression
from ottla.records.batch_header import (
    ATTRIBUTES,
    BATCH_LENGTH,
    CODEC_MASK,
    HEADER_SIZE,
    read_header,
)
from ottla.replication.fetch_sessions import PartitionKey, SessionAnswer, SessionPartition
from ottla.replication.partition import Partition

API_KEY = 1
VERSIONS = (4, 18)

READ_COMMITTED = 1
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_TOPIC_IDS = 13
LENGTH_PREFIX = 12  # base offset and batch length, which the batch length does not count

ReadTopics = list[tuple[PartitionKey, SessionPartition, FetchedPartition]]


def handle(context: Context, body: memoryview) -> Reply | Deferred[Reply | None]:
    request = read_fetch_request(context.api_version, body)
    if request.replica_id >= 0:
        return handle_replica_fetch(context, request)
    services = context.services
    answer = services.fetch_sessions.resolve(
        request,
        context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS,
        services.clock.monotonic_ms(),
    )
    if answer.error_code != NONE:
        return _reply(context, answer.error_code, 0, [])
    fetch = _Fetch(context, request, answer)
    fetch.read()
    if fetch.may_answer():
        return fetch.reply()
    return fetch.park()


class _Fetch:
    """One request: what was read so far, and whether that is enough."""

    __slots__ = (
        "_deferred",
        "_is_held_back",
        "_missing_bytes",
        "_parked_at",
        "_timer",
        "_urgent",
        "answer",
        "bytes_read",
        "context",
        "reads",
        "request",
    )

    def __init__(self, context: Context, request: FetchRequest, answer: SessionAnswer) -> None:
        self.context = context
        self.request = request
        self.answer = answer
        self.reads: ReadTopics = []
        self.bytes_read = 0
        self._urgent = False
        self._is_held_back = False
        self._missing_bytes = 0
        self._parked_at: list[Partition] = []
        self._timer: Timer | None = None
        self._deferred: Deferred[Reply | None] = Deferred()

    # -- reading ----------------------------------------------------------------------------

    def read(self) -> None:
        self.reads = []
        self.bytes_read = 0
        limit = self.context.services.config.get_int("fetch.max.bytes")
        bytes_left = min(self.request.max_bytes, limit)
        for key, wanted in self.answer.partitions:
            fetched = self._read_one(wanted, bytes_left - self.bytes_read)
            if fetched.records is not None:
                self.bytes_read += fetched.records.size
            if fetched.error_code != NONE or fetched.diverging_epoch is not None:
                self._urgent = True
            self.reads.append((key, wanted, fetched))

    def _read_one(self, wanted: SessionPartition, bytes_left: int) -> FetchedPartition:
        index = wanted.request.partition
        name = self._name_of(wanted)
        if name is None:
            return _error(index, UNKNOWN_TOPIC_ID)
        partition = self.context.services.partitions.find(name, index)
        if partition is None:
            return _error(index, self._absence_of(name, index))
        code = partition.check_leader(wanted.request.current_leader_epoch)
        if code != NONE:
            return _error(index, code)
        log = partition.log
        assert log is not None  # check_leader has answered KAFKA_STORAGE_ERROR otherwise
        try:
            return self._read_log(partition, log, wanted.request, bytes_left)
        except ProtocolError as refused:
            return _error(index, refused.code)
        except StorageError as failure:
            self.context.services.storage_failed(failure)
            return _error(index, KAFKA_STORAGE_ERROR)

    def _read_log(
        self, partition: Partition, log: PartitionLog, wanted: FetchPartition, bytes_left: int
    ) -> FetchedPartition:
        diverging = _divergence(log, wanted)
        committed = self.request.isolation_level == READ_COMMITTED
        upper_bound = partition.last_stable_offset if committed else partition.high_watermark
        records: LogSlice | None = None
        if diverging is None:
            # The first partition with data gives at least one batch, whatever its size.
            first = self.bytes_read == 0
            records = log.read(
                wanted.fetch_offset,
                max(min(wanted.partition_max_bytes, bytes_left), 0),
                upper_bound,
                at_least_one=first,
            )
            if records is not None and self.context.api_version < FIRST_VERSION_WITH_ZSTD:
                _refuse_zstd(records)
        aborted: list[tuple[int, int]] | None = None
        if committed:
            aborted = []
            if records is not None:
                aborted = log.aborted_transactions(wanted.fetch_offset, upper_bound, records)
        return FetchedPartition(
            wanted.partition,
            NONE,
            partition.high_watermark,
            partition.last_stable_offset,
            log.log_start_offset,
            aborted,
            -1,
            records,
            diverging,
            None,
        )

    def _name_of(self, wanted: SessionPartition) -> str | None:
        if wanted.topic_id is None:
            return wanted.name
        return self.context.services.image.topic_names_by_id.get(wanted.topic_id)

    def _absence_of(self, name: str, index: int) -> int:
        topic = self.context.services.image.topics.get(name)
        if topic is not None and index in topic.partitions:
            return NOT_LEADER_OR_FOLLOWER
        return UNKNOWN_TOPIC_OR_PARTITION

    # -- answering --------------------------------------------------------------------------

    def may_answer(self) -> bool:
        return (
            self._urgent
            or self.bytes_read >= self.request.min_bytes
            or self.request.max_wait_ms <= 0
            or not self.answer.partitions
        )

    def reply(self) -> Reply:
        session = self.answer.session
        told = self.reads
        if session is not None:
            told = [
                read
                for read in self.reads
                if read[1].worth_telling(read[2]) or not self.answer.incremental
            ]
            for key, _, fetched in told:
                if fetched.records is not None:
                    session.served(key)
        return _reply(self.context, NONE, self.answer.session_id(), told)

    # -- waiting ----------------------------------------------------------------------------

    def park(self) -> Deferred[Reply | None]:
        services = self.context.services
        self._missing_bytes = self.request.min_bytes - self.bytes_read
        for _, wanted in self.answer.partitions:
            partition = services.partitions.find(
                self._name_of(wanted) or "", wanted.request.partition
            )
            if partition is not None:
                partition.add_waiter(self)
                self._parked_at.append(partition)
        self._timer = services.timers.call_later(self.request.max_wait_ms, self._wake)
        return self._deferred

    def on_progress(self, partition: Partition, new_bytes: int) -> None:
        """`new_bytes` is 0 when the watermark moved without an append: look again."""
        self._missing_bytes -= new_bytes
        if self._missing_bytes > 0 and new_bytes and not self._is_held_back:
            return
        if self._is_held_back or self._may_be_held_back(partition):
            # What is new may be hidden by an open transaction: then there is nothing to tell.
            self._is_held_back = True
            self.read()
            if not self.may_answer():
                return
        self._wake()

    def _may_be_held_back(self, partition: Partition) -> bool:
        return (
            self.request.isolation_level == READ_COMMITTED
            and partition.last_stable_offset < partition.high_watermark
        )

    def on_gone(self, partition: Partition) -> None:
        self._wake()

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._parked_at:
            partition.remove_waiter(self)
        self._parked_at = []
        if not self._deferred.done:
            self.read()
            self._deferred.resolve(self.reply())


def _reply(context: Context, error_code: int, session_id: int, told: ReadTopics) -> Reply:
    topics: list[tuple[str | None, uuid.UUID | None, list[FetchedPartition]]] = []
    last_key: object = None
    for key, wanted, fetched in told:
        if not topics or key[0] != last_key:
            topics.append((wanted.name, wanted.topic_id, []))
            last_key = key[0]
        topics[-1][2].append(fetched)
    parts, size = fetch_response_parts(context.api_version, 0, error_code, session_id, topics)
    return Reply(parts, size)


def _error(index: int, code: int) -> FetchedPartition:
    return FetchedPartition(index, code, -1, -1, -1, None, -1, None, None, None)


def _divergence(log: PartitionLog, wanted: FetchPartition) -> tuple[int, int] | None:
    """Where the reader's log and ours part, if its last record is not one of ours (KIP-595)."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise ProtocolError(OFFSET_OUT_OF_RANGE, "the last fetched epoch is not known here")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return epoch, end_offset
    return None


def _refuse_zstd(records: LogSlice) -> None:
    """Readers of before 2.1 cannot unpack zstd and must be told instead of served."""
    position, end = records.position, records.position + records.size
    while position + HEADER_SIZE <= end:
        header = read_header(records.file.read_at(position, HEADER_SIZE))
        if header[ATTRIBUTES] & CODEC_MASK == compression.ZSTD:
            raise ProtocolError(UNSUPPORTED_COMPRESSION_TYPE)
        position += header[BATCH_LENGTH] + LENGTH_PREFIX
