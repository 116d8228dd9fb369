"""What each producer has written to this partition: epochs, sequences, open transactions.

Decides whether a batch is new, a duplicate, or refused; never touches a file. `check` asks before
the write, `update` tells after it, with the same header. After a restart the state comes from the
latest snapshot and a walk over the batch headers behind it.

Rules (P1-P3, features 6.2 and 7): the last five batches of a producer are known and a resend is
answered with their offsets; a gap, an overlap or an older duplicate is refused with
OUT_OF_ORDER_SEQUENCE_NUMBER, an older epoch with INVALID_PRODUCER_EPOCH; a newer epoch starts at
sequence 0; of a producer that is not known any sequence is taken. Sequences wrap from 2147483647
to 0.

A snapshot holds one batch a producer, so after a restart Kafka has forgotten the other four and
refuses their resend. Here an entry from a snapshot is marked as not `complete`, and the log looks
the others up in its batches before it refuses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import attrgetter

from ottla.base.errors import ProtocolError
from ottla.base.limits import PARTITION_PRODUCERS_MAX
from ottla.log.admissions import Admissions
from ottla.log.producer_snapshot import SnapshotEntry
from ottla.log.txn_index import AbortedTransaction
from ottla.protocol.error_codes import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
    Header,
)

BATCHES_KEPT = 5
SEQUENCE_MAX = 2**31 - 1
NO_TRANSACTION = -1
ANY_SEQUENCE = -1
"""Of a producer of whom only a marker is left, the next sequence can not be known."""
EPOCH_MAX = 32767
"""No producer ever has this epoch: only the marker that ends its last transaction does."""
EVICTED_PART = 10
"""One in so many producers is forgotten when there are too many of them."""

# Whoever wrote longest ago; after a restart all have been seen at once, and their records tell.
_SILENCE = attrgetter("seen_ms", "timestamp")

Batch = tuple[int, int, int, int]
"""Last sequence, last offset, offset delta and timestamp of a batch."""


class Marker:
    """What a control batch says: a transaction was committed or aborted."""

    __slots__ = ("aborted", "coordinator_epoch")

    def __init__(self, aborted: bool, coordinator_epoch: int) -> None:
        self.aborted = aborted
        self.coordinator_epoch = coordinator_epoch


class CompletedTransaction:
    """A transaction with at least one batch in this partition that now has its marker."""

    __slots__ = ("aborted", "first_offset", "last_offset", "last_stable_offset", "producer_id")

    def __init__(
        self,
        producer_id: int,
        first_offset: int,
        last_offset: int,
        last_stable_offset: int,
        aborted: bool,
    ) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.last_stable_offset = last_stable_offset
        self.aborted = aborted

    def as_entry(self) -> AbortedTransaction:
        """For the index of the segment that has the marker."""
        return AbortedTransaction(
            self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset
        )


class ProducerEntry:
    __slots__ = (
        "batches",
        "complete",
        "coordinator_epoch",
        "epoch",
        "next_sequence",
        "producer_id",
        "seen_ms",
        "timestamp",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.timestamp = -1
        self.seen_ms = 0
        self.transaction_first_offset = NO_TRANSACTION
        self.next_sequence = 0
        self.batches: list[Batch] = []
        self.complete = True

    def last_sequence(self) -> int:
        return self.batches[-1][0] if self.batches else -1

    def last_offset(self) -> int:
        return self.batches[-1][1] if self.batches else -1

    def add_batch(self, last_sequence: int, last_offset: int, delta: int, timestamp: int) -> None:
        batches = self.batches
        batches.append((last_sequence, last_offset, delta, timestamp))
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        self.next_sequence = 0 if last_sequence == SEQUENCE_MAX else last_sequence + 1
        self.timestamp = timestamp

    def on_next_batch(self, delta: int, last_offset: int, timestamp: int, now_ms: int) -> None:
        """The batch that was expected is written, outside of any transaction."""
        last_sequence = self.next_sequence + delta
        if last_sequence > SEQUENCE_MAX:
            last_sequence -= SEQUENCE_MAX + 1
        self.add_batch(last_sequence, last_offset, delta, timestamp)
        self.seen_ms = now_ms

    def start_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []
            self.next_sequence = 0
            self.complete = True

    def find_duplicate(self, first_sequence: int, delta: int) -> Batch | None:
        last_sequence = last_sequence_of(first_sequence, delta)
        for batch in self.batches:
            if batch[0] == last_sequence and batch[2] == delta:
                return batch
        return None


def last_sequence_of(first_sequence: int, delta: int) -> int:
    last = first_sequence + delta
    return last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1


class ProducerStates:
    """All producers of a partition; DescribeProducers reads `entries`."""

    __slots__ = (
        "_evict_at",
        "_expiration_ms",
        "_unreplicated",
        "admissions",
        "end_offset",
        "entries",
        "open_transactions",
    )

    def __init__(self, expiration_ms: int, end_offset: int = 0) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, int] = {}
        """First offset to producer id; offsets only grow, so the first key is the oldest."""
        self._unreplicated: deque[tuple[int, int]] = deque()
        """First offset and marker offset of transactions whose marker is above the watermark, both
        growing: one that began later and ended earlier than another never holds readers back."""
        self._evict_at = PARTITION_PRODUCERS_MAX
        self._expiration_ms = expiration_ms
        self.end_offset = end_offset
        self.admissions = Admissions()

    # -- before a write -----------------------------------------------------------------------

    def expecting(self, header: Header) -> ProducerEntry | None:
        """Of an ordinary producer, who sends its next batch and has no transaction open."""
        entry = self.entries.get(header[PRODUCER_ID])
        if (
            entry is not None
            and entry.next_sequence == header[BASE_SEQUENCE]
            and entry.epoch == header[PRODUCER_EPOCH]
            and entry.transaction_first_offset == NO_TRANSACTION
        ):
            return entry
        return None

    def check(self, header: Header, from_client: bool) -> Batch | None:
        """None if the batch is new; the stored batch if it is a duplicate; else a refusal."""
        entry = self.entries.get(header[PRODUCER_ID])
        if entry is None:
            return None
        epoch = header[PRODUCER_EPOCH]
        sequence = header[BASE_SEQUENCE]
        if epoch == entry.epoch:
            if from_client and sequence != entry.next_sequence != ANY_SEQUENCE:
                return self._duplicate_or_refusal(entry, sequence, header[LAST_OFFSET_DELTA])
        elif epoch < entry.epoch:
            raise ProtocolError(
                INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {entry.producer_id} is older than {entry.epoch}.",
            )
        elif from_client and sequence != 0:
            raise ProtocolError(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Epoch {epoch} of producer {entry.producer_id} starts at sequence {sequence}.",
            )
        if (
            entry.transaction_first_offset != NO_TRANSACTION
            and not header[ATTRIBUTES] & TRANSACTIONAL_MASK
        ):
            raise ProtocolError(
                INVALID_TXN_STATE,
                f"Producer {entry.producer_id} has a transaction open, this batch is not in it.",
            )
        return None

    def check_marker(self, header: Header, marker: Marker) -> None:
        entry = self.entries.get(header[PRODUCER_ID])
        if entry is None:
            return
        if header[PRODUCER_EPOCH] < entry.epoch:
            raise ProtocolError(
                INVALID_PRODUCER_EPOCH,
                f"A marker for epoch {header[PRODUCER_EPOCH]} of producer {entry.producer_id}, "
                f"which is at {entry.epoch}.",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise ProtocolError(
                TRANSACTION_COORDINATOR_FENCED,
                f"A marker of coordinator epoch {marker.coordinator_epoch}, "
                f"after one of {entry.coordinator_epoch}.",
            )

    def _duplicate_or_refusal(self, entry: ProducerEntry, sequence: int, delta: int) -> Batch:
        duplicate = entry.find_duplicate(sequence, delta)
        if duplicate is None:
            raise ProtocolError(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {entry.producer_id} sent sequence {sequence}, "
                f"{entry.next_sequence} is the next.",
            )
        return duplicate

    # -- after a write ------------------------------------------------------------------------

    def update(self, header: Header, base_offset: int, now_ms: int) -> None:
        """A batch with records was written at `base_offset`."""
        producer_id = header[PRODUCER_ID]
        epoch = header[PRODUCER_EPOCH]
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._new_entry(producer_id, epoch)
        elif epoch != entry.epoch:
            entry.start_epoch(epoch)
        delta = header[LAST_OFFSET_DELTA]
        last_sequence = header[BASE_SEQUENCE] + delta
        if last_sequence > SEQUENCE_MAX:
            last_sequence -= SEQUENCE_MAX + 1
        entry.add_batch(last_sequence, base_offset + delta, delta, header[MAX_TIMESTAMP])
        entry.seen_ms = now_ms
        if (
            header[ATTRIBUTES] & TRANSACTIONAL_MASK
            and entry.transaction_first_offset == NO_TRANSACTION
        ):
            entry.transaction_first_offset = base_offset
            self.open_transactions[base_offset] = producer_id

    def _new_entry(self, producer_id: int, epoch: int) -> ProducerEntry:
        if len(self.entries) >= self._evict_at:
            self._evict()
        entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        return entry

    def _evict(self) -> None:
        """Makes room by forgetting who has been idle for longest. Many at once, since all have to
        be looked at; those with a transaction open stay, however many they are.
        """
        spare = max(PARTITION_PRODUCERS_MAX // EVICTED_PART, 1)
        idle = [
            entry
            for entry in self.entries.values()
            if entry.transaction_first_offset == NO_TRANSACTION
        ]
        idle.sort(key=_SILENCE)
        for entry in idle[: len(self.entries) - PARTITION_PRODUCERS_MAX + spare]:
            del self.entries[entry.producer_id]
        self._evict_at = max(PARTITION_PRODUCERS_MAX, len(self.entries) + spare)

    def update_marker(
        self, header: Header, offset: int, marker: Marker, now_ms: int
    ) -> CompletedTransaction | None:
        """A marker was written at `offset`; None if the transaction had no batch here."""
        producer_id = header[PRODUCER_ID]
        self.admissions.revoke(producer_id)
        if header[PRODUCER_EPOCH] == EPOCH_MAX:
            return self._last_marker(producer_id, offset, marker)
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._new_entry(producer_id, header[PRODUCER_EPOCH])
            entry.next_sequence = ANY_SEQUENCE
        else:
            entry.start_epoch(header[PRODUCER_EPOCH])
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.timestamp = header[MAX_TIMESTAMP]
        entry.seen_ms = now_ms
        return self._ended(entry, offset, marker)

    def _last_marker(
        self, producer_id: int, offset: int, marker: Marker
    ) -> CompletedTransaction | None:
        """Nobody will ever write as this producer again, so there is nothing to remember."""
        entry = self.entries.pop(producer_id, None)
        return None if entry is None else self._ended(entry, offset, marker)

    def _ended(
        self, entry: ProducerEntry, offset: int, marker: Marker
    ) -> CompletedTransaction | None:
        first_offset = entry.transaction_first_offset
        if first_offset == NO_TRANSACTION:
            return None
        entry.transaction_first_offset = NO_TRANSACTION
        self.open_transactions.pop(first_offset, None)
        while self._unreplicated and self._unreplicated[-1][0] > first_offset:
            self._unreplicated.pop()
        self._unreplicated.append((first_offset, offset))
        stable = next(iter(self.open_transactions), offset + 1)
        return CompletedTransaction(entry.producer_id, first_offset, offset, stable, marker.aborted)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker is below the watermark hold nobody back any longer."""
        while self._unreplicated and self._unreplicated[0][1] < high_watermark:
            self._unreplicated.popleft()

    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or decided above the watermark."""
        first = next(iter(self.open_transactions), None)
        if self._unreplicated:
            decided = self._unreplicated[0][0]
            return decided if first is None else min(first, decided)
        return first

    # -- life ---------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> int:
        """Forgets producers that wrote nothing for too long and have no transaction open.

        Counted from when we saw them write. Kafka counts from the timestamp of their records, and
        so forgets at once who writes old ones: a resend of theirs is then stored twice.
        """
        oldest = now_ms - self._expiration_ms
        gone = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.seen_ms <= oldest and entry.transaction_first_offset == NO_TRANSACTION
        ]
        for producer_id in gone:
            del self.entries[producer_id]
        return len(gone)

    def clear(self, end_offset: int) -> None:
        self.entries.clear()
        self.open_transactions.clear()
        self._unreplicated.clear()
        self._evict_at = PARTITION_PRODUCERS_MAX
        self.admissions.clear()
        self.end_offset = end_offset

    def snapshot(self) -> list[SnapshotEntry]:
        return [
            SnapshotEntry(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence(),
                entry.last_offset(),
                entry.batches[-1][2] if entry.batches else 0,
                entry.timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
            for entry in self.entries.values()
        ]

    def load(self, saved: Iterable[SnapshotEntry], end_offset: int, now_ms: int) -> None:
        """Takes the place of all that was known, with the state at `end_offset`."""
        self.clear(end_offset)
        transactions: list[tuple[int, int]] = []
        for fields in saved:
            entry = ProducerEntry(fields.producer_id, fields.epoch)
            if fields.last_offset >= 0:
                entry.add_batch(
                    fields.last_sequence, fields.last_offset, fields.offset_delta, fields.timestamp
                )
                entry.complete = False
            entry.timestamp = fields.timestamp
            entry.seen_ms = now_ms
            entry.coordinator_epoch = fields.coordinator_epoch
            if fields.transaction_first_offset >= 0:
                entry.transaction_first_offset = fields.transaction_first_offset
                transactions.append((fields.transaction_first_offset, fields.producer_id))
            self.entries[fields.producer_id] = entry
        if len(self.entries) > PARTITION_PRODUCERS_MAX:
            self._evict()
        self.open_transactions.update(sorted(transactions))
