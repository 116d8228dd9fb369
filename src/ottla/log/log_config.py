"""The effective settings of one topic, as the log needs them.

Made by `metadata.configs` from broker defaults and topic overrides; replaced as a whole when a
setting changes, so that a reader never sees half of a change.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.records.crc32c import crc32c

LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Names are the topic configs of Kafka with underscores; times in ms, sizes in bytes."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    def roll_ms(self) -> int:
        """How long a segment is written to. What waits in the active one is not compacted, so
        max.compaction.lag.ms bounds it too (KIP-354)."""
        if self.max_compaction_lag_ms < self.segment_ms and "compact" in self.cleanup_policy:
            return self.max_compaction_lag_ms
        return self.segment_ms

    def jitter_ms(self, name: str) -> int:
        """By so much a segment is rolled earlier: spread over the partitions so that they do not
        all roll at once; the same each time."""
        width = min(self.segment_jitter_ms, self.segment_ms)
        return crc32c(name.encode()) % width if width > 0 else 0
