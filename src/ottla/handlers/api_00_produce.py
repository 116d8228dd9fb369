"""Produce 3-13 (advertised from 0, because old librdkafka turns compression off otherwise).

v7 zstd; v8 record errors; v9 flexible; v10 leader hints (KIP-951); v12 transactions version 2;
v13 topic ids. One batch a partition; the bytes are checked at the door and stored as they came.

Never holds a view of the request's buffer past its return: what waits for the pool is copied.
"""

from __future__ import annotations

import uuid
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError, StorageError
from ottla.handlers.commit_wait import CommitWait
from ottla.handlers.context import Context
from ottla.handlers.leader_hints import endpoints_of, leader_of
from ottla.handlers.produce_admission import (
    NO_TICKET,
    Codes,
    admit,
    is_answer_good,
    is_in_order,
    is_in_transaction,
    ticket_for,
)
from ottla.handlers.produce_route import (
    FIRST_VERSION_WITH_ZSTD,
    NO_ERRORS,
    Produced,
    learn,
    store_at_once,
)
from ottla.handlers.reply import CloseConnection, OrderedDeferred, Reply
from ottla.log.partition_log import Appended
from ottla.metadata import topic_names
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REQUEST,
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.produce import (
    NodeEndpoint,
    ProducedTopic,
    ProduceRequest,
    pack_produce_response,
    read_produce_request,
)
from ottla.records.batch_header import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    MAGIC_POSITION,
    MAGIC_V2,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
)
from ottla.records.validation import (
    InvalidRecords,
    NotOneBatch,
    Validated,
    needs_pool,
    validate_produced,
)
from ottla.replication.counted import must_sync
from ottla.replication.partition import Partition

API_KEY = 0
VERSIONS = (3, 13)

FIRST_VERSION_WITH_HINTS = 10
# Batches that Kafka refuses with these codes before it has looked at the log; so no log start.
WITHOUT_LOG_START = frozenset(
    {
        CORRUPT_MESSAGE,
        INVALID_TOPIC_EXCEPTION,
        KAFKA_STORAGE_ERROR,
        MESSAGE_TOO_LARGE,
        NOT_LEADER_OR_FOLLOWER,
        RECORD_LIST_TOO_LARGE,
    }
)
SHORT_OF_ROOM = "The disk is almost full: what is left of it is kept in reserve."
Waiting = tuple[list[Produced], int, Partition, Validated, int]
"""Its row and place in the answer, where it goes, what it is, and a ticket of admission."""


