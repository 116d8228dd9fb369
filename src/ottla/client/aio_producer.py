"""The producer for asyncio: the same machine as the plain one, on the event loop.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        delivery = await producer.send("orders", b"3 cups")       # taken
        print((await delivery).offset)                            # acknowledged
        await producer.send_and_wait("orders", b"1 spoon")        # both at once

Belongs to the event loop in which it was first used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any

from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Buffer
from ottla.client.aio_shell import AioShell
from ottla.client.clock import chance, monotonic_ms, wall_ms
from ottla.client.delivery import RecordMetadata, outcome_of, place_of
from ottla.client.errors import ClientError, ClosedError, TransactionAbortableError
from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata
from ottla.client.producer_batch import DeliveryCallback, Headers, ProducerBatch
from ottla.client.producer_machine import ProducerMachine, size_of
from ottla.client.producer_settings import ProducerSettings
from ottla.client.sender import level_of
from ottla.client.serializing import (
    as_bytes,
    as_headers,
    as_timestamp,
    as_whole_number,
    serialize,
)
from ottla.client.settings import read_settings
from ottla.client.transactions import NEW, PreparedTransaction

logger = logging.getLogger("ottla.client")

_CLOSE_TIMEOUT_S = 60.0


class AsyncDelivery:
    """What becomes of one record: await it, as often as you like."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        return place_of(self._batch, self._index)[0].done

    def exception(self) -> OttlaError | None:
        """Of a delivery that is done."""
        return place_of(self._batch, self._index)[0].error

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, index = place_of(self._batch, self._index)
        if not batch.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def settle() -> None:
                if not future.done():
                    future.set_result(None)

            if batch.waiters is None:
                batch.waiters = []
            batch.waiters.append((index, settle))
            yield from future
            batch, index = place_of(batch, index)
        metadata, error = outcome_of(batch, index, self._timestamp_ms)
        if error is not None:
            raise error
        assert metadata is not None
        return metadata


