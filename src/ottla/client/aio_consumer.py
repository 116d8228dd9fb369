"""The consumer for asyncio: the same machine as the plain one, on the event loop.

    async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        consumer.subscribe("orders")
        async for record in consumer:
            print(record.key, record.value)

For one task at a time, on the event loop in which it was first used. Rebalance callbacks may be
coroutines.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.ids import TopicPartition
from ottla.client.aio_shell import AioShell
from ottla.client.clock import chance, monotonic_ms, new_id, wall_ms
from ottla.client.consumer_calls import (
    ConsumerCalls,
    OffsetsToCommit,
    Partitions,
    what_to_subscribe,
)
from ottla.client.consumer_machine import Callbacks, ConsumerMachine, RebalanceCallback, UserCall
from ottla.client.consumer_offsets import ListedOffset
from ottla.client.consumer_partitions import EARLIEST, LATEST
from ottla.client.consumer_reading import RecordReader
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.errors import ClientError, ClosedError
from ottla.client.fetch_records import Record
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.settings import read_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.columns.fetching import TableReader

T = TypeVar("T")
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], BaseException | None], None]

_ITERATION_POLL_S = 60.0


class AsyncConsumer(ConsumerCalls):
    def __init__(self, settings: Mapping[str, Any] | None = None, **named: Any) -> None:
        """Settings under Kafka's names: `{"group.id": "readers"}` or `group_id="readers"`."""
        read = read_settings(ConsumerSettings, settings, named)
        super().__init__(ConsumerMachine(read, chance, wall_ms, new_id))
        self._opened: AioShell | None = None
        self._poller: asyncio.Task[Any] | None = None  # the task that is inside of poll

    @property
    def _shell(self) -> AioShell:
        if self._opened is None:
            self._opened = AioShell(self._machine.core)
        return self._opened

    # ------------------------------------------------------------------------- what to read

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Reads these topics together with the other members of the group.

        A compiled regular expression is matched here. A `pattern` is matched by the broker where
        `group.protocol` is consumer (RE2), else here.
        """
        names, expression, broker_pattern = what_to_subscribe(topics, pattern, self._settings)
        callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        with self._changing():
            self._machine.subscribe(names, expression, broker_pattern, callbacks)

    def assign(self, partitions: Partitions) -> None:
        """Reads these partitions, alone."""
        keys = self._keys(partitions)
        self._stop_iterating()  # what stays assigned goes on from there
        with self._changing():
            self._machine.assign(keys)

    async def unsubscribe(self) -> None:
        try:
            await self._give_up_partitions()
        finally:  # whatever a callback raises
            self._drop_unread(self._first_unread())
            await self._shell.call(self._machine.unsubscribe())

    # ------------------------------------------------------------------------------- records

    async def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[Record]:
        """The next records, as soon as there are any; an empty list after `timeout_s`.

        Rebalance callbacks and automatic commits happen in here.
        """
        count_max = self._count_max(max_records)
        unread = self._take_unread(count_max)
        if unread:
            return unread
        return await self._within_poll(timeout_s, lambda: self._take_records(count_max)) or []

    async def __aiter__(self) -> AsyncIterator[Record]:
        """All records, without an end; what has been iterated over counts as read."""
        while True:
            self._unread = unread = await self.poll(_ITERATION_POLL_S)
            self._unread_at = 0
            for record in unread:
                self._unread_at += 1
                yield record
                if self._unread is not unread:
                    break  # a seek, a poll: what is left of this list is no longer what comes next

    async def fetch_table(
        self,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        timeout_s: float = 1.0,
        *,
        key: Any = None,
        value: Any = None,
    ) -> pa.Table:
        """The next records as an Arrow table, as soon as there are any; an empty one after
        `timeout_s`. `key` and `value` may be formats (`ottla.client.columns.Json`, `Avro`)."""
        # Loaded on the first use: a consumer of records has no need of numpy and pyarrow.
        from ottla.client.columns.fetching import TableReader  # noqa: PLC0415

        self._stop_iterating()
        reader = TableReader(max_rows, max_bytes, key, value)
        await self._within_poll(timeout_s, lambda: self._take_table(reader))
        try:
            return reader.table()
        except Exception:
            with self._changing():
                self._give_back_rows(reader.began)
            raise

    def _take_records(self, count_max: int) -> list[Record] | None:
        """Of as many partitions as it takes; None if there is nothing."""
        machine = self._machine
        reader = RecordReader(count_max, self._deserializers)
        while reader.wants_more():
            item = machine.next_item(is_first=not reader.records)
            if item is None or (taken := reader.take(item)) is None:
                break
            with self._changing():
                machine.took(item, taken.position, taken.epoch, is_done=taken.is_done)
        machine.records_total += len(reader.records)
        return reader.records or None

    def _take_table(self, reader: TableReader) -> bool | None:
        machine = self._machine
        while reader.rows == 0:
            items = machine.next_items()
            if not items:
                return None
            with self._changing():
                for item, position, epoch, is_done in reader.take(items):
                    machine.took(item, position, epoch, is_done=is_done)
        machine.records_total += reader.rows
        return True

    async def _within_poll(self, timeout_s: float, take: Callable[[], T | None]) -> T | None:
        """Runs callbacks and waits until `take` gives something."""
        machine = self._machine
        deadline_ms = monotonic_ms() + timeout_s * 1000.0
        outer, this_task = self._poller, asyncio.current_task()
        if outer is not None and outer is not this_task:
            raise ClientError(
                "another task is inside of poll: a consumer belongs to one task at a time, make one"
                " for each"
            )
        with self._changing():
            machine.begin_poll()
        self._poller = this_task
        try:
            while True:
                call = machine.next_call()
                if call is not None:
                    await self._run_call(call)
                    continue
                taken = take()
                if taken is not None:
                    return taken
                with self._changing():
                    pending = machine.ready()
                    looks_again = machine.has_something()
                if looks_again:
                    continue
                left_s = (deadline_ms - monotonic_ms()) / 1000.0
                try:
                    # Not wait_for: in Python 3.11 it forgets a cancellation that comes with news.
                    async with asyncio.timeout(max(left_s, 0)):
                        await self._shell.wait(pending)
                except TimeoutError:
                    return None
        finally:
            self._poller = outer
            if not self._machine.core.closed:
                with self._changing():
                    machine.end_poll()

    async def _run_call(self, call: UserCall) -> None:
        try:
            result = call.function(call.partitions)
            if inspect.isawaitable(result):
                await result
        finally:
            with self._changing():
                call.done.resolve(None)

    # ----------------------------------------------------------------------------- positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """The next record of this partition is the one at `offset`."""
        with self._changing():
            self._seek(partition, offset)
        self._drop_unread([partition])

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        keys = self._assigned_or(partitions)
        with self._changing():
            self._reset(keys, EARLIEST)
        self._drop_unread(keys)

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        keys = self._assigned_or(partitions)
        with self._changing():
            self._reset(keys, LATEST)
        self._drop_unread(keys)

    def pause(self, partitions: Partitions) -> None:
        """Nothing of these is handed out until they are resumed; the membership goes on."""
        self._stop_iterating()
        with self._changing():
            self._set_paused(partitions, True)

    def resume(self, partitions: Partitions) -> None:
        with self._changing():
            self._set_paused(partitions, False)

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """The offset of the next record that will be handed out; waits until it is known."""
        self._stop_iterating()
        return await self._shell.call(self._position(partition, self._deadline_ms(timeout_s)))

    async def committed(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        commits = self._machine.require_group()
        deadline_ms = self._deadline_ms(timeout_s)
        return await self._shell.call(commits.committed(self._keys(partitions), deadline_ms))

    async def beginning_offsets(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._shell.call(self._earliest(partitions, self._deadline_ms(timeout_s)))

    async def end_offsets(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Behind the last record that this consumer may read (see `isolation.level`)."""
        return await self._shell.call(self._latest(partitions, self._deadline_ms(timeout_s)))

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """The first record at or after a time; None if all are earlier."""
        return await self._shell.call(self._for_times(times_ms, self._deadline_ms(timeout_s)))

    async def lag(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """How many records are left to read of each assigned partition."""
        self._stop_iterating()
        return await self._shell.call(self._lag(self._deadline_ms(timeout_s)))

    # ------------------------------------------------------------------------------- commits

    async def commit(self, offsets: OffsetsToCommit = None, timeout_s: float | None = None) -> None:
        """Waits until the group has this position: by default behind all that was handed out, or
        behind a record (or records), or at offsets given by hand."""
        wanted = self._offsets_to_commit(offsets)
        await self._shell.call(self._machine.commit(wanted, self._deadline_ms(timeout_s)))

    def commit_async(
        self, offsets: OffsetsToCommit = None, on_commit: CommitCallback | None = None
    ) -> None:
        """Begins a commit and returns. `on_commit(offsets, error)` is called on the loop.
        One attempt only: tried again later, it could undo a newer one."""
        wanted = self._offsets_to_commit(offsets)

        def on_done(error: BaseException | None) -> None:
            if on_commit is not None:
                self._shell.later(lambda: on_commit(wanted, error))

        with self._changing():
            self._machine.commit_in_background(wanted, on_done)

    # ------------------------------------------------------------------------------- the rest

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> int:
        """How many partitions a topic has."""
        metadata = self._machine.core.metadata
        info = await self._shell.call(metadata.topic(topic, self._deadline_ms(timeout_s)))
        return len(info.partitions)

    def caught_up(self) -> dict[TopicPartition, int]:
        """Assigned partitions of which all has been handed out, as of the broker's last answer, and
        the offset behind it: aborted records and markers at the end are behind us, too."""
        return self._machine.caught_up()

    def connection_error(self) -> ClientError | None:
        """Why no broker can be reached; None while one is. The consumer goes on trying."""
        return self._machine.core.connection_error()

    def metrics(self) -> dict[str, float]:
        return self._machine.metrics()

    async def close(self, timeout_s: float = 30.0) -> None:
        """Commits if that is automatic, leaves the group, and ends; twice is no harm."""
        if self._is_closed:
            return
        self._is_closed = True
        offsets = self._consumed()
        try:
            await self._give_up_partitions()
        finally:  # whatever a callback raises
            await self._leave(offsets, timeout_s)

    async def _leave(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._shell.call(self._machine.close(offsets))
        except (ClosedError, TimeoutError):
            pass
        finally:
            await self._shell.close()

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _give_up_partitions(self) -> None:
        """Tells the application that it has none any more, as a rebalance would."""
        partitions = sorted(self._machine.subscription.partitions)
        callback = self._machine.callbacks.revoked
        if partitions and callback is not None and self._machine.member is not None:
            result = callback(partitions)
            if inspect.isawaitable(result):
                await result

    def _stop_iterating(self) -> None:
        if self._has_unread():
            with self._changing():
                self._give_back_unread()

    def _changing(self) -> _Changing:
        return _Changing(self._shell)


class _Changing:
    """Something is changed, without awaiting; afterwards the machine goes on with it."""

    __slots__ = ("_shell",)

    def __init__(self, shell: AioShell) -> None:
        self._shell = shell

    def __enter__(self) -> None:
        if self._shell.core.closed:
            raise ClosedError("the consumer is closed")
        self._shell.enter()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._shell.leave()
