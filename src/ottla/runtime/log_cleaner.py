"""Cleans compacted logs in the background, one at a time, the dirtiest first.

Drives `log.compaction`: decides on the loop what to clean next, lets the pool work on it in slices,
swaps cleaned segments in on the loop, and waits between slices as long as
log.cleaner.io.max.bytes.per.second asks for, with a timer and not in a thread. A log that is
cut, closed or deleted meanwhile is let go of; one that can not be cleaned is told of once and left
alone until the next start.

numpy is loaded with the first cleaning, in the pool: a broker without compacted topics never does.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.base.ports import Clock, Files, Pool, Timer, Timers
from ottla.log.compaction_batches import CannotClean, FoundBroken
from ottla.log.compaction_plan import (
    Candidate,
    CleanedGroup,
    CleanerLimits,
    CleaningCancelled,
    CleaningPlan,
    CleaningResult,
    find_candidate,
    has_markers,
    make_plan,
)
from ottla.log.compaction_swap import Cleaning
from ottla.log.log_config import LONG_MAX
from ottla.log.partition_log import PartitionLog
from ottla.log.storage_errors import storing
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.replication.partition import Partition
from ottla.runtime.flusher import Flusher
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_upkeep import LogUpkeep

if TYPE_CHECKING:
    from ottla.log.compaction import LogCleaning

log = logging.getLogger("ottla.cleaner")

BACKOFF_MS_MIN = 10
CHUNK_BYTES_MIN = 2 * 1024 * 1024
"""With smaller ones, the calls of numpy cost more than the work in them."""
MAP_BYTES_MAX = 2**31 - 1
"""Kafka uses no more, either, whatever is set."""
SLICE_BYTES = 16 * 1024 * 1024
THROTTLED_SLICE_SECONDS = 0.3
SECRET_BYTES = 32

# Python code in another thread keeps the loop from running for this long at a time. Measured with a
# small request every 2 ms while 1 GiB was cleaned: 1.1 ms on average with the default of 5 ms, 0.57
# with this (0.2 without a cleaning), and no difference in CPU.
SWITCH_SECONDS = 0.000_1


class Run:
    """One cleaning under way."""

    __slots__ = ("_files", "_job", "_limits", "candidate", "cleaning", "plan", "started_ms")

    def __init__(
        self, files: Files, candidate: Candidate, plan: CleaningPlan, limits: CleanerLimits
    ) -> None:
        self._files = files
        self._limits = limits
        self._job: LogCleaning | None = None
        self.candidate = candidate
        self.plan = plan
        self.cleaning = Cleaning(files)
        self.started_ms = 0

    def proceed(self, budget_bytes: int) -> int | CleanedGroup | CleaningResult:
        """In the pool."""
        if self._job is None:
            from ottla.log.compaction import LogCleaning

            self._job = LogCleaning(self._files, self.plan, self._limits, self.cleaning)
        return self._job.proceed(budget_bytes)

    def close(self) -> None:
        """When no thread is at it any more."""
        if self._job is not None:
            self._job.close()


class LogCleaner:
    def __init__(
        self,
        *,
        replicas: LocalReplicas,
        upkeep: LogUpkeep,
        flusher: Flusher,
        files: Files,
        clock: Clock,
        timers: Timers,
        pool: Pool,
        config: Callable[[], BrokerConfig],
        suspect: Callable[[Partition, int], None],
    ) -> None:
        """`suspect`: what stands at or behind this offset was found broken."""
        self._replicas = replicas
        self._suspect = suspect
        self._upkeep = upkeep
        self._flusher = flusher
        self._files = files
        self._clock = clock
        self._timers = timers
        self._pool = pool
        self._config = config
        self._timer: Timer | None = None
        self._run: Run | None = None
        self._stopped = False
        self._free_ms = 0.0
        self._uncleanable: set[PartitionLog] = set()
        self._switch_seconds = sys.getswitchinterval()

    def start(self) -> None:
        if not self._config().get_bool("log.cleaner.enable"):
            return
        for log_dir in self._replicas.dirs():
            if log_dir.cleaned_offsets is None:
                log.warning("all of %s counts as dirty: its checkpoint is damaged", log_dir.path)
        self._rest()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._run is not None:
            self._run.cleaning.cancelled = True
        sys.setswitchinterval(self._switch_seconds)

    # -- what next --------------------------------------------------------------------------

    def _rest(self) -> None:
        backoff_ms = max(self._config().get_int("log.cleaner.backoff.ms"), BACKOFF_MS_MIN)
        self._timer = self._timers.call_later(backoff_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        candidate = self._dirtiest()
        if candidate is None:
            self._rest()
        else:
            self._begin(candidate)

    def _dirtiest(self) -> Candidate | None:
        now_ms = self._clock.wall_ms()
        dirtiest: Candidate | None = None
        for partition, held in list(self._replicas.online()):
            if "compact" not in held.config.cleanup_policy or held in self._uncleanable:
                continue
            if held.is_moving:
                continue
            try:
                candidate = self._candidate(partition, held, now_ms)
            except StorageError as failure:
                self._replicas.storage_failed(failure)
                continue
            if candidate is None or not candidate.is_worth_it():
                continue
            if dirtiest is None or candidate.dirty_ratio() > dirtiest.dirty_ratio():
                dirtiest = candidate
        return dirtiest

    def _candidate(self, partition: Partition, held: PartitionLog, now_ms: int) -> Candidate | None:
        with storing(held.directory, "look for what to clean"):
            if held.config.max_compaction_lag_ms != LONG_MAX:
                # Otherwise a log that nobody writes to would never be compacted in time.
                held.maybe_roll(now_ms)
            if held.all_segments()[-1].base_offset > held.recovery_point:
                # After a crash there may be segments that were never synced.
                self._flusher.on_roll(held)
            return find_candidate(held, partition.last_stable_offset, now_ms)

    # -- one cleaning -----------------------------------------------------------------------

    def _begin(self, candidate: Candidate) -> None:
        """First, what the cleaning will rest on has to be on the disk."""

        def checkpoint(outcome: Deferred[None]) -> None:
            if self._is_done(outcome):
                # A cleaned log has gaps, which a recovery takes for losses above the point.
                log_dir = candidate.log.directory.rpartition("/")[0]
                self._upkeep.save_recovery_points(log_dir).when_done(look_again)

        def look_again(outcome: Deferred[None]) -> None:
            if self._is_done(outcome):
                self._look_again(candidate)

        if has_markers(candidate.log):
            self._flusher.flush(candidate.log).when_done(checkpoint)
        else:
            nothing_to_flush: Deferred[None] = Deferred()
            nothing_to_flush.resolve(None)
            checkpoint(nothing_to_flush)

    def _is_done(self, outcome: Deferred[None]) -> bool:
        try:
            outcome.result()
        except StorageError:
            self._rest()  # the log dir has been taken offline
            return False
        return not self._stopped

    def _look_again(self, before: Candidate) -> None:
        """No farther than before, but the log may have been cut or deleted meanwhile."""
        held = before.log
        candidate = None
        if self._is_held(held):
            try:
                with storing(held.directory, "look for what to clean"):
                    candidate = find_candidate(held, before.end_offset, self._clock.wall_ms())
            except StorageError as failure:
                self._replicas.storage_failed(failure)
        if candidate is None:
            self._rest()
        else:
            self._start(candidate)

    def _start(self, candidate: Candidate) -> None:
        config = self._config()
        held = candidate.log
        limits = CleanerLimits(
            map_bytes=min(config.get_int("log.cleaner.dedupe.buffer.size"), MAP_BYTES_MAX),
            load_factor=config.get_float("log.cleaner.io.buffer.load.factor"),
            chunk_bytes=max(CHUNK_BYTES_MIN, config.get_int("log.cleaner.io.buffer.size")),
            secret=secrets.token_bytes(SECRET_BYTES),
        )
        try:
            with storing(held.directory, "plan a cleaning"):
                plan = make_plan(candidate, self._clock.wall_ms())
        except StorageError as failure:
            self._replicas.storage_failed(failure)
            self._rest()
            return
        run = Run(self._files, candidate, plan, limits)
        run.started_ms = self._clock.monotonic_ms()
        held.cleaning = run.cleaning
        self._run = run
        sys.setswitchinterval(min(SWITCH_SECONDS, self._switch_seconds))
        self._proceed(run)

    def _proceed(self, run: Run) -> None:
        self._timer = None
        budget_bytes = int(min(SLICE_BYTES, self._rate() * THROTTLED_SLICE_SECONDS))
        self._pool.run(run.proceed, budget_bytes).when_done(partial(self._on_slice, run))

    def _on_slice(self, run: Run, outcome: Deferred[int | CleanedGroup | CleaningResult]) -> None:
        try:
            step = outcome.result()
        except (CannotClean, CleaningCancelled, MemoryError, StorageError) as failure:
            self._on_failure(run, failure)
            return
        except Exception as failure:  # a mistake of ours costs this log, and no other its cleaning
            log.exception("the cleaning of %s failed", run.candidate.log.directory)
            self._on_failure(run, failure)
            return
        if not self._goes_on(run):
            # Files that were handed over and not committed go with the next cleaning or start.
            self._end(run)
        elif isinstance(step, CleanedGroup):
            self._commit(run, step)
        elif isinstance(step, CleaningResult):
            self._finish(run, step)
        else:
            self._wait_for_turn(run, step)

    def _wait_for_turn(self, run: Run, worked_bytes: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self._free_ms = max(self._free_ms, now_ms) + worked_bytes * 1000 / self._rate()
        delay_ms = self._free_ms - now_ms
        if delay_ms < 1:
            self._proceed(run)
        else:
            self._timer = self._timers.call_later(delay_ms, partial(self._proceed, run))

    def _rate(self) -> float:
        """Bytes per second. Zero and less are taken, down to minus infinity: next to nothing."""
        return max(self._config().get_float("log.cleaner.io.max.bytes.per.second"), 1.0)

    def _finish(self, run: Run, result: CleaningResult) -> None:
        held = run.candidate.log
        held.cleaned_to = result.end_offset
        self._upkeep.checkpoint_cleaning()
        log.info(
            "%s-%d: cleaned up to offset %d, %d of %d records stay; %d keys in the map, "
            "%d bytes read, %d written, %d ms",
            held.topic,
            held.partition,
            result.end_offset,
            result.records_after,
            result.records_before,
            result.keys,
            result.bytes_mapped + result.bytes_read,
            result.bytes_written,
            self._clock.monotonic_ms() - run.started_ms,
        )
        self._let_go(run)
        self._look()

    # -- swapping ---------------------------------------------------------------------------

    def _commit(self, run: Run, group: CleanedGroup) -> None:
        try:
            run.cleaning.commit(group.cleaned)
        except StorageError as failure:
            self._on_failure(run, failure)
            return
        self._sync_directory(run, partial(self._put_in_place, run, group))

    def _put_in_place(self, run: Run, group: CleanedGroup) -> None:
        held = run.candidate.log
        try:
            paths = held.put_in_place([source.segment for source in group.sources], group.cleaned)
        except StorageError as failure:
            self._on_failure(run, failure)
            return
        run.cleaning.is_in_place()
        self._upkeep.remove_later(held, paths)
        self._sync_directory(run, partial(self._proceed, run))

    def _sync_directory(self, run: Run, then: Callable[[], None]) -> None:
        directory = run.candidate.log.directory

        def sync() -> None:
            with storing(directory, "sync"):
                self._files.sync_dir(directory)

        def synced(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except StorageError as failure:
                self._on_failure(run, failure)
                return
            if self._goes_on(run):
                then()
            else:
                self._end(run)

        self._pool.run(sync).when_done(synced)

    # -- ends -------------------------------------------------------------------------------

    def _goes_on(self, run: Run) -> bool:
        return not (self._stopped or run.cleaning.cancelled) and self._is_held(run.candidate.log)

    def _is_held(self, held: PartitionLog) -> bool:
        partition = self._replicas.find(held.topic, held.partition)
        return partition is not None and partition.log is held and not held.is_moving

    def _on_failure(self, run: Run, failure: Exception) -> None:
        # Who deletes or cuts a log takes the files away under the cleaner; that is no failure.
        if self._goes_on(run):
            held = run.candidate.log
            if isinstance(failure, StorageError):
                self._replicas.storage_failed(failure)
            elif isinstance(failure, MemoryError):
                log.warning("no memory for log.cleaner.dedupe.buffer.size: cleaned later")
            else:
                self._uncleanable.add(held)
                log.error("%s-%d is not cleaned any more: %s", held.topic, held.partition, failure)
                partition = self._replicas.find(held.topic, held.partition)
                if isinstance(failure, FoundBroken) and partition is not None:
                    self._suspect(partition, max(failure.offset, held.log_start_offset))
        self._end(run)

    def _end(self, run: Run) -> None:
        self._let_go(run)
        if not self._stopped:
            self._rest()

    def _let_go(self, run: Run) -> None:
        run.close()
        if run.candidate.log.cleaning is run.cleaning:
            run.candidate.log.cleaning = None
        self._run = None
        sys.setswitchinterval(self._switch_seconds)
