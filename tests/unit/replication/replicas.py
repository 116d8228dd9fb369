"""What the tests of this room share: partitions over logs in memory, and batches for them."""

from __future__ import annotations

import uuid

from ottla.log.log_config import LogConfig
from ottla.records.batch_header import read_header
from ottla.replication.effects import Assignment, InSyncProposal
from ottla.replication.leader_progress import Pulse
from ottla.replication.partition import Partition
from tests.unit.log.world import NOW_MS, World, batch

TOPIC_ID = uuid.UUID(int=7)
LAG_MS = 30_000


def assigned(
    leader: int = 1,
    epoch: int = 5,
    version: int = 0,
    in_sync: tuple[int, ...] = (1, 2, 3),
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    unclean_epoch: int = -1,
    eligible: tuple[int, ...] = (),
) -> Assignment:
    return Assignment(leader, epoch, version, replicas, in_sync, unclean_epoch, eligible)


class Replica:
    """One replica of `topic`-0 on the broker `broker_id`."""

    def __init__(self, broker_id: int = 1, *, in_sync_min: int = 2) -> None:
        self.broker_id = broker_id
        self.world = World(config=LogConfig(min_insync_replicas=in_sync_min))
        self.log = self.world.open()
        self.partition = Partition("topic", 0, TOPIC_ID, "/data")
        self.partition.log = self.log
        self.alarms: list[str] = []
        self.partition.on_alarm = lambda partition, reason: self.alarms.append(reason)

    def assume(self, state: Assignment, now_ms: int = 0) -> bool:
        return self.partition.assume(self.broker_id, state, now_ms)

    def lead(self, in_sync: tuple[int, ...] = (1, 2, 3), epoch: int = 5) -> Replica:
        self.assume(assigned(self.broker_id, epoch, in_sync=in_sync))
        return self

    def produce(self, count: int = 1, records: int = 1) -> None:
        for _ in range(count):
            content = batch(records)
            self.partition.append(bytearray(content), read_header(content), NOW_MS)

    def fetched_by(
        self,
        replica: int,
        offset: int,
        now_ms: int = 0,
        *,
        broker_epoch: int = 70,
        may_be_member: bool = True,
    ) -> InSyncProposal | None:
        return self.partition.on_follower_fetch(
            replica, broker_epoch, offset, 0, Pulse(now_ms), lambda broker, epoch: may_be_member
        )

    def check(self, now_ms: int, refused: frozenset[int] = frozenset()) -> InSyncProposal | None:
        return self.partition.check_in_sync(
            now_ms, LAG_MS, lambda broker, epoch: broker not in refused
        )

    def flush(self) -> None:
        """All that was appended until now is on the disk."""
        self.world.flush()
        self.partition.on_flushed()

    def content(self, start: int | None = None) -> bytes:
        """The batches of the log from there on, or all of them."""
        start = self.log.log_start_offset if start is None else start
        held = self.log.read(start, 1 << 30, self.log.log_end_offset)
        return b"" if held is None else held.file.read_at(held.position, held.size)


class Waiting:
    """Somebody who waits: what it was told, in order."""

    def __init__(self, last_offset: int = 0) -> None:
        self.last_offset = last_offset
        self.told: list[str] = []

    def on_progress(self, partition: Partition, new_bytes: int) -> None:
        self.told.append(f"progress {partition.high_watermark} {new_bytes > 0}")

    def on_committed(self, partition: Partition) -> None:
        self.told.append(f"committed {self.last_offset}")

    def on_gone(self, partition: Partition) -> None:
        self.told.append("gone")

    def on_news(self) -> None:
        self.told.append("news")

    def on_watermark(self) -> None:
        self.told.append("watermark")
