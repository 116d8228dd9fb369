"""One partition: the real log in memory under the real leader, and a follower that copies it.

What the follower has not copied is lost when it takes over. It copies when time has passed, unless
it is held back. Whoever leads asks nothing of anybody: elections are the world's doing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from random import Random

from ottla.base.ids import TopicPartition
from ottla.log.log_config import LogConfig
from ottla.log.open_log import open_log
from ottla.log.partition_log import PartitionLog
from ottla.records.batch_header import (
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LENGTH_END,
    Header,
    read_header,
)
from ottla.replication.effects import Assignment
from ottla.replication.leader_progress import Pulse
from ottla.replication.partition import Partition
from sim.groups.virtual import VirtualTime
from tests.chaos.memory_files import MemoryFiles

LEADER, FOLLOWER = 1, 2
BOTH = (LEADER, FOLLOWER)
FOLLOWER_LIFE = 1
READ_BYTES = 1 << 24
COPY_MS_MAX = 15
FLUSHED = 0.2
# Small, so that a log has several, with a snapshot of the producers for each.
SEGMENT_BYTES = 600


class Replica:
    def __init__(self, place: TopicPartition, time: VirtualTime, dice: Random) -> None:
        self.place = place
        self.time = time
        self._dice = dice
        self._files = MemoryFiles()
        self._directory = f"/data/{place[0]}-{place[1]}"
        self._epoch = -1
        self._copied = 0
        self._high_watermark = 0
        self.holds_back = False
        self.partition: Partition | None = None
        """None while nobody leads."""
        self.caught_up_at = 0
        """Where the log ended when its leader began: what is below may be committed already."""
        self.log = self._open(0)
        self.lead()

    def _open(self, recovery_point: int) -> PartitionLog:
        log, _ = open_log(
            self._files,
            self._directory,
            *self.place,
            config=LogConfig(segment_bytes=SEGMENT_BYTES),
            recovery_point=recovery_point,
            log_start_offset=0,
            clean=False,
            clock=self.time,
            producer_id_expiration_ms=86_400_000,
            power_lost=False,
        )
        return log

    # -- leaders come and go ----------------------------------------------------------------

    def die(self, *, loses: bool) -> None:
        """The leader is gone. With `loses`, so is what only it had."""
        partition = self.partition
        if partition is None:
            return
        self.partition = None
        partition.go_away()
        self.log.abandon()
        self.log = self._open(self.log.recovery_point)
        if loses:
            self.log.truncate_to(max(self._copied, partition.high_watermark))
        self._high_watermark = partition.high_watermark

    def _known_watermark(self) -> int:
        """That of a follower may lag behind, by some batches."""
        ends = [0, *(header[BASE_OFFSET] for header, _ in self.batches(self._high_watermark))]
        return self._dice.choice((self._high_watermark, *ends[-2:]))

    def lead(self) -> Partition:
        self._epoch += 1
        partition = Partition(*self.place, uuid.UUID(int=1), "/data")
        partition.log = self.log
        partition.high_watermark = self._known_watermark()
        self.caught_up_at = self.log.log_end_offset
        assigned = Assignment(LEADER, self._epoch, self._epoch, BOTH, BOTH)
        partition.assume(LEADER, assigned, self.time.monotonic_ms())
        partition.add_reader(self)
        self.partition = partition
        self._copied = self.log.log_end_offset
        self.on_news()
        return partition

    # -- the follower -----------------------------------------------------------------------

    def on_news(self) -> None:
        partition = self.partition
        self.time.call_later(self._dice.randint(0, COPY_MS_MAX), lambda: self._copy_from(partition))

    def on_watermark(self) -> None:
        """What is committed needs no telling here: the follower hears of it when it leads."""

    def _copy_from(self, partition: Partition | None) -> None:
        if partition is self.partition and not self.holds_back:
            self.copy()

    def copy(self) -> None:
        partition = self.partition
        if partition is None:
            return
        self._copied = self.log.log_end_offset
        if self._dice.random() < FLUSHED:
            self._flush()
        partition.on_follower_fetch(
            FOLLOWER,
            FOLLOWER_LIFE,
            self._copied,
            self.log.log_start_offset,
            Pulse(self.time.monotonic_ms()),
            lambda broker, life: True,
        )

    def _flush(self) -> None:
        """From here on, a load trusts the snapshot of the producers."""
        job = self.log.flush_job()
        if job is not None:
            job.run()
            self.log.flush_done(job)

    # -- reading ----------------------------------------------------------------------------

    def batches(self, upper_bound: int | None = None) -> Iterator[tuple[Header, bytes]]:
        """Each batch below the bound, with its header, in the order of the log."""
        data = self.content(self.log.log_end_offset if upper_bound is None else upper_bound)
        position = 0
        while position < len(data):
            header = read_header(data, position)
            end = position + LENGTH_END + header[BATCH_LENGTH]
            yield header, data[position:end]
            position = end

    def content(self, upper_bound: int) -> bytes:
        parts = []
        offset = 0
        while offset < upper_bound:
            part = self.log.read(offset, READ_BYTES, upper_bound)
            if part is None:
                break
            data = part.file.read_at(part.position, part.size)
            parts.append(data)
            for header in headers_in(data):
                offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        return b"".join(parts)


def headers_in(data: bytes) -> Iterator[Header]:
    position = 0
    while position < len(data):
        header = read_header(data, position)
        yield header
        position += LENGTH_END + header[BATCH_LENGTH]
