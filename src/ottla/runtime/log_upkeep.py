"""What logs need from time to time: retention, flushes by time, checkpoints.

Nothing runs more often than its setting says, and a log that has not changed costs nothing: an idle
broker must stay idle. Checkpoints are files written whole, in the pool.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

from ottla.base.deferred import Deferred, all_of
from ottla.base.errors import StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock, Files, Pool, Timer, Timers
from ottla.log.log_config import LONG_MAX
from ottla.log.log_dir import LogDir
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.replication.partition import Partition
from ottla.runtime.flusher import Flusher
from ottla.runtime.local_replicas import LocalReplicas

log = logging.getLogger("ottla.runtime")

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 86_400_000
# In Kafka, log.flush.scheduler.interval.ms is "never" unless it is set; flush.ms of a topic is a
# promise all the same, so it is looked after once a second.
FLUSH_CHECK_MS = 1_000
Offsets = dict[TopicPartition, int]

RECOVERY, START, WATERMARK, CLEANER = KINDS = ("recovery", "start", "watermark", "cleaner")
_WRITERS = {
    RECOVERY: LogDir.write_recovery_points,
    START: LogDir.write_log_start_offsets,
    WATERMARK: LogDir.write_high_watermarks,
    CLEANER: LogDir.write_cleaned_offsets,
}


class LogUpkeep:
    def __init__(
        self,
        *,
        replicas: LocalReplicas,
        flusher: Flusher,
        files: Files,
        clock: Clock,
        timers: Timers,
        pool: Pool,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._replicas = replicas
        self._flusher = flusher
        self._files = files
        self._clock = clock
        self._timers = timers
        self._pool = pool
        self._config = config
        self._pending: list[Timer] = []
        self._written = {
            (log_dir.path, kind): offsets
            for log_dir in replicas.dirs()
            for kind, offsets in _found(log_dir).items()
        }
        self._writing: dict[tuple[str, str], Callable[[], None] | None] = {}
        """Checkpoints that are being written, and what is to be written next."""
        self._waiting: dict[tuple[str, str], list[Deferred[None]]] = {}
        self.arriving: Callable[[str], Iterable[tuple[Partition, PartitionLog]]] = lambda path: ()
        """Replicas on their way to a log dir: once one is there, a crash may follow at once."""

    def start(self) -> None:
        for name, work in (
            ("log.retention.check.interval.ms", self.apply_retention),
            ("log.flush.offset.checkpoint.interval.ms", self.checkpoint_recovery),
            ("log.flush.start.offset.checkpoint.interval.ms", self.checkpoint_log_starts),
            ("replica.high.watermark.checkpoint.interval.ms", self.checkpoint_watermarks),
            ("producer.id.expiration.check.interval.ms", self.expire_producers),
        ):
            self._every(partial(self._interval_ms, name), work)
        self._every(lambda: FLUSH_CHECK_MS, self.flush_by_time)

    def _interval_ms(self, name: str) -> int:
        """Read anew each time, since some of them are dynamic."""
        return min(self._config().get_int(name), INTERVAL_MS_MAX)

    def stop(self) -> None:
        for timer in self._pending:
            timer.cancel()

    def _every(self, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        def fire() -> None:
            self._pending.remove(timer[0])
            work()
            arm()

        timer: list[Timer] = []

        def arm(delay_ms: int | None = None) -> None:
            due_ms = interval_ms() if delay_ms is None else delay_ms
            entry = self._timers.call_later(max(due_ms, INTERVAL_MS_MIN), fire)
            timer[:] = [entry]
            self._pending.append(entry)

        arm(min(interval_ms(), self._config().get_int("log.initial.task.delay.ms")))

    # -- retention --------------------------------------------------------------------------

    def apply_retention(self) -> None:
        """First nobody reads any more what has expired, then the disk is told so, then it goes."""
        now_ms = self._clock.wall_ms()
        expired: dict[str, list[tuple[Partition, PartitionLog, int]]] = {}
        for partition, held in list(self._replicas.online()):
            try:
                if held.apply_retention(now_ms, partition.high_watermark):
                    of_dir = expired.setdefault(partition.log_dir, [])
                    of_dir.append((partition, held, held.log_start_offset))
            except StorageError as failure:
                self._replicas.storage_failed(failure)
        for path, of_dir in expired.items():
            self.save_log_starts(path).when_done(partial(self._delete_expired, path, of_dir))

    def _delete_expired(
        self,
        path: str,
        expired: list[tuple[Partition, PartitionLog, int]],
        outcome: Deferred[None],
    ) -> None:
        if outcome.error() is not None:
            return  # the log dir is offline
        for partition, held, start in expired:
            # One that has moved meanwhile has its log start on another disk.
            if partition.log is held and partition.log_dir == path:
                try:
                    self._delete_below(held, start)
                except StorageError as failure:
                    self._replicas.storage_failed(failure)

    def _delete_below(self, held: PartitionLog, durable_start: int) -> None:
        for segment in held.delete_below(durable_start):
            log.info(
                "%s-%d: segment %d is past retention",
                held.topic,
                held.partition,
                segment.base_offset,
            )
            self.remove_later(held, segment.paths)

    def expire_producers(self) -> None:
        now_ms = self._clock.wall_ms()
        for _, held in self._replicas.online():
            held.expire_producers(now_ms)

    def remove_later(self, held: PartitionLog, paths: list[str]) -> None:
        """Files that are no longer part of a log."""
        self._timers.call_later(held.config.file_delete_delay_ms, partial(self._unlink, paths))

    def _unlink(self, paths: list[str]) -> None:
        def remove() -> None:
            for path in paths:
                # A segment that was cleaned twice meanwhile has left two files of one name.
                with suppress(FileNotFoundError):
                    self._files.remove(path)

        def removed(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except OSError as failure:
                log.warning("a deleted segment is still there: %s", failure)

        self._pool.run(remove).when_done(removed)

    # -- flushing ---------------------------------------------------------------------------

    def flush_by_time(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for _, held in self._replicas.online():
            if held.config.flush_ms != LONG_MAX and held.unflushed_messages:
                if now_ms - held.last_flush_ms >= held.config.flush_ms:
                    self._flusher.flush(held).when_done(_ignore_failure)

    # -- checkpoints ------------------------------------------------------------------------

    def checkpoint_recovery(self) -> None:
        for log_dir in self._online_dirs():
            self._write(log_dir, RECOVERY)

    def save_recovery_points(self, path: str) -> Deferred[None]:
        """Those of the log dir at `path`; done when they are on the disk."""
        return self._write(self._replicas.log_dir_of(path), RECOVERY)

    def save_log_starts(self, path: str) -> Deferred[None]:
        return self._write(self._replicas.log_dir_of(path), START)

    def save_both_ends(self, path: str) -> Deferred[None]:
        """After a log was cut: it may end below where it began."""
        return all_of([self.save_recovery_points(path), self.save_log_starts(path)])

    def save_all(self, log_dir: LogDir) -> Deferred[None]:
        """Done when every checkpoint of this log dir is on the disk as of now."""
        return all_of([self._write(log_dir, kind) for kind in KINDS])

    def checkpoint_log_starts(self) -> None:
        for log_dir in self._online_dirs():
            self._write(log_dir, START)

    def checkpoint_watermarks(self) -> None:
        for log_dir in self._online_dirs():
            self._write(log_dir, WATERMARK)

    def checkpoint_cleaning(self) -> None:
        for log_dir in self._online_dirs():
            self._write(log_dir, CLEANER)

    def forget(self, keys: Collection[TopicPartition]) -> Deferred[None]:
        """Done when no checkpoint on the disk speaks of these partitions, if they are not held.

        A topic of the name of a deleted one must not inherit its log start: after a kill, the
        records below it would be gone.
        """
        writes = []
        for log_dir in self._online_dirs():
            for kind in KINDS:
                place = log_dir.path, kind
                if place in self._writing or not self._written[place].keys().isdisjoint(keys):
                    writes.append(self._write(log_dir, kind))
        return all_of(writes)

    def _offsets(self, log_dir: LogDir, kind: str) -> Offsets:
        return {**self._left(log_dir, kind), **self._held(log_dir, kind)}

    def _left(self, log_dir: LogDir, kind: str) -> Offsets:
        """What was last known of partitions that are offline because of what is in them. Without
        recovery point, the next recovery could take the damage for a torn end and cut there."""
        written = self._written[log_dir.path, kind]
        keys = self._replicas.corrupt_in(log_dir.path)
        return {key: written[key] for key in keys if key in written}

    def _held(self, log_dir: LogDir, kind: str) -> Offsets:
        path = log_dir.path
        there = [one for one in self._replicas.online() if one[0].log_dir == path]
        there += self.arriving(path)
        if kind == WATERMARK:
            return {_key(one): partition.high_watermark for partition, one in there}
        if kind == RECOVERY:
            return {_key(one): one.recovery_point for _, one in there}
        if kind == CLEANER:
            return {_key(one): one.cleaned_to for _, one in there if one.cleaned_to >= 0}
        # Also where a segment begins there, which Kafka leaves out: those before it may come back
        # with a power cut.
        return {_key(one): one.log_start_offset for _, one in there if one.log_start_offset}

    def checkpoint_all_now(self, log_dir: LogDir) -> None:
        """At shutdown, after every log was flushed and closed; on the calling thread."""
        held = list(self._replicas.logs_of(log_dir.path))
        ends = {_key(one): one.log_end_offset for one in held}
        log_dir.write_recovery_points({**self._left(log_dir, RECOVERY), **ends})
        starts = {_key(one): one.log_start_offset for one in held}
        log_dir.write_log_start_offsets({**self._left(log_dir, START), **starts})
        log_dir.write_high_watermarks(self._offsets(log_dir, WATERMARK))

    def _write(self, log_dir: LogDir, kind: str) -> Deferred[None]:
        """Done when the offsets as they are now, or later ones, are on the disk."""
        offsets = self._offsets(log_dir, kind)
        key = log_dir.path, kind
        done: Deferred[None] = Deferred()
        if self._written[key] == offsets:
            if key in self._writing:
                self._waiting[key].append(done)
            else:
                done.resolve(None)
            return done
        self._written[key] = offsets
        self._waiting.setdefault(key, []).append(done)

        def start() -> None:
            self._writing[key] = None
            self._pool.run(_WRITERS[kind], log_dir, offsets).when_done(written)

        def written(outcome: Deferred[None]) -> None:
            following = self._writing.pop(key)
            try:
                outcome.result()
            except StorageError as failure:
                self._replicas.storage_failed(failure)
                for waiting in self._waiting.pop(key):
                    waiting.fail(failure)
                return
            if following is not None:
                following()
                return
            for waiting in self._waiting.pop(key):
                waiting.resolve(None)

        # Never two at once: they would write over each other's temporary file.
        if key in self._writing:
            self._writing[key] = start
        else:
            start()
        return done

    def _online_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self._replicas.dirs() if log_dir.error is None]


def _found(log_dir: LogDir) -> dict[str, Offsets]:
    """What the checkpoints on the disk say at the start."""
    return {
        RECOVERY: log_dir.recovery_points,
        START: log_dir.log_start_offsets,
        WATERMARK: log_dir.high_watermarks,
        CLEANER: log_dir.cleaned_offsets or {},
    }


def _key(held: PartitionLog) -> TopicPartition:
    return held.topic, held.partition


def _ignore_failure(outcome: Deferred[None]) -> None:
    """The flusher has taken the log dir offline already; nobody else waits for this flush."""
