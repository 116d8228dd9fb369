"""One replica of one partition on this broker: its role, its log, its watermark, and who waits.

Decides whether a request may be served here (leader, epoch, disk) and tells waiting fetches that
there is more to read. It appends to its log, which reaches the disk through its own port; it knows
no clock and no socket. A partition whose log dir has failed keeps its place with `log` None.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Protocol

from ottla.base.errors import ProtocolError, check
from ottla.base.ports import Buffer
from ottla.log.log_config import LONG_MAX, LogConfig
from ottla.log.partition_log import Appended, PartitionLog
from ottla.protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    UNKNOWN_LEADER_EPOCH,
)
from ottla.records import compression
from ottla.records.batch_header import Header
from ottla.records.validation import ProduceRules
from ottla.replication.leader_progress import LeaderProgress

# What `compression.type` of a topic asks for; None keeps what the producer chose.
CODECS = {
    "producer": None,
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}


class Waiter(Protocol):
    """Something parked until this partition moves: a long poll, a produce with acks=all."""

    def on_progress(self, partition: Partition, new_bytes: int) -> None: ...
    def on_gone(self, partition: Partition) -> None: ...


class Partition:
    __slots__ = (
        "_progress",
        "_rules",
        "_rules_config",
        "_waiters",
        "epoch_start_offset",
        "high_watermark",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "log",
        "log_dir",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, partition: int, topic_id: uuid.UUID, log_dir: str) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.log_dir = log_dir
        self.log: PartitionLog | None = None
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = -1
        self.high_watermark = 0
        self.epoch_start_offset = 0
        self._progress: LeaderProgress | None = None
        self._waiters: dict[Waiter, None] = {}
        self._rules: ProduceRules | None = None
        self._rules_config: LogConfig | None = None

    # -- role -------------------------------------------------------------------------------

    def become_leader(
        self, *, broker_id: int, epoch: int, in_sync: Iterable[int], replica_count: int
    ) -> None:
        """Lead from the present log end on. The watermark keeps its local value (KIP-101)."""
        log = self.log
        if log is None:
            return
        check(epoch >= self.leader_epoch, "a leader epoch never goes back (R2)")
        self.is_leader = True
        self.leader_id = broker_id
        self.leader_epoch = epoch
        self.epoch_start_offset = log.log_end_offset
        self._progress = LeaderProgress(
            leader=broker_id,
            epoch=epoch,
            epoch_start=log.log_end_offset,
            high_watermark=max(self.high_watermark, log.log_start_offset),
            in_sync=in_sync,
            replica_count=replica_count,
            in_sync_min=log.config.min_insync_replicas,
        )
        if self._progress.on_appended(log.log_end_offset):
            self._progress_made(0)
        self.high_watermark = self._progress.high_watermark

    def go_offline(self) -> None:
        """The disk under the log has failed. Who waits gets an answer, not a time-out."""
        self.log = None
        self._progress = None
        self._release_waiters()

    def go_away(self) -> None:
        """The topic was deleted, or the replica moved elsewhere."""
        self.is_leader = False
        self._progress = None
        self._release_waiters()

    def on_config_changed(self) -> None:
        if self._progress is not None and self.log is not None:
            if self._progress.on_min_in_sync(self.log.config.min_insync_replicas):
                self._progress_made(0)

    def check_leader(self, current_leader_epoch: int) -> int:
        """The error code owed to a request that only the leader may answer (KIP-320)."""
        if self.log is None:
            return KAFKA_STORAGE_ERROR
        if current_leader_epoch not in (-1, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                return FENCED_LEADER_EPOCH
            return UNKNOWN_LEADER_EPOCH
        if not self.is_leader:
            return NOT_LEADER_OR_FOLLOWER
        return NONE

    # -- writes -----------------------------------------------------------------------------

    def takes_at_once(self, acks: int) -> bool:
        """Whether a batch would be stored and could be acknowledged without waiting."""
        log = self.log
        progress = self._progress
        if log is None or progress is None or log.config.flush_messages != LONG_MAX:
            return False
        return acks == 1 or (acks == -1 and progress.is_alone)

    def has_enough_in_sync(self) -> bool:
        return self._progress is not None and self._progress.has_enough_in_sync()

    def produce_rules(self, zstd_allowed: bool) -> ProduceRules:
        """What a produced batch is checked against; made anew only when the settings change."""
        config = self.log.config if self.log is not None else LogConfig()
        if self._rules is None or config is not self._rules_config:
            self._rules = rules_of(config, True)
            self._rules_config = config
        return self._rules if zstd_allowed else rules_of(config, False)

    def append(
        self, batch: Buffer, header: Header, now_ms: int, *, from_client: bool = True
    ) -> Appended:
        """Append one validated batch as the leader. Errors are ProtocolError or StorageError.

        `from_client=False` is for coordinators: their batches have no sequences, and a marker is
        one of them."""
        log = self.log
        progress = self._progress
        if log is None or progress is None:
            raise ProtocolError(self.check_leader(-1) or NOT_LEADER_OR_FOLLOWER)
        appended = log.append(
            batch, header, self.leader_epoch, now_ms=now_ms, from_client=from_client
        )
        if not appended.duplicate and progress.on_appended(log.log_end_offset):
            self._progress_made(len(batch))
        return appended

    def delete_records_before(self, offset: int) -> int:
        """DeleteRecords: -1 means up to the high watermark. Returns the new log start."""
        log = self.log
        if log is None:
            raise ProtocolError(KAFKA_STORAGE_ERROR)
        if "delete" not in log.config.cleanup_policy:
            raise ProtocolError(
                POLICY_VIOLATION,
                "Records of a compacted topic can not be deleted before an offset.",
            )
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise ProtocolError(OFFSET_OUT_OF_RANGE, f"{target} is not within the log")
        if target > log.log_start_offset:
            log.advance_log_start(target)
        return log.log_start_offset

    # -- reads ------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Read_committed readers see nothing at or above this."""
        log = self.log
        if log is None:
            return self.high_watermark
        unstable = log.first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return unstable

    def add_waiter(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)

    def _progress_made(self, new_bytes: int) -> None:
        progress = self._progress
        if progress is not None:
            self.high_watermark = progress.high_watermark
            if self.log is not None:
                self.log.on_high_watermark(self.high_watermark)
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.on_progress(self, new_bytes)

    def _release_waiters(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.on_gone(self)


def rules_of(config: LogConfig, zstd_allowed: bool) -> ProduceRules:
    codec = CODECS[config.compression_type]
    levels = {
        compression.GZIP: config.compression_gzip_level,
        compression.LZ4: config.compression_lz4_level,
        compression.ZSTD: config.compression_zstd_level,
    }
    return ProduceRules(
        max_message_bytes=config.max_message_bytes,
        compression_codec=codec,
        compression_level=None if codec is None else levels.get(codec),
        timestamp_type=config.message_timestamp_type,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        compacted="compact" in config.cleanup_policy,
        zstd_allowed=zstd_allowed,
    )