def handle(context: Context, body: memoryview) -> Reply | Deferred[Reply | None] | None:
    request = read_produce_request(context.api_version, body)
    is_alone = len(request.topics) == 1 and len(request.topics[0][2]) == 1
    is_forbidden = request.transactional_id is None and _is_transactional(request)
    if not is_alone:
        request.topics = _each_once(request.topics)
    if is_forbidden:
        return _finish(context, request, _refuse_all(request))
    if not -1 <= request.acks <= 1:
        return _finish(context, request, _refuse_acks(context.services.image, request))
    work = _Work(context, request)
    work.start()
    if is_alone and work.stored_at is not None:
        learn(context, body, request, work.stored_at, _told_alone)
    if work.pending == 0:
        return _finish(context, request, work.results)
    return work.answer


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether any of its batches belongs to a transaction."""
    for _, _, partitions in request.topics:
        for _, records in partitions:  # written out, since each produce of many partitions pays
            if (
                records is not None
                and len(records) >= HEADER_SIZE
                and records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK
                and records[MAGIC_POSITION] == MAGIC_V2
            ):
                return True
    return False


def _refuse_all(request: ProduceRequest) -> list[list[Produced]]:
    """Nobody may write to a transaction without naming it; and as in Kafka nothing of the request
    is stored then, not even what belongs to none."""
    return [
        [_failed(index, TRANSACTIONAL_ID_AUTHORIZATION_FAILED) for index, _ in partitions]
        for _, _, partitions in request.topics
    ]


def _each_once(topics: list[ProducedTopic]) -> list[ProducedTopic]:
    """Of a partition that is named twice the last batch counts, as in Kafka; it is told once."""
    by_topic: dict[str | uuid.UUID | None, tuple[ProducedTopic, dict[int, Any]]] = {}
    for topic in topics:
        name, topic_id, partitions = topic
        key = name if topic_id is None else topic_id
        by_topic.setdefault(key, (topic, {}))[1].update(partitions)
    return [
        (name, topic_id, list(batches.items()))
        for (name, topic_id, _), batches in by_topic.values()
        if batches
    ]


def _told_alone(
    context: Context, name: str | None, topic_id: uuid.UUID | None, produced: Produced
) -> bytes:
    """The body of an answer that tells of one partition."""
    request = ProduceRequest(None, -1, 0, [(name, topic_id, [])])
    reply = _finish(context, request, [[produced]])
    assert reply is not None  # of acks=0 alone there is none
    (body,) = reply.parts
    assert isinstance(body, bytes)
    return body


def _refuse_acks(image: MetadataImage, request: ProduceRequest) -> list[list[Produced]]:
    """Of what there is: a partition that nobody knows is told so first."""
    results = []
    for name, topic_id, partitions in request.topics:
        topic = image.topics.get(name or "") if topic_id is None else image.topic_by_id(topic_id)
        unknown = UNKNOWN_TOPIC_OR_PARTITION
        if topic is None and topic_id is not None:
            unknown = UNKNOWN_TOPIC_ID
        known = {} if topic is None else topic.partitions
        results.append(
            [
                _failed(index, INVALID_REQUIRED_ACKS if index in known else unknown)
                for index, _ in partitions
            ]
        )
    return results


def _failed(
    index: int,
    code: int,
    message: str | None = None,
    log_start_offset: int = -1,
    record_errors: Any = NO_ERRORS,
) -> Produced:
    return (index, code, -1, -1, log_start_offset, record_errors, message, None)


def _finish(
    context: Context, request: ProduceRequest, results: list[list[Produced]]
) -> Reply | None:
    if request.acks == 0:
        for partitions in results:
            for produced in partitions:
                if produced[1] != NONE:
                    raise CloseConnection(f"produce with acks=0 failed with code {produced[1]}")
        return None
    endpoints: list[NodeEndpoint] = []
    if context.api_version >= FIRST_VERSION_WITH_HINTS:
        endpoints = _add_hints(context, request, results)
    topics = [
        (name, topic_id, partitions)
        for (name, topic_id, _), partitions in zip(request.topics, results, strict=True)
    ]
    body = pack_produce_response(context.api_version, topics, 0, endpoints)
    return Reply([body], len(body))


def _add_hints(
    context: Context, request: ProduceRequest, results: list[list[Produced]]
) -> list[NodeEndpoint]:
    """Who leads instead, with each partition that is led elsewhere; and where those brokers are."""
    leaders: list[int] = []
    for (name, topic_id, _), partitions in zip(request.topics, results, strict=True):
        for place, produced in enumerate(partitions):
            if produced[1] != NOT_LEADER_OR_FOLLOWER:
                continue
            names = context.services.image.topic_names_by_id
            topic = name if topic_id is None else names.get(topic_id)
            leader = None if topic is None else leader_of(context, topic, produced[0])
            if leader is not None:
                partitions[place] = (*produced[:-1], leader)
                leaders.append(leader[0])
    return endpoints_of(context, leaders) if leaders else []


class _Work:
    """One request under way: a result per partition, some of which may still be awaited."""

    __slots__ = (
        "_not_admitted",
        "answer",
        "context",
        "now_ms",
        "pending",
        "request",
        "results",
        "stored_at",
    )

    def __init__(self, context: Context, request: ProduceRequest) -> None:
        self.context = context
        self.request = request
        self.results: list[list[Produced]] = []
        self.pending = 0
        self.stored_at: Partition | None = None
        """Where the last batch is that waits for nothing but the other replicas."""
        self.answer: Deferred[Reply | None] = Deferred()
        self.now_ms = context.services.clock.wall_ms()
        self._not_admitted: list[Waiting] = []
        """Transactional batches of which the coordinator has to be asked, all at once."""

    def start(self) -> None:
        context, acks = self.context, self.request.acks
        is_transactional = bool(self.request.transactional_id)
        find = context.services.partitions.find
        for topic, topic_id, partitions in self.request.topics:
            row: list[Produced] = []
            self.results.append(row)
            name = self._name_of(topic, topic_id)
            ordinary = name is not None and name not in topic_names.INTERNAL
            for index, records in partitions:
                partition = find(name, index) if ordinary and name is not None else None
                stored = None
                if partition is not None and records is not None:
                    stored = store_at_once(
                        context, partition, records, acks, self.now_ms, is_transactional
                    )
                if stored is None:
                    row.append(())
                    self._start_one(row, name, index, records)
                else:
                    row.append((index, NONE, *stored, NO_ERRORS, None, None))
                    self.stored_at = partition
        if self._not_admitted:
            self._admit()

    def _name_of(self, name: str | None, topic_id: uuid.UUID | None) -> str | None:
        if topic_id is None:
            return name
        return self.context.services.image.topic_names_by_id.get(topic_id)

    def _start_one(
        self, row: list[Produced], name: str | None, index: int, records: memoryview | None
    ) -> None:
        place = len(row) - 1
        if name is None:
            row[place] = _failed(index, UNKNOWN_TOPIC_ID)
            return
        partition = self.context.services.partitions.find(name, index)
        refusal = self._refusal(partition, name, index)
        if refusal != NONE or partition is None:
            row[place] = _failed(index, refusal, log_start_offset=_log_start(partition, refusal))
            return
        if partition.is_short_of_room:
            # Clients try again on this code for as long as they may: Java's until
            # delivery.timeout.ms, librdkafka without counting it as one of its retries.
            row[place] = _failed(index, KAFKA_STORAGE_ERROR, SHORT_OF_ROOM)
            return
        rules = partition.produce_rules(self.context.api_version >= FIRST_VERSION_WITH_ZSTD)
        try:
            if records is not None and needs_pool(records, rules):
                self._validate_in_pool(row, place, partition, bytes(records), rules)
                return
            validated = validate_produced(records, rules, self.now_ms)
        except ProtocolError as refused:
            row[place] = _refused(partition, index, refused)
            return
        self._append_if_admitted(row, place, partition, validated)

    def _refusal(self, partition: Partition | None, name: str, index: int) -> int:
        is_internal = name in topic_names.INTERNAL
        if partition is None:
            topic = self.context.services.image.topics.get(name)
            if topic is None or index not in topic.partitions:
                return UNKNOWN_TOPIC_OR_PARTITION
            return INVALID_TOPIC_EXCEPTION if is_internal else NOT_LEADER_OR_FOLLOWER
        if is_internal:
            return INVALID_TOPIC_EXCEPTION
        code = partition.check_leader(-1)
        if code == NONE and self.request.acks == -1 and not partition.has_enough_in_sync():
            return NOT_ENOUGH_REPLICAS
        return code

    def _validate_in_pool(
        self, row: list[Produced], place: int, partition: Partition, records: bytes, rules: Any
    ) -> None:
        if not isinstance(self.answer, OrderedDeferred):
            self.answer = OrderedDeferred()
        self.pending += 1

        def validated(outcome: Deferred[Validated]) -> None:
            try:
                self._append_if_admitted(row, place, partition, outcome.result())
                if self._not_admitted:
                    self._admit()
            except ProtocolError as refused:
                row[place] = _refused(partition, partition.partition, refused)
            self._one_less()

        view = memoryview(records)
        job = self.context.services.pool.run(validate_produced, view, rules, self.now_ms)
        job.when_done(validated)

    def _append_if_admitted(
        self, row: list[Produced], place: int, partition: Partition, validated: Validated
    ) -> None:
        header = validated.header
        if not header[ATTRIBUTES] & TRANSACTIONAL_MASK:
            self._append(row, place, partition, validated)
        elif not self.request.transactional_id:
            row[place] = _failed(partition.partition, INVALID_REQUEST)  # an empty one is no name
        elif is_in_transaction(partition, header):
            self._append(row, place, partition, validated)
        else:
            self._not_admitted.append((row, place, partition, validated, NO_TICKET))

    def _admit(self) -> None:
        waiting, self._not_admitted = self._not_admitted, []
        places = [(partition.topic, partition.partition) for _, _, partition, _, _ in waiting]
        header = waiting[0][3].header
        waiting = [
            (row, place, partition, validated, ticket_for(partition, validated.header[PRODUCER_ID]))
            for row, place, partition, validated, _ in waiting
        ]
        owner = self.request.transactional_id or ""  # without one nothing gets here
        asked = admit(self.context, owner, header, places)
        if asked.done:
            self._on_admitted(waiting, asked)
            return
        if not isinstance(self.answer, OrderedDeferred):
            self.answer = OrderedDeferred()
        self.pending += 1
        kept = [
            (row, place, partition, Validated(validated.header, bytes(validated.batch)), ticket)
            for row, place, partition, validated, ticket in waiting
        ]

        def admitted(outcome: Deferred[Codes]) -> None:
            self._on_admitted(kept, outcome)
            self._one_less()

        asked.when_done(admitted)

    def _on_admitted(self, waiting: list[Waiting], outcome: Deferred[Codes]) -> None:
        codes = outcome.result()
        first = waiting[0][3].header
        for row, place, partition, validated, ticket in waiting:
            producer_id, epoch = validated.header[PRODUCER_ID], validated.header[PRODUCER_EPOCH]
            code = codes[partition.topic, partition.partition]
            if producer_id != first[PRODUCER_ID]:
                code = INVALID_PRODUCER_ID_MAPPING
            elif epoch != first[PRODUCER_EPOCH]:
                code = INVALID_PRODUCER_EPOCH
            elif code == NONE and not is_in_order(self.context, partition, validated.header):
                code = OUT_OF_ORDER_SEQUENCE_NUMBER
            if not is_answer_good(partition, producer_id, epoch, ticket, code):
                self._not_admitted.append((row, place, partition, validated, NO_TICKET))
            elif code == NONE:
                self._append(row, place, partition, validated)
            else:
                row[place] = _failed(partition.partition, code)
        if self._not_admitted:
            self._admit()

    def _append(
        self, row: list[Produced], place: int, partition: Partition, validated: Validated
    ) -> None:
        header = validated.header
        index = partition.partition
        try:
            appended = partition.append(validated.batch, header, self.now_ms)
        except ProtocolError as refused:
            row[place] = _refused(partition, index, refused)
            return
        except StorageError as failure:
            self.context.services.storage_failed(failure)
            row[place] = _failed(index, KAFKA_STORAGE_ERROR)
            return
        log = partition.log
        append_time_ms = -1
        if log is not None and log.config.message_timestamp_type == "LogAppendTime":
            # Of a duplicate: the time it was stored at, not that of this retry.
            append_time_ms = appended.timestamp
        row[place] = (
            index,
            NONE,
            appended.base_offset,
            append_time_ms,
            appended.log_start_offset,
            NO_ERRORS,
            None,
            None,
        )
        self._wait_if_needed(row, place, partition, appended)

    def _wait_if_needed(
        self, row: list[Produced], place: int, partition: Partition, appended: Appended
    ) -> None:
        log = partition.log
        if log is None or not must_sync(log):
            self._wait_for_others(row, place, partition, appended)
            return
        if not partition.is_alone_in_sync():
            # Their time begins now. Alone, it counts when it is synced, for which nobody is timed.
            self._wait_for_others(row, place, partition, appended)
        self._wait_for_flush(row, place, partition, appended)

    def _wait_for_others(
        self, row: list[Produced], place: int, partition: Partition, appended: Appended
    ) -> None:
        if self.request.acks != -1 or partition.high_watermark > appended.last_offset:
            return
        self.pending += 1
        self.stored_at = partition

        def ended(code: int) -> None:
            if code != NONE:
                row[place] = _stored_but(row[place], code)
            self._one_less()

        timeout_ms = self.request.timeout_ms
        CommitWait(self.context, partition, appended.last_offset, timeout_ms, ended)

    def _wait_for_flush(
        self, row: list[Produced], place: int, partition: Partition, appended: Appended
    ) -> None:
        self.pending += 1
        times_led = partition.times_led
        was_alone = partition.is_alone_in_sync()

        def flushed(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except StorageError:
                code = NOT_LEADER_OR_FOLLOWER if partition.is_gone else KAFKA_STORAGE_ERROR
                row[place] = _failed(partition.partition, code)
            else:
                # Even if it was committed by then: another leader may have been elected uncleanly.
                if row[place][1] == NONE and not partition.has_led_since(times_led):
                    row[place] = _stored_but(row[place], NOT_LEADER_OR_FOLLOWER)
                elif was_alone:
                    self._wait_for_others(row, place, partition, appended)  # who have come since
            self._one_less()

        self.context.services.request_flush(partition).when_done(flushed)

    def _one_less(self) -> None:
        self.pending -= 1
        if self.pending:
            return
        try:
            reply = _finish(self.context, self.request, self.results)
        except CloseConnection as closed:
            self.answer.fail(closed)
        else:
            self.answer.resolve(reply)


def _stored_but(produced: Produced, code: int) -> Produced:
    """It is in the log all the same, and Kafka tells where."""
    index, _, *where = produced
    return (index, code, *where)


def _refused(partition: Partition, index: int, refused: ProtocolError) -> Produced:
    start = -1 if isinstance(refused, NotOneBatch) else _log_start(partition, refused.code)
    errors = refused.record_errors if isinstance(refused, InvalidRecords) else NO_ERRORS
    return _failed(index, refused.code, refused.message or None, start, errors)


def _log_start(partition: Partition | None, code: int) -> int:
    if partition is None or partition.log is None or code in WITHOUT_LOG_START:
        return -1
    return partition.log.log_start_offset
