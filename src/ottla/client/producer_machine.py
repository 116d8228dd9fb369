"""A producer without IO: takes records, keeps them until they are acknowledged, knows why not.

Ties accumulator, partitioner, sender, identity and transactions to one core. A facade calls
`append`; where that gives None it runs the flow `in_time`, which waits for metadata or
memory. Everything here runs inside a shell, under its lock.

Always holds: a record that was taken is acknowledged or failed, and its outcome told, by
`delivery.timeout.ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.base.errors import OttlaError
from ottla.base.ports import Buffer
from ottla.client.accumulator import Accumulator, TopicLanes
from ottla.client.core import Core
from ottla.client.errors import (
    BufferFullError,
    ClosedError,
    RecordTooLargeError,
    TimedOutError,
    TransactionStateError,
    UnknownTopicError,
)
from ottla.client.lanes import Lane
from ottla.client.partitioner import Partitioner
from ottla.client.producer_batch import (
    DeliveryCallback,
    Headers,
    ProducerBatch,
    load_varints,
)
from ottla.client.producer_identity import ProducerIdentity
from ottla.client.producer_settings import ProducerSettings
from ottla.client.sender import Sender
from ottla.client.transactions import Transactions
from ottla.protocol.error_codes import MESSAGE_TOO_LARGE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.records.batch_header import HEADER_SIZE

T = TypeVar("T")

# What a record takes beside key, value and headers, at most; the batch's header once.
_RECORD_OVERHEAD = 40


class ProducerMachine:
    def __init__(
        self,
        settings: ProducerSettings,
        chance: Callable[[], float],
        monotonic_ms: Callable[[], float],
    ) -> None:
        load_varints()
        self.settings = settings
        self.core = core = Core(
            settings, chance, auto_create=True, topic_idle_ms=settings.metadata_max_idle_ms
        )
        self._monotonic_ms = monotonic_ms
        self.accumulator = Accumulator(settings, core.cluster)
        self._partitioner = Partitioner(settings, core.cluster, chance, monotonic_ms)
        self.identity = ProducerIdentity(core) if settings.idempotent else None
        self.sender = Sender(core, settings, self.accumulator, self.identity)
        if self.identity is not None:
            self.identity.on_known = self.accumulator.enqueue_all
        self.transactions: Transactions | None = None
        if settings.transactional_id is not None:
            assert self.identity is not None
            self.transactions = Transactions(
                core, settings, self.accumulator, self.sender, self.identity
            )
            self.sender.transaction = self.transactions
        core.metadata.listeners.append(self.accumulator.on_metadata)
        core.turn_ends.append(self.sender.on_turn_end)
        core.on_close.append(self._fail_what_is_left)
        self._size_max = min(settings.max_request_size, settings.buffer_memory)
        self._is_hasty = settings.linger_ms == 0
        self.is_closing = False

    # -------------------------------------------------------------------------------- records

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
        *,
        on_delivery: DeliveryCallback | None,
    ) -> tuple[ProducerBatch, int] | None:
        """Takes a record: its batch and index there. None if it has to wait (see `in_time`)."""
        accumulator = self.accumulator
        lanes = accumulator.topics.get(topic)
        if self.transactions is not None:
            self.transactions.check_may_append()
        if lanes is None or self.is_closing:
            self._check_open()
            return None
        size = (
            _RECORD_OVERHEAD
            + (len(value) if value else 0)
            + (len(key) if key else 0)
            + (_size_of(headers) if headers else 0)
        )
        if accumulator.used_bytes + size > accumulator.buffer_memory or size > self._size_max:
            self._check_size(topic, size)
            return None
        if partition is None:
            lane = lanes.lanes[self._partitioner.choose(lanes, key, value, size)]
        elif 0 <= partition < lanes.count:
            lane = lanes.lanes[partition]
        else:
            return None
        batch = lane.open
        is_new = False
        if batch is None or (index := batch.append(timestamp_ms, key, value, headers)) < 0:
            if batch is None:
                batch = self._new_batch(lane, size)
            else:
                lane = self._elsewhere(lanes, lane, key, partition)
                batch = self._batch_for(lane, size)
            index = batch.append(timestamp_ms, key, value, headers)
            is_new = index == 0
        accumulator.used_bytes += size
        batch.charged_bytes += size
        if on_delivery is not None:
            batch.call_back(index, timestamp_ms, on_delivery)
        if is_new:
            self._begin(lane, batch)
        return batch, index

    def _begin(self, lane: Lane, batch: ProducerBatch) -> None:
        """A batch has its first record: that may be all it waits for."""
        if self._is_hasty:
            if not self.sender.send_at_once(batch):
                self.accumulator.enqueue(lane)
                self.accumulator.wants_turn = True
        elif len(batch.records) + _RECORD_OVERHEAD > batch.bytes_max:
            self._send_full(lane)  # nothing more would fit: there is nothing to linger for

    def _check_open(self) -> None:
        if self.is_closing:
            raise ClosedError("the producer is closed")

    def _check_size(self, topic: str, size: int) -> None:
        if size > self._size_max:
            raise RecordTooLargeError(
                MESSAGE_TOO_LARGE,
                f"a record of {size} bytes for {topic}",
                f"more than max.request.size or buffer.memory ({self._size_max}) here",
            )

    def _elsewhere(
        self, lanes: TopicLanes, full: Lane, key: bytes | None, partition: int | None
    ) -> Lane:
        """The lane in which a record goes on whose batch is full."""
        self._send_full(full)
        if partition is not None or not self._partitioner.chooses_freely(key):
            return full
        return lanes.lanes[self._partitioner.draw(lanes)]

    def _batch_for(self, lane: Lane, size: int) -> ProducerBatch:
        batch = lane.open
        if batch is None or batch.bytes_max - len(batch.records) < size:
            self._send_full(lane)
            return self._new_batch(lane, size)
        return batch

    def _send_full(self, lane: Lane) -> None:
        """The open batch is full: it goes now, if it can."""
        batch = lane.open
        if batch is None:
            return
        lane.open = None
        batch.is_sealed = True
        self.core.now_ms = self._monotonic_ms()
        if not self.sender.send_at_once(batch):
            self.accumulator.enqueue(lane)
            self.accumulator.wants_turn = True

    def _new_batch(self, lane: Lane, size: int) -> ProducerBatch:
        self.core.now_ms = now_ms = self._monotonic_ms()
        self.core.metadata.want(lane.topic, now_ms)
        return self.accumulator.open_batch(lane, HEADER_SIZE + size, now_ms)

    def append_encoded(
        self, topic: str, partition: int, encoded: Buffer, on_delivery: DeliveryCallback | None
    ) -> ProducerBatch | None:
        """Takes a whole batch, to be sent as it is but for its numbers. None if it has to wait."""
        accumulator, size = self.accumulator, len(encoded)
        lanes = accumulator.topics.get(topic)
        if self.transactions is not None:
            self.transactions.check_may_append()
        if lanes is None or self.is_closing:
            self._check_open()
            return None
        if accumulator.used_bytes + size > accumulator.buffer_memory or size > self._size_max:
            self._check_size(topic, size)
            return None
        if not 0 <= partition < lanes.count:
            return None
        now_ms = self.core.now_ms = self._monotonic_ms()
        self.core.metadata.want(topic, now_ms)
        lane = lanes.lanes[partition]
        batch = ProducerBatch.of_encoded(
            lane, encoded, now_ms, now_ms + self.settings.delivery_timeout_ms
        )
        batch.charged_bytes = size
        accumulator.used_bytes += size
        accumulator.seal(lane)
        accumulator.add(batch)
        accumulator.enqueue(lane)
        accumulator.wants_turn = True
        if on_delivery is not None:
            batch.call_back(batch.count - 1, batch.max_timestamp, on_delivery)
        return batch

    def draw(self, topic: str) -> int:
        """A partition for a whole batch of records without keys; the topic has been waited for."""
        return self._partitioner.draw(self.accumulator.topics[topic])

    async def in_time(
        self,
        append: Callable[[], T | None],
        topic: str,
        partition: int | None,
        size: int,
        deadline_ms: float,
    ) -> T:
        """What `append` gives, as soon as there is room for it.

        It is called in the turn in which the room is made: nobody else gets in between.
        """
        while True:
            await self.room(topic, partition, size, deadline_ms)
            try:
                taken = append()
            except BaseException:
                self.accumulator.wake()  # the memory it waited for is there for others
                raise
            if taken is not None:
                return taken

    async def room(self, topic: str, partition: int | None, size: int, deadline_ms: float) -> None:
        """Waits for what `append` missed: the topic, the partition, or memory."""
        accumulator, core = self.accumulator, self.core
        lanes = accumulator.topics.get(topic)
        if lanes is None:
            info = await core.metadata.topic(topic, deadline_ms)
            lanes = accumulator.topics.setdefault(topic, TopicLanes(topic))
            lanes.resize(len(info.partitions), info.topic_id)
        elif partition is not None and not 0 <= partition < lanes.count:
            if partition >= 0:
                await core.within(core.metadata.next_update(), deadline_ms, f"topic {topic}")
            if not 0 <= partition < lanes.count:
                raise UnknownTopicError(
                    UNKNOWN_TOPIC_OR_PARTITION,
                    f"{topic} has partitions 0 to {lanes.count - 1}, not {partition}",
                )
        elif accumulator.used_bytes + size > accumulator.buffer_memory:
            await self._memory(size, deadline_ms)

    async def _memory(self, size: int, deadline_ms: float) -> None:
        accumulator = self.accumulator
        pending = accumulator.memory(size)
        try:
            await self.core.within(pending, deadline_ms, "buffer.memory")
        except BaseException as error:
            if not pending.done:
                pending.resolve(None)  # waits no more
            accumulator.wake()  # who waited behind it may go on
            if isinstance(error, TimedOutError):
                raise BufferFullError(
                    f"buffer.memory ({accumulator.buffer_memory} bytes) stayed full for"
                    f" max.block.ms; {error}"
                ) from error
            raise

    def transaction(self) -> Transactions:
        if self.transactions is None:
            raise TransactionStateError("transactions need the setting transactional.id")
        return self.transactions

    # ----------------------------------------------------------------------------- the end

    async def flush(self, deadline_ms: float | None = None) -> None:
        """Until everything taken so far is acknowledged or failed."""
        pending = self.accumulator.flushed()
        if deadline_ms is None:
            await pending
        else:
            await self.core.within(pending, deadline_ms, "flush")

    async def close(self, deadline_ms: float) -> None:
        """Takes no more, sends what it can until the deadline, fails the rest; a transaction that
        is open by then is aborted, as by Kafka's client."""
        self.is_closing = True
        try:
            await self.flush(deadline_ms)
        except TimedOutError:
            self._fail_what_is_left()
        else:
            if self.transactions is not None:
                await self.transactions.close(deadline_ms)

    def _fail_what_is_left(self) -> None:
        self.is_closing = True
        self.fail_all(ClosedError("the producer was closed before this record was acknowledged"))

    def fail_all(self, error: OttlaError) -> None:
        self.sender.fail_all(error)

    def metrics(self) -> dict[str, float]:
        """Kafka's names, since the producer began."""
        sender, accumulator, nodes = self.sender, self.accumulator, self.core.nodes
        return {
            "record-send-total": sender.records_sent,
            "record-error-total": sender.records_failed,
            "batch-send-total": sender.batches_sent,
            "batch-retry-total": sender.batches_retried,
            "batch-split-total": sender.batches_split,
            "byte-total": sender.bytes_sent,
            "request-total": nodes.requests_sent,
            "connection-count": len(nodes.connections),
            "connection-creation-total": nodes.connections_opened,
            "requests-in-flight": sum(len(one.in_flight) for one in nodes.connections.values()),
            "buffer-total-bytes": accumulator.buffer_memory,
            "buffer-available-bytes": accumulator.buffer_memory - accumulator.used_bytes,
            "batches-unfinished": accumulator.unfinished,
            "metadata-age": max(0.0, self.core.now_ms - self.core.metadata.updated_ms) / 1000,
        }


def size_of(value: bytes | None, key: bytes | None, headers: Headers | None) -> int:
    """What a record is charged for, as `append` has it."""
    return (
        _RECORD_OVERHEAD
        + len(value or b"")
        + len(key or b"")
        + (_size_of(headers) if headers else 0)
    )


def _size_of(headers: Headers) -> int:
    """An upper bound: a letter takes at most four bytes, a length at most five."""
    return 5 + sum(10 + 4 * len(name) + len(value or b"") for name, value in headers)
