"""Fetch 4-18: records by offset, with long poll and incremental sessions.

v7 sessions (KIP-227); v10 zstd, which older readers get too, as from Kafka 4; v11 rack; v12 epochs
and divergence (KIP-595); v13 topic ids; v15 replica state as a tag; v16 leader hints. Records are
handed on as slices of segment files: their bytes never enter Python.

A fetch that finds too little waits (`fetch_wait`). The requests of a reader of one partition take a
shorter way after the first (`fetch_route`).
"""

from __future__ import annotations

import uuid

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError, StorageError
from ottla.handlers.context import Context
from ottla.handlers.fetch_route import READ_COMMITTED, READ_UNCOMMITTED, learn
from ottla.handlers.fetch_wait import FetchWait
from ottla.handlers.leader_hints import endpoints_of, leader_of
from ottla.handlers.local_partitions import ANY_EPOCH
from ottla.handlers.nearest_replica import NO_PREFERENCE, preferred_replica
from ottla.handlers.replica_fetch import handle_replica_fetch
from ottla.handlers.reply import Reply
from ottla.log.partition_log import LogSlice, PartitionLog
from ottla.log.segment import RottenLength
from ottla.protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_TOPIC_ID,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    fetch_response_parts,
    read_fetch_request,
)
from ottla.replication.fetch_sessions import (
    PartitionKey,
    SessionAnswer,
    SessionPartition,
    asked_for,
)
from ottla.replication.partition import Partition

API_KEY = 1
VERSIONS = (4, 18)

FIRST_VERSION_WITH_RACK = 11
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_HINTS = 16

WITHOUT_ABORTED = frozenset({UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION})
UNKNOWN = frozenset({UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION})

ReadTopics = list[tuple[PartitionKey, SessionPartition, FetchedPartition]]


def handle(context: Context, body: memoryview) -> Reply | Deferred[Reply | None]:
    request = read_fetch_request(context.api_version, body)
    if request.replica_id >= 0:
        return handle_replica_fetch(context, request)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refuse_all(context, request)
    services = context.services
    answer = services.fetch_sessions.resolve(
        request,
        context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS,
        services.clock.monotonic_ms(),
    )
    if answer.error_code != NONE:
        return _reply(context, answer.error_code, 0, [])
    fetch = _Fetch(context, request, answer)
    fetch.find()
    fetch.read()
    fetch.keep_route(body)
    if fetch.may_answer():
        return fetch.reply()
    return fetch.park()


def _refuse_all(context: Context, request: FetchRequest) -> Reply:
    """Kafka fails on an unknown isolation level as a whole; by name each partition is told, too."""
    told: ReadTopics = []
    if context.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
        told = [
            (key, wanted, _error(wanted.request.partition, UNKNOWN_SERVER_ERROR))
            for key, wanted in asked_for(request)
        ]
    return _reply(context, UNKNOWN_SERVER_ERROR, request.session_id, told)