class AsyncProducer:
    def __init__(self, settings: Mapping[str, Any] | None = None, **named: Any) -> None:
        """Settings under Kafka's names: `{"linger.ms": 20}` or `linger_ms=20`."""
        read = read_settings(ProducerSettings, settings, named)
        self._settings = read
        self._machine = ProducerMachine(read, chance, monotonic_ms)
        self._machine.sender.on_done = self._on_done
        self._running: AioShell | None = None
        self._closed = False

    @property
    def _shell(self) -> AioShell:
        if self._running is None:
            self._running = AioShell(self._machine.core)
        return self._running

    def _on_done(self, batch: ProducerBatch) -> None:
        self._shell.later(batch.run_callbacks)

    # ---------------------------------------------------------------------------------- send

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        on_delivery: DeliveryCallback | None = None,
    ) -> AsyncDelivery:
        """Takes a record; waits only for metadata or memory (`max.block.ms`)."""
        machine, settings = self._machine, self._settings
        if settings.value_serializer is not None or settings.key_serializer is not None:
            value, key = serialize(settings, value, key)
        if value.__class__ is not bytes and value is not None:
            value = as_bytes(value, "value")
        if key.__class__ is not bytes and key is not None:
            key = as_bytes(key, "key")
        timestamp_ms = wall_ms() if timestamp_ms is None else as_timestamp(timestamp_ms)
        if headers is not None:
            headers = as_headers(headers)
        if partition is not None and partition.__class__ is not int:
            partition = as_whole_number(partition, "a partition")
        place = machine.append(
            topic, value, key, headers, partition, timestamp_ms, on_delivery=on_delivery
        )
        if machine.accumulator.wants_turn or machine.core.nodes.writable:
            self._shell.turn()
            # A caller that only sends would keep the loop from reading the answers.
            await asyncio.sleep(0)
        if place is None:
            record = (topic, value, key, headers, partition, timestamp_ms)
            append = partial(machine.append, *record, on_delivery=on_delivery)
            size, deadline_ms = size_of(value, key, headers), self._deadline_ms(None)
            waiting = machine.in_time(append, topic, partition, size, deadline_ms)
            place = await self._shell.call(waiting)
        return AsyncDelivery(place[0], place[1], timestamp_ms)

    async def send_and_wait(
        self, topic: str, value: Any = None, key: Any = None, **more: Any
    ) -> RecordMetadata:
        """Takes a record and waits until the broker has acknowledged it."""
        return await (await self.send(topic, value, key, **more))

    async def send_batch(
        self,
        topic: str,
        partition: int,
        encoded: Buffer,
        on_delivery: DeliveryCallback | None = None,
    ) -> AsyncDelivery:
        """Sends a whole record batch (format 2) that is encoded already, as one.

        It gets this producer's numbers and checksum; the delivery is that of its last record.
        """
        machine = self._machine
        batch = machine.append_encoded(topic, partition, encoded, on_delivery)
        if batch is not None:
            self._shell.turn()
            await asyncio.sleep(0)
        else:
            append = partial(machine.append_encoded, topic, partition, encoded, on_delivery)
            size, deadline_ms = len(encoded), self._deadline_ms(None)
            waiting = machine.in_time(append, topic, partition, size, deadline_ms)
            batch = await self._shell.call(waiting)
        return AsyncDelivery(batch, batch.count - 1, batch.max_timestamp)

    async def send_table(
        self,
        table: Any,
        topic: str,
        *,
        key: str | None = None,
        value: str | None = "value",
        headers: str | None = None,
        timestamp: str | None = None,
        partition_by: str | None = None,
    ) -> list[AsyncDelivery]:
        """Sends every row as a record: an Arrow table, a pandas or a polars frame.

        As the plain producer's, with a delivery for each batch; `asyncio.gather(*deliveries)`.
        """
        # Loaded on the first use: a producer of records has no need of numpy and pyarrow.
        from ottla.client.columns import sending  # noqa: PLC0415

        columns = sending.TableColumns(key, value, headers, timestamp, partition_by)
        rules = sending.rules_of(self._settings, level_of(self._settings))
        encoder = sending.TableEncoder(sending.as_table(table), columns, rules, wall_ms())
        await self._shell.call(self._machine.room(topic, None, 0, self._deadline_ms(None)))
        deliveries = []
        for batch in encoder.batches(await self.partitions_for(topic)):
            partition = batch.partition
            if partition == sending.NO_PARTITION:
                partition = self._machine.draw(topic)
            deliveries.append(await self.send_batch(topic, partition, batch.encoded))
        return deliveries

    # ---------------------------------------------------------------------------- transactions

    @property
    def settings(self) -> ProducerSettings:
        return self._settings

    @property
    def is_initialized(self) -> bool:
        """Whether `init_transactions` has been called, by you or by the first transaction."""
        return self._machine.transaction().state != NEW

    @property
    def is_committing(self) -> bool:
        """Whether a commit was asked for whose outcome nobody knows: then commit again."""
        return self._machine.transaction().is_deciding

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncProducer]:
        """All or nothing: commits at the end of the block, aborts where it raises."""
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException as error:
            await self._abort_if_possible()
            if isinstance(error, TransactionAbortableError):
                self._machine.transaction().raise_if_fenced()  # as the abort has found out
            raise

    async def _abort_if_possible(self) -> None:
        """What went wrong before is what the application is told; the next transaction begins with
        what is left to be done for this one."""
        if self._machine.transaction().may_abort:
            try:
                await self.abort_transaction()
            except ClientError as error:
                logger.warning("an abort did not come to its end: %s", error)

    async def init_transactions(
        self, timeout_s: float | None = None, *, keep_prepared: bool = False
    ) -> None:
        """Fences whoever had this transactional id. The first transaction does it, if nobody did.

        With `keep_prepared` a prepared transaction is kept, to be ended by `complete_transaction`.
        """
        machine = self._machine.transaction()
        await self._shell.call(
            machine.initialize(self._deadline_ms(timeout_s), keep_prepared=keep_prepared)
        )

    async def begin_transaction(self) -> None:
        """Waits first for the end of the one before, if that was asked for and timed out."""
        machine = self._machine.transaction()
        if machine.state == NEW:
            await self.init_transactions()
        elif machine.is_unfinished:
            await self._shell.call(machine.finish(self._deadline_ms(None)))
        machine.begin()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: GroupMetadata | str,
        timeout_s: float | None = None,
    ) -> None:
        """Commits a consumer group's positions with the transaction."""
        machine = self._machine.transaction()
        who = GroupMetadata(group) if isinstance(group, str) else group
        await self._shell.call(machine.send_offsets(offsets, who, self._deadline_ms(timeout_s)))

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Sends what is left and commits. After a TimedOutError it may be called again."""
        await self._shell.call(self._machine.transaction().commit(self._deadline_ms(timeout_s)))

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        await self._shell.call(self._machine.transaction().abort(self._deadline_ms(timeout_s)))

    async def prepare_transaction(self, timeout_s: float | None = None) -> PreparedTransaction:
        """Sends what is left and leaves the decision to whoever holds the answer."""
        return await self._shell.call(
            self._machine.transaction().prepare(self._deadline_ms(timeout_s))
        )

    async def complete_transaction(self, *, commit: bool, timeout_s: float | None = None) -> None:
        """Decides a transaction that this producer prepared, or kept when it began."""
        await self._shell.call(
            self._machine.transaction().complete(self._deadline_ms(timeout_s), commit=commit)
        )

    def _deadline_ms(self, timeout_s: float | None) -> float:
        patience_ms = self._settings.max_block_ms if timeout_s is None else timeout_s * 1000
        return monotonic_ms() + patience_ms

    # ------------------------------------------------------------------------------- the rest

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; waits for it as `send` does."""
        core = self._machine.core
        info = await self._shell.call(core.metadata.topic(topic, self._deadline_ms(None)))
        return len(info.partitions)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Waits until everything sent so far is acknowledged or failed, and callbacks were told."""
        deadline_ms = None if timeout_s is None else self._deadline_ms(timeout_s)
        await self._shell.call(self._machine.flush(deadline_ms))
        await asyncio.sleep(0)  # callbacks are on the loop by now: after them it is our turn

    def metrics(self) -> dict[str, float]:
        return self._machine.metrics()

    async def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Sends what it has, waits for the answers so long, and ends; twice is no harm. An open
        transaction is aborted."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._shell.call(self._machine.close(self._deadline_ms(timeout_s)))
        except ClosedError:
            pass
        finally:
            await self._shell.close()

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
