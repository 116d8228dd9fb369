"""The plain consumer: polls records, alone or as a member of a group.

    with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        consumer.subscribe("orders")
        for record in consumer:
            print(record.key, record.value)

For one thread at a time. A background thread fetches ahead and keeps up the membership; whatever
concerns the application's records (callbacks, revocation, automatic commits) happens inside of its
own calls.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.ids import TopicPartition
from ottla.client.clock import chance, monotonic_ms, new_id, wall_ms
from ottla.client.consumer_calls import ConsumerCalls, Partitions, what_to_subscribe
from ottla.client.consumer_machine import Callbacks, ConsumerMachine, RebalanceCallback, UserCall
from ottla.client.consumer_offsets import ListedOffset
from ottla.client.consumer_partitions import EARLIEST, LATEST
from ottla.client.consumer_reading import RecordReader
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.errors import ClientError, ClosedError, TimedOutError
from ottla.client.fetch_records import Deserializers, Record
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.plain_shell import PlainShell
from ottla.client.settings import read_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.columns.fetching import TableReader

T = TypeVar("T")
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], BaseException | None], None]

_ITERATION_POLL_S = 60.0


class Consumer(ConsumerCalls):
    def __init__(self, settings: Mapping[str, Any] | None = None, **named: Any) -> None:
        """Settings under Kafka's names: `{"group.id": "readers"}` or `group_id="readers"`."""
        read = read_settings(ConsumerSettings, settings, named)
        super().__init__(ConsumerMachine(read, chance, wall_ms, new_id))
        self._shell = PlainShell(self._machine.core, f"ottla-consumer-{read.client_id}")
        self._poller: int | None = None  # the thread that is inside of poll

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

    def unsubscribe(self) -> None:
        try:
            self._give_up_partitions()
        finally:  # whatever a callback raises
            self._drop_unread(self._first_unread())
            self._shell.call(self._machine.unsubscribe())

    # ------------------------------------------------------------------------------- records

    def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[Record]:
        """The next records, as soon as there are any; an empty list after `timeout_s`.

        Rebalance callbacks and automatic commits happen in here.
        """
        count_max = self._count_max(max_records)
        unread = self._take_unread(count_max)
        if unread:
            return unread
        return self._within_poll(timeout_s, lambda: self._take_records(count_max)) or []

    def __iter__(self) -> Iterator[Record]:
        """All records, without an end; what has been iterated over counts as read."""
        while True:
            self._unread = unread = self.poll(_ITERATION_POLL_S)
            self._unread_at = 0
            for record in unread:
                self._unread_at += 1
                yield record
                if self._unread is not unread:
                    break  # a seek, a poll: what is left of this list is no longer what comes next

    def fetch_table(
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
        self._within_poll(timeout_s, lambda: self._take_table(reader))
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
            with self._shell.lock:
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
            with self._shell.lock:
                items = machine.next_items()
            if not items:
                return None
            taken = reader.take(items)
            with self._changing():
                for item, position, epoch, is_done in taken:
                    machine.took(item, position, epoch, is_done=is_done)
        machine.records_total += reader.rows
        return True

    def _within_poll(self, timeout_s: float, take: Callable[[], T | None]) -> T | None:
        """Runs callbacks and waits until `take` gives something."""
        machine, shell = self._machine, self._shell
        deadline_ms = monotonic_ms() + timeout_s * 1000.0
        outer, this_thread = self._poller, threading.get_ident()
        if outer not in (None, this_thread):
            raise ClientError(
                "another thread is inside of poll: a consumer belongs to one thread at a time, make"
                " one for each"
            )
        with self._changing():
            machine.begin_poll()
        self._poller = this_thread
        try:
            while True:
                with shell.lock:
                    call = machine.next_call()
                if call is not None:
                    self._run_call(call)
                    continue
                taken = take()
                if taken is not None:
                    return taken
                with self._changing():
                    pending = machine.ready()
                    looks_again = machine.has_something()
                if looks_again:
                    continue
                try:
                    shell.wait(pending, deadline_ms - monotonic_ms())
                except TimedOutError:
                    return None
        finally:
            self._poller = outer
            # Closed by another thread meanwhile: what was taken may be committed, so it is handed
            # out all the same. Whoever took nothing has heard of it above.
            with shell.lock:
                if not shell.core.closed:
                    shell.core.now_ms = monotonic_ms()
                    machine.end_poll()
                    shell.turn()

    def _run_call(self, call: UserCall) -> None:
        try:
            call.function(call.partitions)
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

    def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """The offset of the next record that will be handed out; waits until it is known."""
        self._stop_iterating()
        return self._shell.call(self._position(partition, self._deadline_ms(timeout_s)))

    def committed(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        commits = self._machine.require_group()
        deadline_ms = self._deadline_ms(timeout_s)
        return self._shell.call(commits.committed(self._keys(partitions), deadline_ms))

    def beginning_offsets(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._shell.call(self._earliest(partitions, self._deadline_ms(timeout_s)))

    def end_offsets(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Behind the last record that this consumer may read (see `isolation.level`)."""
        return self._shell.call(self._latest(partitions, self._deadline_ms(timeout_s)))

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """The first record at or after a time; None if all are earlier."""
        return self._shell.call(self._for_times(times_ms, self._deadline_ms(timeout_s)))

    def lag(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """How many records are left to read of each assigned partition."""
        self._stop_iterating()
        return self._shell.call(self._lag(self._deadline_ms(timeout_s)))

    # ------------------------------------------------------------------------------- commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
        | Record
        | Sequence[Record]
        | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Waits until the group has this position: by default behind all that was handed out, or
        behind a record (or records), or at offsets given by hand."""
        wanted = self._offsets_to_commit(offsets)
        self._shell.call(self._machine.commit(wanted, self._deadline_ms(timeout_s)))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
        | Record
        | Sequence[Record]
        | None = None,
        on_commit: CommitCallback | None = None,
    ) -> None:
        """Begins a commit and returns. `on_commit(offsets, error)` is called in the background.
        One attempt only: tried again later, it could undo a newer one."""
        wanted = self._offsets_to_commit(offsets)

        def on_done(error: BaseException | None) -> None:
            if on_commit is not None:
                self._shell.later(lambda: on_commit(wanted, error))

        with self._changing():
            self._machine.commit_in_background(wanted, on_done)

    # ------------------------------------------------------------------------------- the rest

    def partitions_for(self, topic: str, timeout_s: float | None = None) -> int:
        """How many partitions a topic has."""
        metadata = self._machine.core.metadata
        info = self._shell.call(metadata.topic(topic, self._deadline_ms(timeout_s)))
        return len(info.partitions)

    def caught_up(self) -> dict[TopicPartition, int]:
        """Assigned partitions of which all has been handed out, as of the broker's last answer, and
        the offset behind it: aborted records and markers at the end are behind us, too."""
        with self._shell.lock:
            return self._machine.caught_up()

    def connection_error(self) -> ClientError | None:
        """Why no broker can be reached; None while one is. The consumer goes on trying."""
        with self._shell.lock:
            return self._machine.core.connection_error()

    def metrics(self) -> dict[str, float]:
        with self._shell.lock:
            return self._machine.metrics()

    def close(self, timeout_s: float = 30.0) -> None:
        """Commits if that is automatic, leaves the group, and ends; twice is no harm."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._shell.is_in_callback():
            self._shell.close()  # it cannot wait for itself: the group will miss this member
            return
        offsets = self._consumed()
        try:
            self._give_up_partitions()
        finally:  # whatever a callback raises
            self._leave(offsets, timeout_s)

    def _leave(self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_s: float) -> None:
        try:
            self._shell.call(self._machine.close(offsets), timeout_s * 1000)
        except (ClosedError, TimedOutError):
            pass
        finally:
            self._shell.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _give_up_partitions(self) -> None:
        """Tells the application that it has none any more, as a rebalance would."""
        partitions = sorted(self._machine.subscription.partitions)
        callback = self._machine.callbacks.revoked
        if partitions and callback is not None and self._machine.member is not None:
            callback(partitions)

    def _stop_iterating(self) -> None:
        if self._has_unread():
            with self._changing():
                self._give_back_unread()

    def _changing(self) -> _Changing:
        return _Changing(self._shell)


class _Changing:
    """With the lock; afterwards the machine goes on with what was changed."""

    __slots__ = ("_shell",)

    def __init__(self, shell: PlainShell) -> None:
        self._shell = shell

    def __enter__(self) -> None:
        self._shell.enter()
        if self._shell.core.closed:
            self._shell.leave()
            raise ClosedError("the consumer is closed")

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._shell.leave()


__all__ = ["ClientError", "Consumer", "Deserializers", "OffsetAndMetadata", "Record"]
