"""The plain producer: `send` returns at once, a background thread does the rest.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"3 cups", key=b"alice")            # at once
        producer.send("orders", b"1 spoon").result()                # waits for the broker

Safe for use by several threads. Owns no state of its own: `producer_machine` decides, `plain_shell`
acts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.base.ports import Buffer
from ottla.client.clock import chance, monotonic_ms, wall_ms
from ottla.client.delivery import RecordMetadata, outcome_of, place_of
from ottla.client.errors import (
    ClientError,
    ClosedError,
    TimedOutError,
    TransactionAbortableError,
)
from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata
from ottla.client.plain_shell import PlainShell
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
_FOREVER_MS = float("inf")


class Delivery:
    """What becomes of one record: `result()` waits for it."""

    __slots__ = ("_batch", "_index", "_shell", "_timestamp_ms")

    def __init__(
        self, shell: PlainShell, batch: ProducerBatch, index: int, timestamp_ms: int
    ) -> None:
        self._shell = shell
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        return place_of(self._batch, self._index)[0].done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is; raises why it is nowhere, or TimedOutError while nobody knows."""
        batch, index = self._batch, self._index
        if not batch.done:
            self._wait(timeout_s)
            if batch.parts is not None:
                batch, index = place_of(batch, index)
        metadata, error = outcome_of(batch, index, self._timestamp_ms)
        if error is not None:
            raise error
        assert metadata is not None
        return metadata

    get = result

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        if not self.done():
            self._wait(timeout_s)
        return place_of(self._batch, self._index)[0].error

    def _wait(self, timeout_s: float | None) -> None:
        shell = self._shell
        shell.check_thread()
        until_ms = _FOREVER_MS if timeout_s is None else monotonic_ms() + timeout_s * 1000
        with shell.lock:
            batch, index = self._batch, self._index
            if batch.parts is not None:
                batch, index = place_of(batch, index)
            if batch.on_wire and not batch.done:
                connection = batch.connection
                assert connection is not None

                def is_elsewhere() -> bool:
                    """Done, or to be sent again: perhaps it has been, to another broker."""
                    return batch.done or not batch.on_wire or batch.connection is not connection

                shell.drive(connection, is_elsewhere, until_ms)
                if batch.parts is not None:
                    batch, index = place_of(batch, index)
            if batch.done:
                return
            signal = threading.Lock()
            signal.acquire()
            if batch.waiters is None:
                batch.waiters = []
            batch.waiters.append((index, signal.release))
        left_s = -1 if timeout_s is None else max(0.0, until_ms - monotonic_ms()) / 1000
        if not signal.acquire(timeout=left_s):
            raise TimedOutError(f"no acknowledgement within {timeout_s:g} s; it may still come")


class TableDelivery:
    """What becomes of a table: `result()` waits until every row is acknowledged."""

    __slots__ = ("_deliveries", "rows")

    def __init__(self, deliveries: list[Delivery], rows: int) -> None:
        self._deliveries = deliveries
        self.rows = rows

    def done(self) -> bool:
        return all(delivery.done() for delivery in self._deliveries)

    def result(self, timeout_s: float | None = None) -> int:
        """How many rows were sent; raises why some were not, or TimedOutError."""
        deadline_ms = None if timeout_s is None else monotonic_ms() + timeout_s * 1000
        for delivery in self._deliveries:
            left_s = None if deadline_ms is None else (deadline_ms - monotonic_ms()) / 1000
            delivery.result(left_s)
        return self.rows


