"""The transactions of one partition of `__transaction_state`: who may do what, and what follows.

Owns the states of features 6.5. Every step is one record; only `replay` changes what is known. The
decision to commit or abort (a Prepare record) is kept before any marker is written: `begin_markers`
is called when the record is committed, and `complete` when every partition has its marker. A shard
that is loaded with a decision and no completion begins its markers again (`resume_decided`).

Two kinds of client (KIP-890). Up to EndTxn v4 the epoch stays from one transaction to the next and
the client adds its partitions itself. From v5 on (`client_version` 2) each end bumps the epoch, so
that a request of an earlier transaction is known by it; partitions are added by the broker that is
asked to append. Whoever takes the id over, or runs out of time, is fenced by a bump in either case.

A transaction that is kept for an outside coordinator (KIP-939) is prepared: once that is committed,
`revoke_writers` makes every partition ask again before it appends for it, and here nothing is
admitted any more. Only then is the answer given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock
from ottla.coordinator.shard import Fields, Outcome, Record
from ottla.coordinator.transaction_asks import (
    EPOCH_MAX,
    EndAsked,
    InitAsked,
    MarkerTask,
    Step,
    TransactionConfig,
    answer_of,
)
from ottla.coordinator.transaction_end import completed, end_step, marker_task
from ottla.coordinator.transaction_init import fence_step, init_step
from ottla.coordinator.transaction_records import (
    COMPLETED,
    DECIDED,
    NO_ID,
    NO_PARTITIONS,
    NO_TIMEOUT,
    ONGOING,
    Transaction,
    read_key,
    read_value,
    tombstone,
    transaction_record,
)
from ottla.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

# So many ids are looked at in one turn of the loop when old ones are forgotten: about 5 ms.
SWEEP_IDS_MAX = 10_000

Revoke = Callable[[frozenset[TopicPartition], int], Deferred[int]]
"""Makes partitions ask again before they append for a producer id; an error code when done."""


class Deadline(NamedTuple):
    """When an open transaction is out of time, by a clock that nobody sets: what the records say of
    its start is the time of day, which may jump. Only what passed before this coordinator had it is
    taken from there, and at most all of the time-out."""

    started_ms: int
    timeout_ms: int
    at_ms: int

    @classmethod
    def of(cls, held: Transaction, clock: Clock) -> Deadline:
        passed_ms = min(max(clock.wall_ms() - held.started_ms, 0), held.timeout_ms)
        at_ms = clock.monotonic_ms() + held.timeout_ms - passed_ms
        return cls(held.started_ms, held.timeout_ms, at_ms)

    def is_of(self, held: Transaction) -> bool:
        return (self.started_ms, self.timeout_ms) == (held.started_ms, held.timeout_ms)


class TransactionShard:
    def __init__(
        self,
        *,
        config: TransactionConfig,
        clock: Clock,
        begin_markers: Callable[[MarkerTask], None],
        revoke_writers: Revoke,
    ) -> None:
        self.config = config
        self.transactions: dict[str, Transaction] = {}
        self._clock = clock
        self._begin_markers = begin_markers
        self._revoke_writers = revoke_writers
        # Those that can run out of time: few, of possibly very many ids.
        self._ongoing: dict[str, Deadline] = {}
        self._decided: dict[str, None] = {}
        self._marking: set[str] = set()
        self._to_sweep: list[str] = []

    # -- InitProducerId, EndTxn -------------------------------------------------------------

    def init_producer_id(self, asked: InitAsked, fresh_id: int | None) -> Outcome[Fields]:
        held = self.transactions.get(asked.transactional_id)
        step = init_step(held, asked, self.config, fresh_id, self._clock.wall_ms())
        if "ongoing_txn_producer_id" in step.answer:
            return self._prepare(asked.transactional_id, held, step)
        return self._outcome(asked.transactional_id, step)

    def end_transaction(self, asked: EndAsked, fresh_id: int | None) -> Outcome[Fields]:
        transactional_id = asked.transactional_id
        held = self.transactions.get(transactional_id)
        step = end_step(held, asked, fresh_id, self._clock.wall_ms())
        is_over = held is not None and held.state in COMPLETED and step.to is None
        if is_over and asked.forgets and step.answer.get("error_code") == NONE:
            return Outcome([tombstone(transactional_id)], step.answer)
        return self._outcome(transactional_id, step)

    def _prepare(
        self, transactional_id: str, held: Transaction | None, step: Step
    ) -> Outcome[Fields]:
        """The answer waits until no partition appends for the transaction unasked."""
        prepared = step.to or held
        assert prepared is not None  # there is a transaction to keep
        answer: Deferred[Fields] = Deferred()

        def revoked(done: Deferred[int]) -> None:
            code = done.result()
            if code == NONE:
                answer.resolve(step.answer)
            else:
                answer.fail(ProtocolError(code))

        def on_settled(code: int) -> None:
            if code != NONE:
                answer.fail(ProtocolError(code))
            else:
                self._revoke_writers(prepared.partitions, prepared.producer_id).when_done(revoked)

        records = [] if step.to is None else [transaction_record(transactional_id, step.to)]
        return Outcome(records, answer, on_settled)

    def _outcome(self, transactional_id: str, step: Step) -> Outcome[Fields]:
        to = step.to
        if to is None:
            return Outcome((), step.answer)
        record = transaction_record(transactional_id, to)
        if to.state not in DECIDED:
            return Outcome([record], step.answer)

        def on_settled(code: int) -> None:
            # If it is not known yet whether the record is kept, `resume_decided` finds out.
            if code == NONE:
                self._begin(marker_task(transactional_id, to, is_repeated=False))

        return Outcome([record], step.answer, on_settled)

    # -- AddPartitionsToTxn, AddOffsetsToTxn, Produce ---------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> Outcome[int]:
        held = self.transactions.get(transactional_id)
        code = _owner_refusal(held, producer_id, producer_epoch)
        if held is None or code != NONE:
            return Outcome((), code)
        now_ms = self._clock.wall_ms()
        if held.state == ONGOING:
            together = held.partitions.union(partitions)
            if len(together) == len(held.partitions):
                return Outcome((), NONE)
            grown = held._replace(partitions=together, updated_ms=now_ms)
        else:
            grown = held._replace(
                state=ONGOING,
                partitions=frozenset(partitions),
                updated_ms=now_ms,
                started_ms=now_ms,
                client_version=client_version,
            )
        return Outcome([transaction_record(transactional_id, grown)], NONE)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, int]:
        """Whether each of them is in the transaction that is open now."""
        held = self.transactions.get(transactional_id)
        code = _owner_refusal(held, producer_id, producer_epoch)
        if held is None or code != NONE:
            return dict.fromkeys(partitions, code)
        known = held.partitions if held.state == ONGOING else NO_PARTITIONS
        return {one: NONE if one in known else TRANSACTION_ABORTABLE for one in partitions}

    # -- the two phases ---------------------------------------------------------------------

    def resume_decided(self) -> Outcome[None]:
        """Begins the markers of every decision that nobody works on, once it is committed."""
        waiting = [
            (transactional_id, self.transactions[transactional_id])
            for transactional_id in self._decided
            if transactional_id not in self._marking
        ]

        def on_settled(code: int) -> None:
            for transactional_id, held in waiting if code == NONE else ():
                # Meanwhile it may be under way; or over, and the next one is not committed yet.
                is_held = self.transactions.get(transactional_id) is held
                if is_held and transactional_id not in self._marking:
                    self._begin(marker_task(transactional_id, held, is_repeated=True))

        return Outcome((), None, on_settled if waiting else None)

    def _begin(self, task: MarkerTask) -> None:
        self._marking.add(task.transactional_id)
        self._begin_markers(task)

    def give_up(self, task: MarkerTask) -> Outcome[None]:
        """Nobody works on this decision any more: it is for `resume_decided`."""
        self._marking.discard(task.transactional_id)
        return Outcome((), None)

    def complete(self, task: MarkerTask) -> Outcome[None]:
        """Every partition has its marker."""
        transactional_id = task.transactional_id
        self._marking.discard(transactional_id)
        held = self.transactions.get(transactional_id)
        if held is None or held.state not in DECIDED:
            return Outcome((), None)
        if marker_task(transactional_id, held, is_repeated=task.is_repeated) != task:
            return Outcome((), None)
        if held.forgets:
            return Outcome([tombstone(transactional_id)], None)
        done = completed(held, self.config, self._clock.wall_ms())
        return Outcome([transaction_record(transactional_id, done)], None)

    # -- time -------------------------------------------------------------------------------

    def abort_timed_out(self, transactional_id: str) -> Outcome[Fields]:
        held = self.transactions.get(transactional_id)
        if held is None or not self._is_timed_out(transactional_id, held):
            return Outcome((), answer_of(INVALID_TXN_STATE))
        own_epoch = held.client()[1]
        step = fence_step(held, NONE, self._clock.wall_ms(), own_epoch)
        return self._outcome(transactional_id, step)

    def timed_out(self) -> list[str]:
        return [one for one in self._ongoing if self._is_timed_out(one, self.transactions[one])]

    def _is_timed_out(self, transactional_id: str, held: Transaction) -> bool:
        if held.state != ONGOING or held.timeout_ms == NO_TIMEOUT:
            return False
        return self._clock.monotonic_ms() > self._ongoing[transactional_id].at_ms

    def sweep(self) -> Outcome[bool]:
        """Forgets ids that nobody used for too long; True if there are more to look at."""
        if not self._to_sweep:
            self._to_sweep = list(self.transactions)
        oldest_ms = self._clock.wall_ms() - self.config.id_expiration_ms
        records = []
        for _ in range(min(len(self._to_sweep), SWEEP_IDS_MAX)):
            transactional_id = self._to_sweep.pop()
            held = self.transactions.get(transactional_id)
            if held is None or held.state in (ONGOING, *DECIDED):
                continue
            if held.updated_ms <= oldest_ms:
                records.append(tombstone(transactional_id))
        return Outcome(records, bool(self._to_sweep), is_atomic=False)

    # -- state ------------------------------------------------------------------------------

    def replay(self, record: Record, producer_id: int = NO_ID) -> None:
        if record.fact is not None:
            transactional_id, transaction = record.fact
        else:
            transactional_id = read_key(record.key)
            transaction = None if record.value is None else read_value(record.value)
        deadline = self._ongoing.pop(transactional_id, None)
        self._decided.pop(transactional_id, None)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction
        if transaction.state == ONGOING:
            if deadline is None or not deadline.is_of(transaction):
                deadline = Deadline.of(transaction, self._clock)
            self._ongoing[transactional_id] = deadline
        elif transaction.state in DECIDED:
            self._decided[transactional_id] = None

    def unload(self) -> None:
        self.transactions.clear()
        self._ongoing.clear()
        self._decided.clear()
        self._marking.clear()

    def __iter__(self) -> Iterator[tuple[str, Transaction]]:
        yield from self.transactions.items()


def _owner_refusal(held: Transaction | None, producer_id: int, producer_epoch: int) -> int:
    """Why this producer may not write for the id now, if it may not."""
    if held is None:
        return INVALID_PRODUCER_ID_MAPPING
    if held.is_prepared():
        # Its client may end it; its writers are of before.
        is_client = (producer_id, producer_epoch) == held.client()
        return INVALID_TXN_STATE if is_client else PRODUCER_FENCED
    if held.producer_id != producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if held.producer_epoch != producer_epoch:
        return PRODUCER_FENCED
    if producer_epoch == EPOCH_MAX:
        # It was told to nobody, and no marker could end what it writes: none has a newer epoch.
        return PRODUCER_FENCED
    return CONCURRENT_TRANSACTIONS if held.state in DECIDED else NONE
