"""Which batches of a cleaning belong to aborted transactions, and which markers may go.

Walks along with the cleaner, batch by batch in offset order, from the first segment on. The
records of an aborted transaction go at once. A marker stays as long as any batch of its
transaction was seen on the walk, be it one that goes or one that has no records left: whoever
reads the log meanwhile, or replays it for its producers, must find how the transaction ended.
Which transactions were aborted is told by the `.txnindex` files; those entries that are still
needed are handed on to the cleaned segments.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.ports import Buffer
from ottla.log.batch_scan import next_offset
from ottla.log.markers import read_marker
from ottla.log.txn_index import AbortedTransaction
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_MASK,
    Header,
)


class TransactionWalk:
    __slots__ = ("_aborted", "_coming", "_committed", "_seen", "still_needed")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: all that have a batch in the log that is walked over; more do no harm."""
        self._coming = sorted(set(aborted), key=lambda one: one.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """By producer, those that the walk is in the middle of."""
        self._seen: set[int] = set()
        """Producers of which a batch of such a transaction came by."""
        self._committed: set[int] = set()
        """Producers with a batch of a transaction that was not aborted, and no marker yet."""
        self.still_needed: list[AbortedTransaction] = []
        """Whose marker came by and stays; taken and emptied by whoever writes the index."""

    def on_batch(self, header: Header) -> bool:
        """Whether the batch belongs to an aborted transaction, so that its records go."""
        self._begin_up_to(next_offset(header) - 1)
        if not header[ATTRIBUTES] & TRANSACTIONAL_MASK:
            return False
        producer_id = header[PRODUCER_ID]
        aborted = self._aborted.get(producer_id)
        # Its marker's offset counts, too: an entry whose marker is gone must not take what the
        # producer wrote later.
        if aborted is not None and header[BASE_OFFSET] <= aborted.last_offset:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def on_control_batch(self, header: Header, batch: Buffer) -> bool:
        """Whether nothing is left of the transaction that the marker ended."""
        self._begin_up_to(next_offset(header) - 1)
        if header[RECORD_COUNT] == 0:
            return True
        marker = read_marker(batch)
        if marker is None:
            return False
        producer_id = header[PRODUCER_ID]
        if not marker.aborted:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen
        aborted = self._aborted.pop(producer_id, None)
        was_seen = producer_id in self._seen
        self._seen.discard(producer_id)
        if aborted is not None and was_seen:
            self.still_needed.append(aborted)
            return False
        return True

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[-1].first_offset <= offset:
            aborted = coming.pop()
            known = self._aborted.get(aborted.producer_id)
            if known is None or known.last_offset < aborted.first_offset:
                self._aborted[aborted.producer_id] = aborted
                self._seen.discard(aborted.producer_id)
