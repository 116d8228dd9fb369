"""The partition under a shard's host: a list of batches, a watermark that may lag, and faults.

It stands in for `Partition` and its log, with what a host asks of them and nothing else. Batches
are kept as bytes, so that a restart reads what was really written.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError, StorageError
from ottla.coordinator.shard import Record
from ottla.coordinator.shard_load import ShardLoad
from ottla.log.log_config import LONG_MAX
from ottla.records.batch_header import LAST_OFFSET_DELTA, Header

_BASE_OFFSET = struct.Struct(">q")


@dataclass
class SimulatedLogConfig:
    max_message_bytes: int = 1_048_588
    flush_messages: int = LONG_MAX


class SimulatedPartition:
    """With `holds_back`, what is appended is committed only when `commit_all` is called."""

    def __init__(self) -> None:
        self.topic = "__consumer_offsets"
        self.partition = 0
        self.leader_epoch = 0
        self.times_led = 1
        self.is_leader = True
        self.high_watermark = 0
        self.log_end_offset = 0
        self.log_start_offset = 0
        self.unflushed_messages = 0
        self.config = SimulatedLogConfig()
        self.log: SimulatedPartition | None = self
        self.batches: list[bytes] = []
        self.fail_code = 0
        self.fails_on_disk = False
        self.has_enough = True
        self.holds_back = False
        self._waiters: dict[Any, None] = {}

    # -- what a host asks of a partition ----------------------------------------------------

    def has_enough_in_sync(self) -> bool:
        return self.has_enough

    def commits_at_once(self) -> bool:
        return self.has_enough and not self.holds_back and self.config.flush_messages == LONG_MAX

    def append(
        self, batch: bytearray, header: Header, now_ms: int, *, from_client: bool = True
    ) -> None:
        if self.fails_on_disk:
            raise StorageError("/simulated", "append")
        if self.fail_code:
            raise ProtocolError(self.fail_code)
        _BASE_OFFSET.pack_into(batch, 0, self.log_end_offset)
        self.batches.append(bytes(batch))
        self.log_end_offset += header[LAST_OFFSET_DELTA] + 1
        self.unflushed_messages += header[LAST_OFFSET_DELTA] + 1
        if not self.holds_back:
            self.commit_all()

    def add_waiter(self, waiter: Any) -> None:
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: Any) -> None:
        self._waiters.pop(waiter, None)

    # -- what the world does to it ----------------------------------------------------------

    def commit_all(self) -> None:
        self.high_watermark = self.log_end_offset
        for waiter in list(self._waiters):
            waiter.on_progress(self, 0)

    def lose_leadership(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.on_gone(self)

    def cut_uncommitted(self) -> None:
        """A new leader that never had what was not committed."""
        self.batches = [
            batch
            for batch in self.batches
            if _BASE_OFFSET.unpack_from(batch)[0] < self.high_watermark
        ]
        self.log_end_offset = self.high_watermark

    def live_records(self) -> list[tuple[Record, int]]:
        """As a load finds them: the last value of each key, and whose open transaction it is in."""
        load = ShardLoad(0)
        for batch in self.batches:
            load.read(batch)
        return [(Record(key, value), producer) for key, value, producer in load.live_records()]


class SimulatedServices:
    """What a host asks of the broker. Flushes are done when `finish_flushes` is called."""

    def __init__(self, time: Any) -> None:
        self.clock = time
        self.timers = time
        self.flushes: list[Deferred[None]] = []
        self.failures: list[StorageError] = []

    def request_flush(self, partition: Any) -> Deferred[None]:
        flush: Deferred[None] = Deferred()
        self.flushes.append(flush)
        return flush

    def storage_failed(self, failure: StorageError) -> None:
        self.failures.append(failure)

    def finish_flushes(self) -> None:
        flushes, self.flushes = self.flushes, []
        for flush in flushes:
            flush.resolve(None)
