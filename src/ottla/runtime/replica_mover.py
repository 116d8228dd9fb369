"""Moves replicas from one log dir of this broker to another, as AlterReplicaLogDirs asks.

Drives `log.relocation`: looks at the log on the loop, lets the pool copy what is missing, and waits
in between as long as replica.alter.log.dirs.io.max.bytes.per.second asks for, with a timer and not
in a thread. The replica is in use all the time; it changes its directory in one step of the loop.
Whatever becomes of it or of the other disk meanwhile ends the move and nothing else, and a broker
that stops leaves the unfinished directory, from which the next one knows what it was about.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock, Files, Pool, Timer, Timers
from ottla.handlers.context import FutureReplica
from ottla.log.log_dir import FoundPartition, LogDir
from ottla.log.move_count import read_moves
from ottla.log.partition_log import PartitionLog
from ottla.log.relocation import Piece, Relocation
from ottla.log.storage_errors import storing
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.replication.partition import Partition
from ottla.runtime.flusher import Flusher
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_upkeep import LogUpkeep

log = logging.getLogger("ottla.mover")

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
THREADS = "num.replica.alter.log.dirs.threads"

SLICE_BYTES = 16 * 1024 * 1024
THROTTLED_SLICE_SECONDS = 0.3
ROOM_CHECK_MS = 1_000
TAIL_BYTES = 256 * 1024
"""So much is copied on the loop at most: less than an ordinary produce may bring."""


State = tuple[int, int, int, int, list[int]]


class Move:
    """One replica on its way."""

    __slots__ = (
        "doomed",
        "is_begun",
        "is_copying",
        "is_holding",
        "is_in_place",
        "is_over",
        "partition",
        "relocation",
        "settled",
        "source",
        "started_ms",
        "target",
        "timer",
    )

    def __init__(
        self, partition: Partition, source: LogDir, target: LogDir, relocation: Relocation
    ) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.relocation = relocation
        self.is_begun = False
        self.is_copying = False
        """A thread is at it."""
        self.is_holding = False
        """No flush of the log begins meanwhile."""
        self.is_in_place = False
        self.is_over = False
        self.doomed: str | None = None
        self.settled: State | None = None
        """For which the other log dir has all that it takes, checkpoints included."""
        self.started_ms = 0
        self.timer: Timer | None = None

    @property
    def key(self) -> TopicPartition:
        return self.partition.topic, self.partition.partition

    @property
    def log(self) -> PartitionLog:
        return self.relocation.log


class ReplicaMover:
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
    ) -> None:
        self._replicas = replicas
        self._upkeep = upkeep
        self._flusher = flusher
        self._files = files
        self._clock = clock
        self._timers = timers
        self._pool = pool
        self._config = config
        self._moves: dict[TopicPartition, Move] = {}
        self._waiting: deque[Move] = deque()
        self._begun = 0
        self._under_way = 0
        self._free_ms = 0.0
        self._stopped = False

    def start(self) -> None:
        """Goes on with what an earlier life has left unfinished. It is not known what of it has
        reached the disk: so all of it is compared, and only what is missing is copied."""
        for target in self._replicas.dirs():
            if target.error is None:
                try:
                    for found in target.futures():
                        self._resume(found, target)
                except StorageError as failure:
                    self._replicas.storage_failed(failure)

    def _resume(self, found: FoundPartition, target: LogDir) -> None:
        partition = self._replicas.find(found.topic, found.partition)
        if partition is not None and partition.log is None:
            return  # its own log dir is offline; with the next start, perhaps
        key = found.topic, found.partition
        is_ours = partition is not None and found.topic_id in (None, partition.topic_id)
        if partition is not None and is_ours and key not in self._moves:
            if partition.log_dir != target.path:
                self.move(partition, target.path, found.path)
                return
        doomed = target.discard_future(*key, found.path)
        self._replicas.delete_tree(doomed)
        if partition is not None and is_ours:
            self.move(partition, target.path)

    def stop(self) -> None:
        self._stopped = True
        for move in self._moves.values():
            if move.timer is not None:
                move.timer.cancel()

    # -- what is asked ----------------------------------------------------------------------

    def move(self, partition: Partition, path: str, begun: str | None = None) -> bool:
        """Let the replica go to this log dir; stay where it is, if that is its own. False if its
        directory there can not be made. `begun`: a directory with a part of it already."""
        key = partition.topic, partition.partition
        under_way = self._moves.get(key)
        if under_way is not None and not under_way.is_in_place:
            if under_way.target.path == path:
                return True
            self._cancel(under_way)
        held = partition.log
        if held is None or partition.log_dir == path:
            return True
        target = self._replicas.log_dir_of(path)
        try:
            if under_way is not None and under_way.is_in_place:
                # Just arrived: before it goes on, nothing of it may be left where it was.
                under_way.target.sync()
                self._leave(under_way)
            move = self._new_move(partition, held, target, begun)
        except StorageError as failure:
            self._replicas.storage_failed(failure)
            return False
        self._moves[key] = move
        self._waiting.append(move)
        self._begin_next()
        return True

    def _new_move(
        self, partition: Partition, held: PartitionLog, target: LogDir, begun: str | None
    ) -> Move:
        key = partition.topic, partition.partition
        if target.has(*key):
            # Of no use to anybody here, but somebody has put it there.
            found = FoundPartition(*key, partition.topic_id, target.directory_of(*key))
            log.warning("%s is in the way; it is now %s", found.path, target.set_stray(found))
        if held.cleaning is not None:
            with storing(held.directory, "stop the cleaning"):
                held.cleaning.cancel()
        # A name of its own: a thread may still be at an earlier move that was given up.
        self._begun += 1
        unique = uuid.uuid5(partition.topic_id, str(self._begun)).hex
        directory = begun or target.make_future(*key, unique)
        held.is_moving = True
        relocation = Relocation(self._files, held, partition.topic_id, directory)
        source = self._replicas.log_dir_of(partition.log_dir)
        return Move(partition, source, target, relocation)

    def arriving(self, log_dir: str) -> Iterator[tuple[Partition, PartitionLog]]:
        """Replicas on their way to this log dir: its checkpoints have to know them before they
        are there."""
        for move in self._moves.values():
            if move.target.path == log_dir and not move.is_in_place:
                yield move.partition, move.log

    def futures_of(self, log_dir: str) -> list[FutureReplica]:
        found = []
        for move in list(self._moves.values()):
            if move.target.path != log_dir or move.is_in_place:
                continue
            try:
                lag = move.relocation.lag()
            except StorageError as failure:
                self._replicas.storage_failed(failure)
            else:
                found.append(FutureReplica(*move.key, move.relocation.size(), lag))
        return found

    def on_removed(self, partition: Partition) -> None:
        """The replica is no more, or not as it was: nothing of it is to be left elsewhere."""
        move = self._moves.get((partition.topic, partition.partition))
        if move is None:
            return
        if move.is_in_place:
            self._leave(move)
        else:
            self._cancel(move)

    # -- copying ----------------------------------------------------------------------------

    def _begin_next(self) -> None:
        threads = self._config().get_optional_int(THREADS) or len(self._replicas.dirs())
        while self._waiting and self._under_way < max(threads, 1):
            move = self._waiting.popleft()
            if not move.is_over:
                self._under_way += 1
                move.is_begun = True
                move.started_ms = self._clock.monotonic_ms()
                self._proceed(move)

    def _proceed(self, move: Move) -> None:
        move.timer = None
        if not self._goes_on(move):
            return
        if move.target.is_short_of_room:
            # What is left is not for this: a disk that is full goes offline with all that is on it.
            move.timer = self._timers.call_later(ROOM_CHECK_MS, partial(self._proceed, move))
            return
        budget_bytes = max(int(min(SLICE_BYTES, self._rate() * THROTTLED_SLICE_SECONDS)), 1)
        if move.relocation.bytes_left() > budget_bytes:
            self._copy(move, move.relocation.next_piece(budget_bytes), self._wait_for_turn)
        else:
            held = self._flusher.hold(move.log)
            held.when_done(partial(self._on_held, move))

    def _copy(self, move: Move, piece: Piece, then: Callable[[Move, Piece], None]) -> None:
        def copied(outcome: Deferred[None]) -> None:
            move.is_copying = False
            if not self._is_done(move, outcome):
                return
            try:
                move.relocation.copied(piece)
            except StorageError as failure:
                self._on_failure(move, failure)
            else:
                then(move, piece)

        move.is_copying = True
        self._pool.run(piece.run).when_done(copied)

    def _wait_for_turn(self, move: Move, piece: Piece) -> None:
        now_ms = self._clock.monotonic_ms()
        self._free_ms = max(self._free_ms, now_ms) + piece.bytes_copied * 1000 / self._rate()
        delay_ms = max(self._free_ms - now_ms, 0)
        move.timer = self._timers.call_later(delay_ms, partial(self._proceed, move))

    def _rate(self) -> float:
        """Bytes per second. Zero is taken: next to nothing."""
        rate = self._config().get_optional_int(RATE)
        return float("inf") if rate is None else max(float(rate), 1.0)

    # -- arriving ---------------------------------------------------------------------------

    def _on_held(self, move: Move, outcome: Deferred[None]) -> None:
        move.is_holding = outcome.error() is None
        if self._is_done(move, outcome):
            self._settle(move)

    def _settle(self, move: Move) -> None:
        try:
            move.settled = _state_of(move.log)
            moves = read_moves(self._files, move.log.directory) + 1
            piece = move.relocation.settling(moves)
        except StorageError as failure:
            self._on_failure(move, failure)
            return
        self._copy(move, piece, self._save)

    def _save(self, move: Move, piece: Piece) -> None:
        def saved(outcome: Deferred[None]) -> None:
            if not self._is_done(move, outcome):
                return
            if piece.is_void:
                self._settle(move)
            else:
                self._catch_up(move)

        self._upkeep.save_all(move.target).when_done(saved)

    def _catch_up(self, move: Move, _: Piece | None = None) -> None:
        if move.settled != _state_of(move.log):
            self._settle(move)
        elif move.relocation.bytes_left() > TAIL_BYTES:
            piece = move.relocation.next_piece(synced=False)
            self._copy(move, piece, self._catch_up)
        else:
            self._arrive(move)

    def _arrive(self, move: Move) -> None:
        partition, relocation, target = move.partition, move.relocation, move.target
        try:
            relocation.catch_up()
            relocation.take_name(target.directory_of(*move.key))
        except StorageError as failure:
            self._on_failure(move, failure)
            return
        move.is_in_place = True
        move.log.is_moving = False
        self._replicas.moved(partition, target)
        try:
            relocation.hand_over()
        except StorageError as failure:
            self._replicas.storage_failed(failure)
        move.is_holding = False
        self._flusher.release(move.log).when_done(partial(self._on_flushed, move))
        log.info(
            "%s-%d is in %s now, %d bytes, %d ms",
            *move.key,
            target.path,
            move.log.size,
            self._clock.monotonic_ms() - move.started_ms,
        )

    def _on_flushed(self, move: Move, outcome: Deferred[None]) -> None:
        if move.is_over:
            return
        if outcome.error() is None:
            self._leave(move)
            return
        # The other disk has failed at once. What is here is old by now, and must not be taken for
        # the partition; but it may be all that is left.
        self._end(move)
        found = FoundPartition(*move.key, move.partition.topic_id, _old_directory(move))
        try:
            aside = move.source.set_stray(found)
        except StorageError as failure:
            self._replicas.storage_failed(failure)
            return
        log.error("%s-%d, as it was before it moved, is in %s", *move.key, aside)

    def _leave(self, move: Move) -> None:
        """The new directory has its name on the disk, or is of no use any more."""
        self._end(move)
        if move.source.error is not None:
            return  # found out at the next start that has it again
        unique = move.partition.topic_id.hex
        try:
            doomed = move.source.set_aside_moved(*move.key, unique)
        except StorageError as failure:
            self._replicas.storage_failed(failure)
            return
        delay_ms = move.log.config.file_delete_delay_ms
        self._timers.call_later(delay_ms, lambda: self._replicas.delete_tree(doomed))

    # -- ends -------------------------------------------------------------------------------

    def _is_done(self, move: Move, outcome: Deferred[None]) -> bool:
        """Whether a step has come to its end, and the next may follow."""
        failure = outcome.error()
        if isinstance(failure, StorageError):
            self._on_failure(move, failure)
            return False
        outcome.result()
        return self._goes_on(move)

    def _goes_on(self, move: Move) -> bool:
        if move.is_over or self._stopped:
            self._release(move)
            self._bury(move)
            return False
        if move.target.error is not None or move.partition.log is not move.log:
            self._cancel(move)
            return False
        return True

    def _on_failure(self, move: Move, failure: StorageError) -> None:
        # Who deletes a replica takes the files away under a copy of it; that is no failure.
        if self._goes_on(move):
            self._replicas.storage_failed(failure)
            self._cancel(move)

    def _cancel(self, move: Move) -> None:
        """It stays where it is."""
        self._end(move)
        move.log.is_moving = False
        self._release(move)
        if move.timer is not None:
            move.timer.cancel()
        if move.target.error is None:
            try:
                directory = move.relocation.directory
                move.doomed = move.target.discard_future(*move.key, directory)
            except StorageError as failure:
                self._replicas.storage_failed(failure)
        if not move.is_copying:
            self._bury(move)

    def _release(self, move: Move) -> None:
        if move.is_holding:
            move.is_holding = False
            self._flusher.release(move.log)

    def _end(self, move: Move) -> None:
        move.is_over = True
        if self._moves.get(move.key) is move:
            del self._moves[move.key]
        if move.is_begun:
            self._under_way -= 1
        self._timers.call_later(0, self._begin_next)

    def _bury(self, move: Move) -> None:
        """When no thread writes there any more."""
        doomed, move.doomed = move.doomed, None
        if doomed is not None:
            self._replicas.delete_tree(doomed)


def _state_of(held: PartitionLog) -> State:
    """What is not to change before the last step, which syncs nothing: a segment that is deleted
    then could come back, and with it what was deleted."""
    first, start = held.first_segment_offset, held.log_start_offset
    return held.recovery_point, start, first, *held.snapshots()


def _old_directory(move: Move) -> str:
    return move.source.directory_of(*move.key)
