"""What a follower does to its own log, as its leader says: append, follow, cut, start over.

Never cuts by the watermark: only to the end of the last epoch that both logs have (KIP-101, 279).
An order to cut below the own watermark stops the replica with an alarm (R11), unless an unclean
election is recorded that is later than anything in this log. Errors are ProtocolError where the
leader sent something broken, StorageError where the disk failed.
"""

from __future__ import annotations

from ottla.base.errors import ProtocolError
from ottla.base.ports import Buffer
from ottla.log.batch_scan import is_sound, next_offset
from ottla.log.partition_log import PartitionLog
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR
from ottla.records.batch_header import BASE_OFFSET, HEADER_SIZE, read_header
from ottla.replication.partition import Partition


def store_fetched(
    partition: Partition, log: PartitionLog, records: Buffer, *, gaps_allowed: bool = True
) -> int:
    """Append what the leader sent, offsets and epochs as they are; returns the bytes stored. Every
    batch is checked (L1, L2); one that is cut off at the end is left out."""
    size_before = log.size
    log.append_replicated(records, gaps_allowed)
    return log.size - size_before


def begin_within(log: PartitionLog, records: memoryview) -> bool:
    """Records are deleted up to the middle of a batch, but batches are copied as they are: an empty
    log that is to start within the first one begins where that does, as in Kafka, and `follow_ends`
    puts the start to its place. True if so: the recovery point went down."""
    start = log.log_end_offset
    if log.size or log.log_start_offset != start or len(records) < HEADER_SIZE:
        return False
    header = read_header(records)
    if not is_sound(header, 0, len(records)) or not header[BASE_OFFSET] < start:
        return False
    if next_offset(header) <= start:
        return False
    log.truncate_fully_and_start_at(header[BASE_OFFSET])
    return True


def follow_ends(
    partition: Partition, log: PartitionLog, high_watermark: int, log_start: int
) -> None:
    """The leader's watermark, as far as there is a log here, and its log start. A new leader may
    tell less than the last one: what was committed stays so (R5)."""
    partition.leader_watermark = high_watermark
    reached = min(high_watermark, log.log_end_offset)
    if reached > partition.high_watermark:
        partition.on_watermark(reached)
    start = min(log_start, partition.high_watermark)
    if start > log.log_start_offset:
        log.advance_log_start(start)


def cut_to_common(partition: Partition, log: PartitionLog, epoch: int, end_offset: int) -> bool:
    """In the leader's log `epoch` ends at `end_offset`, and there the logs part. Cut what it does
    not have, as far as can be told from this one epoch; the next fetch tells the rest. True if the
    recovery point went down, which has to be on the disk before the next append."""
    own_epoch, own_end = log.end_offset_for_epoch(epoch)
    target = log.log_end_offset
    if own_epoch >= 0:
        target = min(target, own_end)
    if own_epoch < 0 or own_epoch == epoch:
        target = min(target, end_offset)
    if target < partition.high_watermark and not _may_lose(partition, log):
        partition.alarm(
            f"R11: in the log of the leader of epoch {partition.leader_epoch} ours ends at {target}"
            f", but all below {partition.high_watermark} was committed"
        )
        raise ProtocolError(KAFKA_STORAGE_ERROR)
    recovery_point = log.recovery_point
    log.truncate_to(target)
    partition.high_watermark = min(partition.high_watermark, log.log_end_offset)
    return log.recovery_point != recovery_point


def start_over(partition: Partition, log: PartitionLog, offset: int) -> None:
    """The leader's log begins above the end of ours: nothing of ours is of use."""
    log.truncate_fully_and_start_at(offset)
    partition.high_watermark = offset


def _may_lose(partition: Partition, log: PartitionLog) -> bool:
    return partition.unclean_epoch > log.leader_epochs.latest
