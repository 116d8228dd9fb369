"""What has to hold of the logs, whatever happened: read as a consumer reads, and batch by batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from ottla.base.ids import TopicPartition
from ottla.coordinator.transaction_asks import EPOCH_MAX, EPOCH_PER_TRANSACTION
from ottla.coordinator.transaction_end import marker_task
from ottla.coordinator.transaction_records import DECIDED, ONGOING, read_key, read_value
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_MASK,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_MASK,
)
from ottla.records.batch_view import records_of
from sim.transactions.ledger import Violation
from sim.transactions.replica import Replica

UNPACKED_BYTES_MAX = 1 << 24


def seen_by_committed(replica: Replica) -> list[bytes]:
    """What a read_committed consumer makes of a whole partition, as Java's does."""
    partition = replica.partition
    assert partition is not None
    bound = partition.last_stable_offset
    if bound > partition.high_watermark:
        raise Violation(f"R3: {replica.place} shows what is not committed")
    aborted = sorted(
        replica.log.aborted_transactions(0, bound), key=lambda one: one[1], reverse=True
    )
    hidden: set[int] = set()
    values: list[bytes] = []
    for header, batch in replica.batches(bound):
        if header[BASE_OFFSET] >= bound:
            break
        producer_id = header[PRODUCER_ID]
        while aborted and aborted[-1][1] <= header[BASE_OFFSET]:
            hidden.add(aborted.pop()[0])
        if header[ATTRIBUTES] & CONTROL_MASK:
            hidden.discard(producer_id)
        elif not (header[ATTRIBUTES] & TRANSACTIONAL_MASK and producer_id in hidden):
            values.extend(_values(batch))
    return values


def check_stable(replica: Replica) -> None:
    """The last stable offset is where the first transaction begins that has no committed marker.

    A new leader's watermark lags behind, and of markers that it has read it need not know which are
    committed: the same decision would be written again.
    """
    partition = replica.partition
    assert partition is not None
    bound = partition.high_watermark
    known = max(bound, replica.caught_up_at)
    opened: dict[int, int] = {}
    loosely: dict[int, int] = {}
    for header, _ in replica.batches(known):
        offset, producer_id = header[BASE_OFFSET], header[PRODUCER_ID]
        if header[ATTRIBUTES] & CONTROL_MASK:
            loosely.pop(producer_id, None)
            if offset < bound:
                opened.pop(producer_id, None)
        elif header[ATTRIBUTES] & TRANSACTIONAL_MASK and offset < bound:
            loosely.setdefault(producer_id, offset)
            opened.setdefault(producer_id, offset)
    least = min(opened.values(), default=bound)
    most = min(loosely.values(), default=bound)
    if not least <= partition.last_stable_offset <= most:
        told = partition.last_stable_offset
        raise Violation(f"T2: {replica.place} is stable up to {least}, told is {told}")


def check_known(replica: Replica, shard: TransactionShard) -> None:
    """T4: whatever is open in a partition is known to the coordinator, which will end it."""
    known = {
        held.producer_id
        for _, held in shard
        if replica.place in held.partitions and (held.state == ONGOING or held.state in DECIDED)
    }
    for offset, producer_id in replica.log.producers.open_transactions.items():
        if producer_id not in known:
            raise Violation(f"T4: nobody will end {producer_id} at {offset} of {replica.place}")


def _values(batch: bytes) -> Iterator[bytes]:
    for record in records_of(batch, UNPACKED_BYTES_MAX):
        yield bytes(record.value or b"")


def check_producers(replica: Replica) -> None:
    """P1-P3: each sequence once and in order, and no epoch after a newer one."""
    epochs: dict[int, int] = {}
    sequences: dict[int, int] = {}
    for header, _ in replica.batches():
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        if producer_id < 0:
            continue
        if epoch < epochs.get(producer_id, -1):
            raise Violation(f"P3: {replica.place} has epoch {epoch} of {producer_id} after a newer")
        if epoch > epochs.get(producer_id, -1):
            epochs[producer_id], sequences[producer_id] = epoch, 0
        if header[ATTRIBUTES] & CONTROL_MASK or header[BASE_SEQUENCE] < 0:
            continue
        if header[BASE_SEQUENCE] != sequences[producer_id]:
            raise Violation(
                f"P2: {replica.place} has {header[BASE_SEQUENCE]} of {producer_id} in epoch "
                f"{epoch}, where {sequences[producer_id]} was the next"
            )
        sequences[producer_id] += header[RECORD_COUNT]


class Owed:
    """The markers of one partition, by producer id and epoch, and of how many it may be without.

    Without an epoch per transaction, a marker for a partition in which there is nothing to end may
    be left out when it is repeated: whether it was there before cannot be told.
    """

    def __init__(self) -> None:
        self.markers: Counter[tuple[int, int]] = Counter()
        self.dispensable: set[tuple[int, int]] = set()


def decisions(state: Replica) -> dict[TopicPartition, Owed]:
    owed: dict[TopicPartition, Owed] = defaultdict(Owed)
    for _, batch in state.batches():
        for record in records_of(batch, UNPACKED_BYTES_MAX):
            if record.value is None or record.key is None:
                continue
            decided = read_value(bytes(record.value))
            if decided.state in DECIDED:
                task = marker_task(read_key(bytes(record.key)), decided, is_repeated=False)
                producer = (task.producer_id, task.producer_epoch)
                for place in task.partitions:
                    owed[place].markers[producer] += 1
                    if task.client_version < EPOCH_PER_TRANSACTION or producer[1] == EPOCH_MAX:
                        owed[place].dispensable.add(producer)
    return owed


def check_markers(replica: Replica, owed: Owed) -> None:
    """T3: one marker for each transaction that was decided and has this partition."""
    found: Counter[tuple[int, int]] = Counter()
    for header, _ in replica.batches():
        if header[ATTRIBUTES] & CONTROL_MASK:
            found[header[PRODUCER_ID], header[PRODUCER_EPOCH]] += 1
    for producer, count in (found - owed.markers).items():
        raise Violation(f"T3: {replica.place} has {count} markers too many of {producer}")
    for producer, count in (owed.markers - found).items():
        if producer not in owed.dispensable:
            raise Violation(f"T3: {replica.place} lacks {count} markers of {producer}")