class _Fetch(FetchWait):
    """One request: what was read so far, and whether that is enough."""

    __slots__ = (
        "_bytes_for_min",
        "_bytes_max",
        "_found",
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
        self._bytes_for_min = 0
        """What was read, and what would have been but for the room that there is."""
        limit = context.services.config.get_int("fetch.max.bytes")
        self._bytes_max = min(request.max_bytes, limit)
        # More than that would never come: it would wait in vain, each time.
        request.min_bytes = min(request.min_bytes, self._bytes_max)
        self._found: list[Partition | None] = []
        """The partitions of the answer, in its order; waiting, we are known to each of them."""
        self._urgent = False

    # -- reading ----------------------------------------------------------------------------

    def find(self) -> None:
        services = self.context.services
        self._found = []
        for _, wanted in self.answer.partitions:
            name = self._name_of(wanted)
            index = wanted.request.partition
            self._found.append(None if name is None else services.partitions.find(name, index))

    def read(self) -> None:
        self.reads = []
        self.bytes_read = self._bytes_for_min = 0
        for (key, wanted), partition in zip(self.answer.partitions, self._found, strict=True):
            fetched = self._read_one(wanted, partition, self._bytes_max - self.bytes_read)
            if fetched.records is not None:
                self.bytes_read += fetched.records.size
            # What nobody knows is told when the others are, as by Kafka: told at once it would have
            # its reader ask again and again without a pause, for as long as it has not noticed.
            is_unknown = partition is None and fetched.error_code in UNKNOWN
            if (
                (fetched.error_code != NONE and not is_unknown)
                or fetched.diverging_epoch is not None
                or fetched.preferred_read_replica != NO_PREFERENCE
            ):
                self._urgent = True
            self.reads.append((key, wanted, fetched))

    def _read_one(
        self, wanted: SessionPartition, partition: Partition | None, bytes_left: int
    ) -> FetchedPartition:
        index = wanted.request.partition
        if partition is None:
            return self._absent(wanted)
        if wanted.topic_id is not None and wanted.topic_id != partition.topic_id:
            return _error(index, INCONSISTENT_TOPIC_ID)
        code = self._refusal(partition, wanted.request.current_leader_epoch)
        if code != NONE:
            return _error(index, code, self._leader_of(partition.topic, index, code))
        log = partition.log
        assert log is not None  # the refusal was KAFKA_STORAGE_ERROR otherwise
        try:
            return self._read_log(partition, log, wanted.request, bytes_left)
        except RottenLength as rotten:
            self.context.services.suspect(partition, rotten.offset)
            return _error(index, rotten.code)
        except ProtocolError as refused:
            return _error(index, refused.code)
        except StorageError as failure:
            self.context.services.storage_failed(failure)
            return _error(index, KAFKA_STORAGE_ERROR)

    def _read_log(
        self, partition: Partition, log: PartitionLog, wanted: FetchPartition, bytes_left: int
    ) -> FetchedPartition:
        rack = self.request.rack_id
        if rack:
            preferred = preferred_replica(self.context, partition, rack, wanted.fetch_offset)
            if preferred != NO_PREFERENCE:
                return _elsewhere(partition, log, wanted.partition, preferred)
        diverging = _divergence(partition, log, wanted)
        committed = self.request.isolation_level == READ_COMMITTED
        upper_bound = partition.last_stable_offset if committed else partition.high_watermark
        records: LogSlice | None = None
        if diverging is None:
            # The first partition with data gives at least one batch, whatever its size.
            first = self.bytes_read == 0
            room = max(min(wanted.partition_max_bytes, bytes_left), 0)
            records = log.read(wanted.fetch_offset, room, upper_bound, at_least_one=first)
            if records is not None:
                self._bytes_for_min += records.bytes_for(room)
            elif not first and wanted.fetch_offset < upper_bound:
                self._bytes_for_min += room  # not even one batch fits
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

    def _absent(self, wanted: SessionPartition) -> FetchedPartition:
        name = self._name_of(wanted)
        index = wanted.request.partition
        if name is None:
            return _error(index, UNKNOWN_TOPIC_ID)
        code = self._absence_of(name, index)
        return _error(index, code, self._leader_of(name, index, code))

    def _refusal(self, partition: Partition, current_leader_epoch: int) -> int:
        """Who can be sent elsewhere may also read from a follower (KIP-392)."""
        current_leader_epoch = max(current_leader_epoch, ANY_EPOCH)  # nothing below 0 is an epoch
        if self.context.api_version < FIRST_VERSION_WITH_RACK:
            return partition.check_leader(current_leader_epoch)
        return partition.check_replica(current_leader_epoch)

    def _leader_of(self, name: str, index: int, code: int) -> tuple[int, int] | None:
        if self.context.api_version < FIRST_VERSION_WITH_HINTS:
            return None
        if code not in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH):
            return None
        return leader_of(self.context, name, index)

    def _name_of(self, wanted: SessionPartition) -> str | None:
        """An id that was known once keeps its name: its topic may be deleted, and made anew."""
        if wanted.name is None and wanted.topic_id is not None:
            wanted.name = self.context.services.image.topic_names_by_id.get(wanted.topic_id)
        return wanted.name

    def _absence_of(self, name: str, index: int) -> int:
        topic = self.context.services.image.topics.get(name)
        if topic is not None and index in topic.partitions:
            return NOT_LEADER_OR_FOLLOWER
        return UNKNOWN_TOPIC_OR_PARTITION

    def keep_route(self, body: memoryview) -> None:
        """For the next request like this one."""
        if len(self._found) == 1 and self._found[0] is not None and not self._urgent:
            partition = self._found[0]
            learn(self.context, body, self.request, self.answer, partition, _tell_at_last)

    # -- answering --------------------------------------------------------------------------

    def may_answer(self) -> bool:
        return (
            self._urgent
            or self._bytes_for_min >= self.request.min_bytes
            or self.request.max_wait_ms <= 0
            or all(partition is None for partition in self._found)
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
        found = [partition for partition in self._found if partition is not None]
        missing_bytes = self.request.min_bytes - self._bytes_for_min
        return self.wait(self.context.services, found, missing_bytes, self.request.max_wait_ms)

    def enough(self) -> Reply | None:
        self.read()
        if self.may_answer():
            return self.reply()
        self.missing_bytes = self.request.min_bytes - self._bytes_for_min
        return None

    def at_last(self) -> Reply:
        self.find()
        self.read()
        return self.reply()


def _tell_at_last(context: Context, request: FetchRequest, answer: SessionAnswer) -> Reply:
    return _Fetch(context, request, answer).at_last()


def _reply(context: Context, error_code: int, session_id: int, told: ReadTopics) -> Reply:
    topics: list[tuple[str | None, uuid.UUID | None, list[FetchedPartition]]] = []
    last_key: object = None
    for key, wanted, fetched in told:
        if not topics or key[0] != last_key:
            topics.append((wanted.name, wanted.topic_id, []))
            last_key = key[0]
        topics[-1][2].append(fetched)
    leaders = [read[2].current_leader[0] for read in told if read[2].current_leader is not None]
    endpoints = endpoints_of(context, leaders) if leaders else ()
    parts, size = fetch_response_parts(
        context.api_version, 0, error_code, session_id, topics, endpoints
    )
    return Reply(parts, size)


def _error(index: int, code: int, leader: tuple[int, int] | None = None) -> FetchedPartition:
    # What is not known has no aborted transactions, in Kafka; elsewhere they are not told: null.
    aborted = () if code in WITHOUT_ABORTED else None
    return FetchedPartition(index, code, -1, -1, -1, aborted, -1, None, None, leader)


def _elsewhere(
    partition: Partition, log: PartitionLog, index: int, preferred: int
) -> FetchedPartition:
    """No records: another replica is nearer to the consumer."""
    return FetchedPartition(
        index,
        NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        log.log_start_offset,
        None,
        preferred,
        None,
    )


def _divergence(
    partition: Partition, log: PartitionLog, wanted: FetchPartition
) -> tuple[int, int] | None:
    """Where the reader's log and ours part, if its last record is not one of ours (KIP-595). A
    follower says so of what it has itself, as Kafka's do."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise ProtocolError(OFFSET_OUT_OF_RANGE, "the last fetched epoch is not known here")
    if wanted.fetch_offset < log.log_start_offset:
        raise ProtocolError(OFFSET_OUT_OF_RANGE, "there is nothing so old any more")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return epoch, end_offset
    return None