class Producer:
    def __init__(self, settings: Mapping[str, Any] | None = None, **named: Any) -> None:
        """Settings under Kafka's names: `{"linger.ms": 20}` or `linger_ms=20`."""
        read = read_settings(ProducerSettings, settings, named)
        self._settings = read
        self._machine = ProducerMachine(read, chance, monotonic_ms)
        self._shell = PlainShell(self._machine.core, f"ottla-producer-{read.client_id}")
        self._machine.sender.on_done = self._on_done
        self._closed = False

    def _on_done(self, batch: ProducerBatch) -> None:
        self._shell.later(batch.run_callbacks)

    # ---------------------------------------------------------------------------------- send

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Takes a record and returns; blocks only for metadata or memory (`max.block.ms`).

        `on_delivery(metadata, error)` is called in the background, in order per partition.
        """
        machine, shell, settings = self._machine, self._shell, self._settings
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
        with shell.lock:
            place = machine.append(
                topic, value, key, headers, partition, timestamp_ms, on_delivery=on_delivery
            )
            if machine.accumulator.wants_turn:
                shell.pump()
                shell.turn()
            elif machine.core.nodes.writable:
                shell.carry_out()
        if place is None:
            record = (topic, value, key, headers, partition, timestamp_ms)
            append = partial(machine.append, *record, on_delivery=on_delivery)
            size, deadline_ms = size_of(value, key, headers), self._deadline_ms(None)
            place = shell.call(machine.in_time(append, topic, partition, size, deadline_ms))
        return Delivery(shell, place[0], place[1], timestamp_ms)

    def send_batch(
        self,
        topic: str,
        partition: int,
        encoded: Buffer,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Sends a whole record batch (format 2) that is encoded already, as one.

        It gets this producer's numbers and checksum; the delivery is that of its last record.
        """
        machine, shell = self._machine, self._shell
        with shell.lock:
            batch = machine.append_encoded(topic, partition, encoded, on_delivery)
            if machine.accumulator.wants_turn:
                shell.turn()
        if batch is None:
            append = partial(machine.append_encoded, topic, partition, encoded, on_delivery)
            size, deadline_ms = len(encoded), self._deadline_ms(None)
            batch = shell.call(machine.in_time(append, topic, partition, size, deadline_ms))
        return Delivery(shell, batch, batch.count - 1, batch.max_timestamp)

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

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """All or nothing: commits at the end of the block, aborts where it raises.

        with producer.transaction():
            producer.send("orders", b"3 cups")
            producer.send_offsets({("carts", 0): 17}, consumer.group_metadata())
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException as error:
            self._abort_if_possible()
            if isinstance(error, TransactionAbortableError):
                self._machine.transaction().raise_if_fenced()  # as the abort has found out
            raise

    def _abort_if_possible(self) -> None:
        """What went wrong before is what the application is told; the next transaction begins with
        what is left to be done for this one."""
        if self._machine.transaction().may_abort:
            try:
                self.abort_transaction()
            except ClientError as error:
                logger.warning("an abort did not come to its end: %s", error)

    def init_transactions(
        self, timeout_s: float | None = None, *, keep_prepared: bool = False
    ) -> None:
        """Fences whoever had this transactional id. The first transaction does it, if nobody did.

        With `keep_prepared` a prepared transaction is kept, to be ended by `complete_transaction`.
        """
        machine = self._machine.transaction()
        self._shell.call(
            machine.initialize(self._deadline_ms(timeout_s), keep_prepared=keep_prepared)
        )

    def begin_transaction(self) -> None:
        """Waits first for the end of the one before, if that was asked for and timed out."""
        machine = self._machine.transaction()
        if machine.state == NEW:
            self.init_transactions()
        elif machine.is_unfinished:
            self._shell.call(machine.finish(self._deadline_ms(None)))
        with self._shell.lock:
            machine.begin()

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: GroupMetadata | str,
        timeout_s: float | None = None,
    ) -> None:
        """Commits a consumer group's positions with the transaction."""
        machine = self._machine.transaction()
        who = GroupMetadata(group) if isinstance(group, str) else group
        self._shell.call(machine.send_offsets(offsets, who, self._deadline_ms(timeout_s)))

    def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Sends what is left and commits. After a TimedOutError it may be called again."""
        self._shell.call(self._machine.transaction().commit(self._deadline_ms(timeout_s)))

    def abort_transaction(self, timeout_s: float | None = None) -> None:
        self._shell.call(self._machine.transaction().abort(self._deadline_ms(timeout_s)))

    def prepare_transaction(self, timeout_s: float | None = None) -> PreparedTransaction:
        """Sends what is left and leaves the decision to whoever holds the answer.

        Any client can then decide, once or repeatedly: `Admin.complete_transaction`.
        """
        return self._shell.call(self._machine.transaction().prepare(self._deadline_ms(timeout_s)))

    def complete_transaction(self, *, commit: bool, timeout_s: float | None = None) -> None:
        """Decides a transaction that this producer prepared, or kept when it began."""
        self._shell.call(
            self._machine.transaction().complete(self._deadline_ms(timeout_s), commit=commit)
        )

    def _deadline_ms(self, timeout_s: float | None) -> float:
        patience_ms = self._settings.max_block_ms if timeout_s is None else timeout_s * 1000
        return monotonic_ms() + patience_ms

    # --------------------------------------------------------------------------------- tables

    def send_table(
        self,
        table: Any,
        topic: str,
        *,
        key: str | None = None,
        value: str | None = "value",
        headers: str | None = None,
        timestamp: str | None = None,
        partition_by: str | None = None,
    ) -> TableDelivery:
        """Sends every row as a record: an Arrow table, a pandas or a polars frame.

        `key`, `value`, `headers` and `timestamp` name columns. Rows go where their keys belong, or
        where `partition_by` says: a column of partitions, or one to be hashed like keys. Returns
        when all rows are on their way; rows of one partition stay in order.
        """
        # Loaded on the first use: a producer of records has no need of numpy and pyarrow.
        from ottla.client.columns import sending  # noqa: PLC0415

        columns = sending.TableColumns(key, value, headers, timestamp, partition_by)
        rules = sending.rules_of(self._settings, level_of(self._settings))
        encoder = sending.TableEncoder(sending.as_table(table), columns, rules, wall_ms())
        self._shell.call(self._machine.room(topic, None, 0, self._deadline_ms(None)))
        deliveries = []
        rows = 0
        for batch in encoder.batches(self.partitions_for(topic)):
            partition = batch.partition
            if partition == sending.NO_PARTITION:
                with self._shell.lock:
                    partition = self._machine.draw(topic)
            deliveries.append(self.send_batch(topic, partition, batch.encoded))
            rows += batch.record_count
        return TableDelivery(deliveries, rows)

    # ------------------------------------------------------------------------------- the rest

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; waits for it as `send` does."""
        core = self._machine.core
        info = self._shell.call(
            core.metadata.topic(topic, monotonic_ms() + self._settings.max_block_ms)
        )
        return len(info.partitions)

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until everything sent so far is acknowledged or failed, and callbacks were told."""
        deadline_ms = None if timeout_s is None else monotonic_ms() + timeout_s * 1000
        self._shell.call(self._machine.flush(deadline_ms))
        left_s = None if deadline_ms is None else (deadline_ms - monotonic_ms()) / 1000
        self._shell.wait_for_callbacks(left_s)

    def metrics(self) -> dict[str, float]:
        with self._shell.lock:
            return self._machine.metrics()

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Sends what it has, waits for the answers so long, and ends; twice is no harm. An open
        transaction is aborted.

        Called from a callback it waits for nothing.
        """
        if self._closed:
            return
        self._closed = True
        if self._shell.is_in_callback():
            self._shell.close()  # it cannot wait for itself: what is not acknowledged yet fails
            return
        try:
            self._shell.call(self._machine.close(monotonic_ms() + timeout_s * 1000))
        except ClosedError:
            pass
        finally:
            self._shell.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
