"""Brings batches to the leaders of their partitions and makes sense of the answers.

Owns what is sent when, again or never: at most `max.in.flight.requests.per.connection` requests to
a node, each with one batch per partition and `max.request.size` in all; retriable refusals and lost
connections lead to another attempt after a backoff, until `retries` or `delivery.timeout.ms` end
it. With idempotence (`lanes`) neither gaps nor copies nor another order can come of that.

Never touches a socket. Always holds: a batch is waiting, on the wire or done.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.base.errors import OttlaError
from ottla.client.accumulator import Accumulator
from ottla.client.backoff import backoff_ms
from ottla.client.cluster import NO_LEADER, Broker
from ottla.client.connection import READY
from ottla.client.core import Core
from ottla.client.errors import (
    ClientError,
    MalformedAnswerError,
    TimedOutError,
    TransactionAbortableError,
    error_for,
    is_retriable_code,
)
from ottla.client.lanes import Lane
from ottla.client.nodes import DATA
from ottla.client.produce_request import ProduceRequest, Wording
from ottla.client.produce_wire import FIRST_WITH_TOPIC_ID, PartitionAnswer, ProduceAnswer
from ottla.client.producer_batch import NO_SEQUENCE, ProducerBatch
from ottla.client.producer_identity import ProducerIdentity
from ottla.client.producer_settings import ProducerSettings
from ottla.client.timers import Timer
from ottla.protocol import error_codes as codes
from ottla.protocol.primitives import NULL_UUID
from ottla.records.compression import CODEC_NAMES, NONE

# Refusals after which somebody else may lead the partition, or the topic be another one.
_STALE_METADATA = frozenset(
    {
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.LEADER_NOT_AVAILABLE,
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.REPLICA_NOT_AVAILABLE,
        codes.KAFKA_STORAGE_ERROR,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_LEADER_EPOCH,
        codes.UNKNOWN_TOPIC_ID,
        codes.INCONSISTENT_TOPIC_ID,
    }
)
# Refusals by which the leader says that it does not have the batch, whatever happened before.
_NOT_IN_SEQUENCE = frozenset(
    {
        codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        codes.UNKNOWN_PRODUCER_ID,
        codes.INVALID_PRODUCER_EPOCH,
    }
)
# Errors after which the batch may be in the log nevertheless.
_MAYBE_STORED = frozenset(
    {
        codes.REQUEST_TIMED_OUT,
        codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        codes.NETWORK_EXCEPTION,
        codes.KAFKA_STORAGE_ERROR,
        codes.UNKNOWN_SERVER_ERROR,
    }
)


class Transaction(Protocol):
    """What the sender asks of transactions, where there are any."""

    produce_version_max: int | None
    produce_version_min: int | None

    def may_send(self, lane: Lane) -> bool:
        """Whether the partition is part of the transaction; if not, it will be enqueued when."""
        ...

    def on_failed(self, batch: ProducerBatch, error: OttlaError) -> None: ...


class Sender:
    def __init__(
        self,
        core: Core,
        settings: ProducerSettings,
        accumulator: Accumulator,
        identity: ProducerIdentity | None,
    ) -> None:
        self._core = core
        self._settings = settings
        self._accumulator = accumulator
        self._identity = identity
        self.transaction: Transaction | None = None
        self.on_done: Callable[[ProducerBatch], None] = lambda batch: None
        self._codec = CODEC_NAMES.index(settings.compression_type)
        self._level = level_of(settings)
        self._wording = Wording(
            settings.transactional_id, settings.acks_code, settings.request_timeout_ms, {}
        )
        self._in_flight_max = settings.max_in_flight_requests_per_connection
        # Without sequences the only way to keep the order is to wait for each answer.
        self._one_at_a_time = self._in_flight_max == 1
        self._alarm: Timer | None = None
        self.batches_sent = 0
        self.records_sent = 0
        self.bytes_sent = 0
        self.records_failed = 0
        self.batches_retried = 0
        self.batches_split = 0

    # ------------------------------------------------------------------------------- the turn

    def on_turn_end(self) -> None:
        """Sends what can be sent now and says when to look again."""
        accumulator, now_ms = self._accumulator, self._core.now_ms
        if (
            not accumulator.wants_turn
            and not accumulator.queued
            and self._alarm is not None
            and now_ms < self._alarm.deadline_ms
        ):
            return
        accumulator.wants_turn = False
        accumulator.end_lingering(now_ms)
        self._expire(now_ms)
        if accumulator.queued and self._has_identity():
            for node_id, queue in list(accumulator.queues.items()):
                if queue:
                    self._serve(node_id, queue)
        self._set_alarm()

    def _has_identity(self) -> bool:
        identity = self._identity
        if identity is None or identity.is_known:
            return True
        if identity.error is not None:
            for batch in self._accumulator.unfinished_batches():
                self._fail(batch, identity.error)
        elif self.transaction is None:
            identity.ask()
        return False

    def _set_alarm(self) -> None:
        deadline_ms = self._accumulator.next_deadline_ms()
        if deadline_ms is None:
            return
        if self._alarm is not None:
            if self._alarm.deadline_ms <= deadline_ms:
                return  # comes early, finds nothing due and is set anew
            self._alarm.cancel()
        self._alarm = self._core.timers.call_at(deadline_ms, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None

    def _expire(self, now_ms: float) -> None:
        accumulator = self._accumulator
        while (batch := accumulator.oldest()) is not None and batch.deadline_ms <= now_ms:
            seconds = (now_ms - batch.created_ms) / 1000
            lane = batch.lane
            last = batch.last_error or self._core.last_network_error
            why = f"; the last thing that failed: {last}" if last is not None else ""
            error = TimedOutError(
                f"{batch.count} records to {lane.topic}-{lane.partition} were not acknowledged"
                f" within delivery.timeout.ms ({seconds:.1f} s, {batch.attempts} attempts){why}"
            )
            error.__cause__ = last
            self._fail(batch, error)

    # -------------------------------------------------------------------------------- sending

    def _serve(self, node_id: int, queue: deque[Lane]) -> None:
        core = self._core
        if node_id == NO_LEADER:
            core.metadata.request_update()
            return
        if not core.is_ready(node_id):
            if node_id not in core.cluster.brokers:
                core.metadata.request_update()
            else:
                may_open_ms = core.nodes.may_open_ms((node_id, DATA))
                if may_open_ms > core.now_ms:
                    self._look_again_at(may_open_ms)
            return
        connection = core.nodes.connections[node_id, DATA]
        while (
            queue
            and len(connection.in_flight) < self._in_flight_max
            and not connection.is_congested
        ):
            batches = self._collect(queue)
            if not batches:
                return
            self._send(node_id, batches)

    def _look_again_at(self, time_ms: float) -> None:
        if self._alarm is None or self._alarm.deadline_ms > time_ms:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._core.timers.call_at(time_ms, self._on_alarm)

    def _collect(self, queue: deque[Lane]) -> list[ProducerBatch]:
        """One batch of each lane in turn, as much as one request may hold."""
        batches: list[ProducerBatch] = []
        size, size_max = 0, self._settings.max_request_size
        for _ in range(len(queue)):
            lane = queue[0]
            batch = self._next_of(lane)
            if batch is not None:
                if batches and size + batch.size > size_max:
                    break
                size += batch.size
                lane.take(batch)
                batches.append(batch)
            queue.popleft()
            self._accumulator.queued -= 1
            lane.queued_at = None
            if batch is not None and self._is_ready(lane):
                self._accumulator.enqueue(lane)
        return batches

    def _is_ready(self, lane: Lane) -> bool:
        if not lane.waiting:
            return False
        head = lane.waiting[0]
        return (
            head.is_sealed
            or self._accumulator.is_short
            or head.created_ms + self._settings.linger_ms <= self._core.now_ms
        )

    def _next_of(self, lane: Lane) -> ProducerBatch | None:
        """The lane's next batch, numbered and encoded; None if it cannot go now.

        Whatever it has to wait for enqueues the lane again: an answer, a timer, a new epoch.
        """
        if lane.not_before_ms > self._core.now_ms:
            self._core.timers.call_at(lane.not_before_ms, lambda: self._accumulator.enqueue(lane))
            return None
        if lane.needs_new_epoch:
            self._settle_gap(lane)
        batch = lane.first_to_send(one_at_a_time=self._one_at_a_time)
        if batch is None or not self._is_ready(lane):
            return None
        if self.transaction is not None and not self.transaction.may_send(lane):
            return None
        identity = self._identity
        if batch.encoded is None or batch.sequence == NO_SEQUENCE:
            if identity is not None and batch.sequence == NO_SEQUENCE:
                batch.is_transactional = self.transaction is not None
                if not lane.number(batch, identity.producer_id, identity.epoch):
                    return None
            batch.encode(self._codec, self._level)
            if self._codec != NONE:
                self._accumulator.on_packed(batch)
        return batch

    def _settle_gap(self, lane: Lane) -> None:
        """A new epoch for a lane whose numbers cannot go on, as soon as that is safe."""
        identity = self._identity
        if identity is None:
            return
        if self.transaction is not None:
            # Only the coordinator gives new epochs, with the end of the transaction.
            if (identity.producer_id, identity.epoch) != (lane.producer_id, lane.epoch):
                if not lane.numbered and not lane.on_wire:
                    lane.begin_epoch(identity.producer_id, identity.epoch)
            return
        if not lane.settle_gap():
            return
        if (identity.producer_id, identity.epoch) == (lane.producer_id, lane.epoch):
            identity.bump()  # else another lane has had one already, which will do
        if identity.is_known:
            lane.begin_epoch(identity.producer_id, identity.epoch)

    def _send(self, node_id: int, batches: list[ProducerBatch]) -> None:
        core = self._core
        connection = core.nodes.connections[node_id, DATA]
        ids: dict[str, uuid.UUID] = {}
        lacks_id = False
        for batch in batches:
            batch.connection = connection
            topic = batch.lane.topic
            info = core.cluster.topics.get(topic)
            if info is None or not info.has_id:
                ids[topic] = NULL_UUID
                lacks_id = True
            else:
                ids[topic] = info.topic_id
        self.batches_sent += len(batches)
        transaction = self.transaction
        version_max = transaction.produce_version_max if transaction is not None else None
        if version_max is None and lacks_id:
            version_max = FIRST_WITH_TOPIC_ID - 1
        request = ProduceRequest(
            node_id,
            batches,
            ids,
            self._wording,
            self._on_answer,
            deadline_ms=core.now_ms + self._settings.request_timeout_ms,
            version_min=None if transaction is None else transaction.produce_version_min,
            version_max=version_max,
        )
        core.nodes.send(connection, request, core.now_ms)

    def send_at_once(self, batch: ProducerBatch) -> bool:
        """The short way of a batch that need not wait for anything; False if it must."""
        lane, core, identity = batch.lane, self._core, self._identity
        if lane.queued_at is not None or self.transaction is not None:
            return False
        if lane.first_to_send(one_at_a_time=self._one_at_a_time) is not batch:
            return False
        if identity is not None and identity.producer_id < 0:
            return False
        node_id = core.cluster.leader_of(lane.topic, lane.partition)
        connection = core.nodes.connections.get((node_id, DATA))
        if (
            connection is None
            or connection.state != READY
            or connection.is_congested
            or len(connection.in_flight) >= self._in_flight_max
            or connection.muted_until_ms > core.now_ms
            or lane.not_before_ms > core.now_ms
        ):
            return False
        if identity is not None and not lane.number(batch, identity.producer_id, identity.epoch):
            return False
        batch.encode(self._codec, self._level)
        if self._codec != NONE:
            self._accumulator.on_packed(batch)
        lane.take(batch)
        if self._alarm is None:
            self._set_alarm()
        self._send(node_id, [batch])
        return True

    # -------------------------------------------------------------------------------- answers

    def _on_answer(
        self,
        request: ProduceRequest,
        answer: ProduceAnswer | None,
        error: OttlaError | None,
    ) -> None:
        batches = request.batches
        for batch in batches:
            batch.lane.returned(batch)
        if answer is not None:
            self._on_results(request, answer)
        elif error is not None:
            for batch in batches:
                self._on_lost(batch, error)
        else:  # the usual answer to one batch; or acks=0, where nobody answers
            for batch in batches:
                if batch.done:
                    batch.lane.note_arrival(batch)
                else:
                    self._succeed(batch, request.base_offset, request.append_time_ms)
        for batch in batches:
            if batch.lane.waiting and self._is_ready(batch.lane):
                self._accumulator.enqueue(batch.lane)

    def _on_results(self, request: ProduceRequest, answer: ProduceAnswer) -> None:
        if answer.throttle_time_ms > 0:
            self._core.mute(request.node_id, DATA, answer.throttle_time_ms)
        for endpoint in answer.endpoints:
            self._core.cluster.brokers[endpoint[0]] = Broker(*endpoint)
        for batch in request.batches:
            topic, partition = batch.lane.topic, batch.lane.partition
            key = request.ids[topic] if request.version >= FIRST_WITH_TOPIC_ID else topic
            result = answer.partitions.get((key, partition))
            if result is None:
                self._on_lost(batch, MalformedAnswerError("a partition without an answer"))
            else:
                self._on_result(batch, result)

    def _on_lost(self, batch: ProducerBatch, error: OttlaError) -> None:
        """Nobody knows what became of it."""
        batch.may_be_stored = True
        if batch.done:
            return
        if isinstance(error, ClientError) and error.retriable:
            self._core.metadata.request_update()
            self._retry(batch, error)
        else:
            self._fail(batch, error)

    def _on_result(self, batch: ProducerBatch, result: PartitionAnswer) -> None:
        code = result.error_code
        if batch.done:  # given up meanwhile; if it arrived after all, its numbers are no gap
            if code == codes.NONE:
                batch.lane.note_arrival(batch)
            return
        if code == codes.NONE:
            self._succeed(batch, result.base_offset, result.append_time_ms)
        elif code == codes.DUPLICATE_SEQUENCE_NUMBER:
            self._succeed(batch, -1, -1)
        elif code in (codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE) and batch.count > 1:
            self._split(batch)
        elif code in _NOT_IN_SEQUENCE and self._identity is not None:
            self._on_out_of_sequence(batch, result)
        else:
            self._on_refused(batch, result)

    def _on_refused(self, batch: ProducerBatch, result: PartitionAnswer) -> None:
        code, lane, core = result.error_code, batch.lane, self._core
        if code in _MAYBE_STORED:
            batch.may_be_stored = True
        error = error_for(code, f"{lane.topic}-{lane.partition}", _message_of(result))
        if not is_retriable_code(code):
            self._fail(batch, error)
            return
        if code in _STALE_METADATA:
            if result.leader is not None and core.cluster.learn_leader(
                lane.topic, lane.partition, *result.leader
            ):
                # The broker said who leads now (KIP-951): no reason to wait.
                self._accumulator.requeue(lane)
                self._retry(batch, error, pause=False)
                return
            core.metadata.request_update()
        self._retry(batch, error)

    def _on_out_of_sequence(self, batch: ProducerBatch, result: PartitionAnswer) -> None:
        lane = batch.lane
        batch.may_be_stored = False
        what = f"{lane.topic}-{lane.partition}"
        error = error_for(result.error_code, what, result.message)
        is_epoch = result.error_code == codes.INVALID_PRODUCER_EPOCH
        if self.transaction is not None:
            if is_epoch:
                # Fenced, or out of time: the coordinator knows, and will tell whoever aborts.
                error = TransactionAbortableError(result.error_code, what, result.message)
            if is_epoch or lane.is_oldest(batch) or lane.needs_new_epoch:
                self._fail(batch, error)
            else:
                self._retry(batch, error)  # once what comes before it has arrived
            return
        if is_epoch or lane.is_oldest(batch):
            lane.needs_new_epoch = True
        self._retry(batch, error)

    def _retry(self, batch: ProducerBatch, error: OttlaError, *, pause: bool = True) -> None:
        lane, core = batch.lane, self._core
        if batch.attempts > self._settings.retries:
            self._fail(batch, error)
            return
        self.batches_retried += 1
        batch.last_error = error
        lane.put_back(batch)
        if pause:
            lane.not_before_ms = core.now_ms + backoff_ms(
                self._settings.retry_backoff_ms,
                self._settings.retry_backoff_max_ms,
                batch.attempts,
                core.chance(),
            )
        self._accumulator.enqueue(lane)

    def _split(self, batch: ProducerBatch) -> None:
        parts = batch.split(self._settings.batch_size)
        self.batches_split += 1
        batch.lane.replace(batch, parts)
        self._accumulator.on_split(batch, parts)
        self._accumulator.enqueue(batch.lane)

    def _succeed(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        batch.lane.acknowledge(batch)
        self.records_sent += batch.count
        self.bytes_sent += batch.size
        batch.succeed(base_offset, append_time_ms)
        self._finish(batch)

    def _fail(self, batch: ProducerBatch, error: OttlaError) -> None:
        batch.lane.give_up(batch)
        self.records_failed += batch.count
        batch.fail(error)
        self._finish(batch)
        if self.transaction is not None:
            self.transaction.on_failed(batch, error)
        self._accumulator.enqueue(batch.lane)

    def _finish(self, batch: ProducerBatch) -> None:
        self._accumulator.on_done(batch)
        for one in batch.lane.take_done():
            if one.callbacks is not None:
                self.on_done(one)

    def fail_all(self, error: OttlaError, *, unsent_only: bool = False) -> None:
        """Gives up what is left: all of it, or what has never been sent."""
        for batch in self._accumulator.unfinished_batches():
            if batch.done:
                continue  # the one before has spoiled the transaction, and this one with it
            if not unsent_only or (batch.sequence == NO_SEQUENCE and not batch.on_wire):
                self._fail(batch, error)


def _message_of(result: PartitionAnswer) -> str | None:
    """With the first records that are at fault, where the broker named them."""
    if not result.record_errors:
        return result.message
    named = ", ".join(
        f"record {index}: {message or 'refused'}" for index, message in result.record_errors[:3]
    )
    return f"{result.message or codes.message_of(result.error_code)} ({named})"


def level_of(settings: ProducerSettings) -> int | None:
    levels = {
        "gzip": settings.compression_gzip_level,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }
    return levels.get(settings.compression_type)
