"""How much of its own log a leader counts: all of it, but where records count once they are synced
(`flush.messages`), what is on the disk. The others have more, perhaps, but readers are not to see
what a loss of power could take from here, and from the last in the set.
"""

from __future__ import annotations

from ottla.log.partition_log import PartitionLog


def must_sync(log: PartitionLog) -> bool:
    """Whether there are records that count only then."""
    return log.unflushed_messages >= log.config.flush_messages


def counted_end(log: PartitionLog) -> int:
    return log.recovery_point if must_sync(log) else log.log_end_offset
