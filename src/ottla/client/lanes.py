"""The way of a partition's batches out of a producer: waiting, on the wire, numbered until known.

Owns the order of one partition and the numbers of an idempotent producer in it. A batch gets its
sequence when it is first sent and keeps it until its outcome is known; one that must be sent again
goes back to the front. While any batch waits to be sent again, only the oldest unresolved one is
sent, so that nothing can overtake it. And never are more than five sent from the oldest unresolved
one on: brokers remember five batches of a producer, and would not know an older one again.

When the numbers cannot go on (a gap, or an outcome that nobody will ever know), a new epoch begins,
but only when no batch that would be sent again in it can be in the log already: those whose answer
was lost are asked about first, by sending them once more under their old numbers.

Never sends, and knows no time but deadlines that are given to it.
"""

from __future__ import annotations

from collections import deque

from ottla.base.errors import check
from ottla.client.producer_batch import NO_SEQUENCE, ProducerBatch
from ottla.records.compression import NONE

_SEQUENCE_MASK = 0x7FFFFFFF
_SEQUENCE_HALF = 1 << 30
_REMEMBERED_BATCHES = 5


class Lane:
    __slots__ = (
        "acked_sequence",
        "epoch",
        "needs_new_epoch",
        "next_ordinal",
        "next_sequence",
        "not_before_ms",
        "numbered",
        "on_wire",
        "open",
        "order",
        "partition",
        "producer_id",
        "queued_at",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.order: deque[ProducerBatch] = deque()  # all that are not done, and done ones behind
        self.waiting: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None  # the last of those that wait, while it takes more
        self.numbered: deque[ProducerBatch] = deque()
        self.on_wire = 0
        self.not_before_ms = 0.0
        self.queued_at: int | None = None  # the node in whose queue this lane stands
        self.producer_id = -1
        self.epoch = -1
        self.next_sequence = 0
        self.next_ordinal = 0
        self.acked_sequence = -1
        self.needs_new_epoch = False

    # -------------------------------------------------------------------------------- sending

    def first_to_send(self, *, one_at_a_time: bool) -> ProducerBatch | None:
        """The batch that may go out next; None if there is none or it has to wait for another."""
        if not self.waiting:
            return None
        batch = self.waiting[0]
        if self.on_wire and (one_at_a_time or self._is_first_of_epoch()):
            return None
        if self.needs_new_epoch:
            return None if self.on_wire else self._first_in_doubt()
        if batch.sequence == NO_SEQUENCE:
            return None if self._is_far_ahead() else batch
        return batch if self.numbered[0] is batch else None

    def _is_far_ahead(self) -> bool:
        return bool(self.numbered) and (
            self.next_ordinal - self.numbered[0].ordinal >= _REMEMBERED_BATCHES
        )

    def _is_first_of_epoch(self) -> bool:
        """A broker that knows nothing of a producer takes whatever sequence comes first: until it
        has acknowledged one, a second batch could overtake a first that was refused."""
        return self.acked_sequence < 0 and bool(self.numbered)

    def _first_in_doubt(self) -> ProducerBatch | None:
        return next((batch for batch in self.waiting if batch.may_be_stored), None)

    def number(self, batch: ProducerBatch, producer_id: int, epoch: int) -> bool:
        """Gives a batch its place in the sequence; False while an older epoch must end first."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            if self.numbered:
                return False
            self._begin_epoch(producer_id, epoch)
        batch.producer_id = producer_id
        batch.epoch = epoch
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.count) & _SEQUENCE_MASK
        batch.ordinal = self.next_ordinal
        self.next_ordinal += 1
        self.numbered.append(batch)
        return True

    def _begin_epoch(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = 0
        self.acked_sequence = -1
        self.needs_new_epoch = False

    def take(self, batch: ProducerBatch) -> None:
        """It goes onto the wire."""
        if self.waiting[0] is batch:
            self.waiting.popleft()
        else:
            self.waiting.remove(batch)
        if self.open is batch:
            self.open = None
        batch.on_wire = True
        batch.attempts += 1
        self.on_wire += 1

    # -------------------------------------------------------------------------------- answers

    def returned(self, batch: ProducerBatch) -> None:
        """Its answer is there, or will never come."""
        batch.on_wire = False
        self.on_wire -= 1

    def acknowledge(self, batch: ProducerBatch) -> None:
        if batch.sequence != NO_SEQUENCE:
            self.numbered.remove(batch)
            self.note_arrival(batch)

    def note_arrival(self, batch: ProducerBatch) -> None:
        """It is in the log, and so is all before it that ever will be."""
        if batch.epoch == self.epoch:
            last, acked = batch.last_sequence, self.acked_sequence
            if acked < 0 or (last - acked) & _SEQUENCE_MASK < _SEQUENCE_HALF:
                self.acked_sequence = last

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Whether the outcome of everything before it is known."""
        return bool(self.numbered) and self.numbered[0] is batch

    def put_back(self, batch: ProducerBatch) -> None:
        """To be sent again, before everything that came after it."""
        place = 0
        for waiting in self.waiting:
            if waiting.number > batch.number:
                break
            place += 1
        self.waiting.insert(place, batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch that was split: its parts stand where it stood, with its numbers."""
        place = self.order.index(batch)
        del self.order[place]
        for index, part in enumerate(parts):
            self.order.insert(place + index, part)
        if batch.sequence != NO_SEQUENCE:
            place = self.numbered.index(batch)
            del self.numbered[place]
            for index, part in enumerate(parts):
                self.numbered.insert(place + index, part)
        for part in parts:
            self.put_back(part)

    def give_up(self, batch: ProducerBatch) -> None:
        """It failed for good: it leaves a gap in the numbers, unless it was never numbered."""
        if batch in self.waiting:
            self.waiting.remove(batch)
        if self.open is batch:
            self.open = None
        if batch.sequence != NO_SEQUENCE:
            self.numbered.remove(batch)
            self.needs_new_epoch = True

    def take_done(self) -> list[ProducerBatch]:
        """Those of which it can be told now what became of them: nothing before them is open."""
        done = []
        while self.order and self.order[0].done:
            done.append(self.order.popleft())
        return done

    # --------------------------------------------------------------------------------- epochs

    def settle_gap(self) -> bool:
        """Whether a new epoch is due now: a gap is left, and no outcome is open any more."""
        if not self.needs_new_epoch:
            return False
        if not self.numbered and self.next_sequence == (self.acked_sequence + 1) & _SEQUENCE_MASK:
            # What was given up had arrived after all: a later batch was acknowledged.
            self.needs_new_epoch = False
            return False
        return not self.on_wire and not any(batch.may_be_stored for batch in self.numbered)

    def begin_epoch(self, producer_id: int, epoch: int) -> None:
        """Numbers anew whatever was refused; all of it waits to be sent again."""
        check(self.on_wire == 0, "no batch of the old epoch is on its way")
        refused, self.numbered = self.numbered, deque()
        self._begin_epoch(producer_id, epoch)
        for batch in refused:
            batch.sequence = NO_SEQUENCE
            self.number(batch, producer_id, epoch)
            if batch.encoded is not None:  # else it is a part of what was split, not yet packed
                batch.encode(NONE, None)
