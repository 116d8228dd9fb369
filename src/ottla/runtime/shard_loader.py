"""Loads a coordinator shard from its log, in the pool, piece by piece.

The loop asks the log for the next piece and the pool reads and sorts it: segments may be cleaned or
deleted meanwhile, and only the loop may ask where they are. Nothing is appended to a partition
while its shard is loaded, because only the shard's own host appends to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from ottla.base.ports import Pool
from ottla.coordinator.offsets_records import UnreadableRecord
from ottla.coordinator.shard import Record
from ottla.coordinator.shard_load import BrokenBatch, ShardLoad
from ottla.log.segment import LogSlice, RottenLength
from ottla.protocol.error_codes import NOT_LEADER_OR_FOLLOWER
from ottla.replication.partition import Partition

log = logging.getLogger("ottla.runtime")

PIECE_BYTES = 4 * 1024 * 1024

S = TypeVar("S", bound="Loadable")
Replay = Callable[[Record, int], None]
Suspect = Callable[[Partition, int], None]
"""What is stored at or shortly before an offset may have rotted: it is looked at, and if it has,
another replica has to lead."""


class Loadable(Protocol):
    def unload(self) -> None: ...


class ShardLoader(Generic[S]):
    """`make` gives an empty shard and the way to replay into it."""

    def __init__(self, pool: Pool, make: Callable[[], tuple[S, Replay]], suspect: Suspect) -> None:
        self._pool = pool
        self._make = make
        self._suspect = suspect

    def load(self, partition: Partition) -> Deferred[S]:
        """Fails with an OttlaError if the partition is lost on the way or cannot be read."""
        return _Loading(self._pool, self._make, partition, self._suspect).begin()


class _Loading(Generic[S]):
    def __init__(
        self,
        pool: Pool,
        make: Callable[[], tuple[S, Replay]],
        partition: Partition,
        suspect: Suspect,
    ) -> None:
        self._pool = pool
        self._suspect = suspect
        self._shard, self._replay = make()
        self._partition = partition
        self._epoch = partition.leader_epoch
        held = partition.log
        self._load = ShardLoad(0 if held is None else held.log_start_offset)
        self._done: Deferred[S] = Deferred()

    def begin(self) -> Deferred[S]:
        self._next()
        return self._done

    def _next(self) -> None:
        partition = self._partition
        held = partition.log
        if held is None or partition.leader_epoch != self._epoch or not partition.is_leader:
            self._give_up(ProtocolError(NOT_LEADER_OR_FOLLOWER))
            return
        # What was cleaned away meanwhile was outdated.
        offset = max(self._load.next_offset, held.log_start_offset)
        try:
            piece = held.read(offset, PIECE_BYTES, held.log_end_offset)
        except OttlaError as failure:
            self._give_up(failure)
            return
        if piece is not None:
            self._pool.run(self._read, piece).when_done(self._on_read)
        elif self._load.records_read:
            self._pool.run(self._replay_all).when_done(self._on_replayed)
        else:
            self._done.resolve(self._shard)

    def _read(self, piece: LogSlice) -> None:
        """In the pool."""
        self._load.read(piece.file.read_at(piece.position, piece.size))

    def _on_read(self, outcome: Deferred[None]) -> None:
        try:
            outcome.result()
        except (OttlaError, OSError, IndexError) as failure:
            self._give_up(failure)
            return
        self._next()

    def _replay_all(self) -> int:
        """In the pool: nobody else knows the shard yet."""
        count = 0
        for key, value, producer_id in self._load.live_records():
            count += 1
            try:
                self._replay(Record(key, value), producer_id)
            except UnreadableRecord as unreadable:
                # One group is worth less than all others of its partition.
                log.error("%s is left out: %s", key, unreadable)
        return count

    def _on_replayed(self, outcome: Deferred[int]) -> None:
        try:
            live = outcome.result()
        except OttlaError as failure:
            self._give_up(failure)
            return
        log.info(
            "loaded %s-%d: %d of %d records are live",
            self._partition.topic,
            self._partition.partition,
            live,
            self._load.records_read,
        )
        self._done.resolve(self._shard)

    def _give_up(self, failure: Exception) -> None:
        if isinstance(failure, BrokenBatch | RottenLength):
            self._suspect(self._partition, failure.offset)
        # What the shard holds so far is counted somewhere.
        self._shard.unload()
        self._done.fail(failure)
