"""Looks over stored records in the background, before somebody needs them, for what has rotted.

Drives `log.scrub`: decides on the loop which log is next, lets the pool read it in small pieces,
and waits between them as long as ottla.scrub.io.max.bytes.per.second asks for, with a timer and not
in a thread. A log is looked over when ottla.scrub.interval.ms have passed since the last time, one
at a time; in between there is one timer a minute.

What is found twice takes the replica out of service (`LocalReplicas.found_corrupt`). A follower
that could not take what it was sent makes its leader look at that place at once (`suspect`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock, Pool, Timer, Timers
from ottla.log.partition_log import PartitionLog
from ottla.log.scrub import OpenScrubFile, Piece, Scrub, Walked, piece_at, verdict
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.replication.partition import Partition
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.scrub_times import ScrubTimes

log = logging.getLogger("ottla.scrubber")

INTERVAL = "ottla.scrub.interval.ms"
RATE = "ottla.scrub.io.max.bytes.per.second"
NEVER = -1

LOOK_MS = 60_000
"""How often it is looked whether something is due, unless the interval is shorter."""
LOOK_MS_MIN = 100
PIECE_BYTES = 256 * 1024
THROTTLED_PIECE_SECONDS = 0.3
LOGS_PER_TURN = 100
"""Most logs of a large broker may have nothing to read: the loop has other work in between."""


class LogScrubber:
    def __init__(
        self,
        *,
        replicas: LocalReplicas,
        open_file: OpenScrubFile,
        clock: Clock,
        timers: Timers,
        pool: Pool,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._replicas = replicas
        self._open_file = open_file
        self._clock = clock
        self._timers = timers
        self._pool = pool
        self._config = config
        self._times = ScrubTimes(replicas, clock, pool)
        self._queue: deque[TopicPartition] = deque()
        self._timer: Timer | None = None
        self._free_ms = 0.0
        self._is_suspecting = False
        self._stopped = False

    def start(self) -> None:
        self._times.load()
        self._rest(self._config().get_int("log.initial.task.delay.ms"))

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # -- what next --------------------------------------------------------------------------

    def _rest(self, longest_ms: int = LOOK_MS) -> None:
        interval_ms = self._config().get_int(INTERVAL)
        rest_ms = LOOK_MS if interval_ms == NEVER else min(interval_ms, LOOK_MS)
        self._in(max(min(rest_ms, longest_ms), LOOK_MS_MIN), self._look)

    def _in(self, delay_ms: float, then: Callable[[], None]) -> None:
        def fire() -> None:
            self._timer = None
            then()

        if not self._stopped:
            self._timer = self._timers.call_later(delay_ms, fire)

    def _look(self) -> None:
        self._times.save()
        interval_ms = self._config().get_int(INTERVAL)
        if interval_ms != NEVER:
            held = ((one.topic, one.partition) for _, one in self._replicas.online())
            self._queue.extend(self._times.due(held, interval_ms))
        self._next_log()

    def _next_log(self) -> None:
        for _ in range(LOGS_PER_TURN):
            if not self._queue or self._config().get_int(INTERVAL) == NEVER:
                self._queue.clear()
                self._rest()
                return
            key = self._queue.popleft()
            partition = self._replicas.find(*key)
            if partition is None or partition.log is None:
                continue
            if self._has_begun(Scrub(partition.log)):
                return
        self._in(0, self._next_log)

    # -- one log ----------------------------------------------------------------------------

    def _proceed(self, scrub: Scrub) -> None:
        if not (self._is_held(scrub.log) and self._has_begun(scrub)):
            self._next_log()

    def _has_begun(self, scrub: Scrub) -> bool:
        """Whether there is a next piece, and it is being read."""
        try:
            piece = scrub.next_piece()
        except StorageError as failure:
            self._replicas.storage_failed(failure)
            return False
        if piece is None:
            self._times.note((scrub.log.topic, scrub.log.partition))
            return False
        self._read(scrub, piece)
        return True

    def _read(self, scrub: Scrub, piece: Piece) -> None:
        budget_bytes = min(PIECE_BYTES, int(self._rate() * THROTTLED_PIECE_SECONDS))
        read = self._pool.run(piece.run, self._open_file, budget_bytes)
        read.when_done(partial(self._on_walked, scrub, piece))

    def _on_walked(self, scrub: Scrub, piece: Piece, outcome: Deferred[Walked]) -> None:
        if self._stopped:
            return
        walked = _result(scrub.log, outcome)
        if walked is None:
            self._next_log()
            return
        if self._is_held(scrub.log) and piece.stands(scrub.log):
            if walked.damage is None:
                scrub.passed(piece, walked)
                _tell_of_doubt(piece)
            elif not piece.is_second:
                self._read(scrub, piece.second_look(walked))
                return
            else:
                self._judge(scrub.log, piece, walked)
        # Else it was deleted, cut or cleaned meanwhile: what stands there now is read next.
        self._wait_for_turn(scrub, walked.bytes_read)

    def _wait_for_turn(self, scrub: Scrub, bytes_read: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self._free_ms = max(self._free_ms, now_ms) + bytes_read * 1000 / self._rate()
        # Never in this turn, whatever the budget: others want the loop too.
        self._in(max(self._free_ms - now_ms, 1), partial(self._proceed, scrub))

    def _rate(self) -> int:
        return self._config().get_int(RATE)

    def _is_held(self, held: PartitionLog) -> bool:
        partition = self._replicas.find(held.topic, held.partition)
        return partition is not None and partition.log is held

    def _judge(self, held: PartitionLog, piece: Piece, walked: Walked) -> None:
        partition = self._replicas.find(held.topic, held.partition)
        if partition is not None:
            reason = verdict(piece, walked, held.recovery_point)
            self._replicas.found_corrupt(partition, reason)

    # -- on demand --------------------------------------------------------------------------

    def suspect(self, partition: Partition, offset: int) -> None:
        """A follower was sent what stands at `offset` and asks for it again. One such look at a
        time: a follower that has lost its connection asks for everything again, and one that got
        something broken repeats itself."""
        held = partition.log
        if self._is_suspecting or self._stopped or held is None:
            return
        try:
            piece = piece_at(held, offset)
        except StorageError as failure:
            self._replicas.storage_failed(failure)
            return
        if piece is not None:
            self._is_suspecting = True
            self._look_at(held, piece)

    def _look_at(self, held: PartitionLog, piece: Piece) -> None:
        read = self._pool.run(piece.run, self._open_file, PIECE_BYTES)
        read.when_done(partial(self._on_looked, held, piece))

    def _on_looked(self, held: PartitionLog, piece: Piece, outcome: Deferred[Walked]) -> None:
        self._is_suspecting = False
        walked = _result(held, outcome)
        if walked is None or self._stopped or not self._is_held(held) or not piece.stands(held):
            return
        if walked.damage is None:
            _tell_of_doubt(piece)
        elif piece.is_second:
            self._judge(held, piece, walked)
        else:
            self._is_suspecting = True
            self._look_at(held, piece.second_look(walked))


def _result(held: PartitionLog, outcome: Deferred[Walked]) -> Walked | None:
    """None if it failed: a mistake of ours costs this log its pass, and no other."""
    try:
        return outcome.result()
    except Exception:
        log.exception("%s could not be looked over", held.directory)
        return None


def _tell_of_doubt(piece: Piece) -> None:
    if piece.is_second:
        log.warning(
            "%s: read wrong at position %d, and right from the disk; memory may be failing",
            piece.path(),
            piece.position,
        )
