"""The transactions of one partition of `__transaction_state`: who may do what, and what follows.

Owns the states of features 6.5. Every step is one record; only `replay` changes what is known. The
decision to commit or abort (a Prepare record) is kept before any marker is written: `begin_markers`
is called when the record is committed, and `complete` when every partition has its marker. A shard
that is loaded with a decision and no completion begins its markers again (`resume_decided`).

Two kinds of client (KIP-890). Up to EndTxn v4 the epoch stays from one transaction to the next and
the client adds its partitions itself. From v5 on (`client_version` 2) each end bumps the epoch, so
that a request of an earlier transaction is known by it; partitions are added by the broker that is
asked to append. Whoever takes the id over, or runs out of time, is fenced by a bump in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock
from ottla.coordinator.shard import Fields, Outcome, Record
from ottla.coordinator.transaction_records import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    NO_EPOCH,
    NO_ID,
    NO_PARTITIONS,
    NO_TIMESTAMP,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    read_key,
    read_value,
    tombstone,
    transaction_record,
)
from ottla.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

EPOCH_MAX = 32767
# The last epoch that a client ever has; the one above is for the marker that ends it.
EPOCH_LAST = EPOCH_MAX - 1

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
COMPLETED = (COMPLETE_COMMIT, COMPLETE_ABORT)
EPOCH_PER_TRANSACTION = 2

# So many ids are looked at in one turn of the loop when old ones are forgotten: about 5 ms.
SWEEP_IDS_MAX = 10_000

FRESH_ID_NEEDED: Fields = {}
"""The answer of a decision that has to be asked again, with a producer id nobody has had."""


class TransactionConfig(NamedTuple):
    timeout_ms_max: int = 900_000
    id_expiration_ms: int = 604_800_000


class MarkerTask(NamedTuple):
    """A decision whose markers are to be written. `is_repeated`: some of them may be there."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int
    partitions: frozenset[TopicPartition]
    is_repeated: bool


class InitAsked(NamedTuple):
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_ID
    producer_epoch: int = NO_EPOCH


class EndAsked(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int


class TransactionShard:
    def __init__(
        self,
        *,
        config: TransactionConfig,
        clock: Clock,
        begin_markers: Callable[[MarkerTask], None],
    ) -> None:
        self.config = config
        self.transactions: dict[str, Transaction] = {}
        self._clock = clock
        self._begin_markers = begin_markers
        # Those that can run out of time: few, of possibly very many ids.
        self._ongoing: dict[str, None] = {}
        self._decided: dict[str, None] = {}
        self._marking: set[str] = set()
        self._to_sweep: list[str] = []

    # -- InitProducerId ---------------------------------------------------------------------

    def init_producer_id(self, asked: InitAsked, fresh_id: int | None) -> Outcome[Fields]:
        if not 0 < asked.timeout_ms <= self.config.timeout_ms_max:
            return _refused(INVALID_TRANSACTION_TIMEOUT)
        held = self.transactions.get(asked.transactional_id)
        if held is None:
            return self._begin_id(asked, fresh_id)
        if asked.producer_id != NO_ID and not _may_name(held, asked):
            return _refused(PRODUCER_FENCED)
        if held.state in PREPARED:
            return _refused(CONCURRENT_TRANSACTIONS)
        if held.state == ONGOING:
            return self._fence(asked.transactional_id, held, _answer(CONCURRENT_TRANSACTIONS))
        if held.producer_epoch >= EPOCH_LAST and asked.producer_epoch in (
            NO_EPOCH,
            held.producer_epoch,
        ):
            return self._rotate_id(asked, held, fresh_id)
        return self._next_epoch(asked, held)

    def _begin_id(self, asked: InitAsked, fresh_id: int | None) -> Outcome[Fields]:
        if fresh_id is None:
            return Outcome((), FRESH_ID_NEEDED)
        now_ms = self._clock.wall_ms()
        begun = Transaction(
            fresh_id, 0, asked.timeout_ms, EMPTY, NO_PARTITIONS, now_ms, NO_TIMESTAMP
        )
        return self._to(asked.transactional_id, begun, _answer(NONE, begun))

    def _rotate_id(
        self, asked: InitAsked, held: Transaction, fresh_id: int | None
    ) -> Outcome[Fields]:
        """No epoch is left: the next one is epoch 0 of another producer id."""
        if fresh_id is None:
            return Outcome((), FRESH_ID_NEEDED)
        rotated = self._emptied(asked, held)._replace(
            producer_id=fresh_id,
            previous_producer_id=held.producer_id,
            producer_epoch=0,
            last_epoch=NO_EPOCH if asked.producer_id == NO_ID else held.producer_epoch,
        )
        return self._to(asked.transactional_id, rotated, _answer(NONE, rotated))

    def _next_epoch(self, asked: InitAsked, held: Transaction) -> Outcome[Fields]:
        epoch, last_epoch = held.producer_epoch + 1, held.producer_epoch
        if asked.producer_id == NO_ID:
            last_epoch = NO_EPOCH
        elif asked.producer_epoch == held.last_epoch:
            # The answer to the same request was lost: what was given stands.
            epoch, last_epoch = held.producer_epoch, held.last_epoch
        elif asked.producer_epoch != held.producer_epoch:
            return _refused(PRODUCER_FENCED)
        begun = self._emptied(asked, held)._replace(producer_epoch=epoch, last_epoch=last_epoch)
        return self._to(asked.transactional_id, begun, _answer(NONE, begun))

    def _emptied(self, asked: InitAsked, held: Transaction) -> Transaction:
        return held._replace(
            state=EMPTY,
            timeout_ms=asked.timeout_ms,
            partitions=NO_PARTITIONS,
            updated_ms=self._clock.wall_ms(),
            started_ms=NO_TIMESTAMP,
            next_producer_id=NO_ID,
        )

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

    # -- EndTxn -----------------------------------------------------------------------------

    def end_transaction(self, asked: EndAsked, fresh_id: int | None) -> Outcome[Fields]:
        held = self.transactions.get(asked.transactional_id)
        if held is None:
            return _refused(INVALID_PRODUCER_ID_MAPPING)
        if asked.client_version >= EPOCH_PER_TRANSACTION:
            return self._end_with_bump(asked, held, fresh_id)
        code = _end_refusal(held, asked)
        if held.state == ONGOING and code == NONE:
            return self._decide(asked.transactional_id, held, asked.committed, _answer(NONE, held))
        return Outcome((), _answer(code, held))

    def _end_with_bump(
        self, asked: EndAsked, held: Transaction, fresh_id: int | None
    ) -> Outcome[Fields]:
        is_repeated = _is_repeated_end(held, asked)
        if held.producer_id != asked.producer_id and not is_repeated:
            return _refused(INVALID_PRODUCER_ID_MAPPING)
        if held.producer_epoch != asked.producer_epoch and not is_repeated:
            return _refused(PRODUCER_FENCED)
        if held.state in PREPARED:
            is_same = is_repeated and asked.committed != (held.state == PREPARE_COMMIT)
            return _refused(INVALID_TXN_STATE if is_same else CONCURRENT_TRANSACTIONS)
        if is_repeated:
            is_same = asked.committed == (held.state == COMPLETE_COMMIT) and held.state in COMPLETED
            return Outcome((), _answer(NONE if is_same else INVALID_TXN_STATE, held))
        if held.state != ONGOING:
            if asked.committed:
                return _refused(INVALID_TXN_STATE)
            # A transaction that never wrote anything may be aborted: nobody knew of it but its
            # producer, whose epoch moves on all the same.
            now_ms = self._clock.wall_ms()
            held = held._replace(partitions=NO_PARTITIONS, started_ms=now_ms)
        next_id = NO_ID
        if held.producer_epoch >= EPOCH_LAST:
            if fresh_id is None:
                return Outcome((), FRESH_ID_NEEDED)
            next_id = fresh_id
        bumped = held._replace(
            producer_epoch=held.producer_epoch + 1,
            last_epoch=held.producer_epoch,
            next_producer_id=next_id,
            client_version=asked.client_version,
        )
        answer = _answer(NONE, bumped)
        if next_id != NO_ID:
            answer.update(producer_id=next_id, producer_epoch=0)
        return self._decide(asked.transactional_id, bumped, asked.committed, answer)

    # -- the two phases ---------------------------------------------------------------------

    def _fence(self, transactional_id: str, held: Transaction, answer: Fields) -> Outcome[Fields]:
        """Aborts an open transaction under an epoch that its producer does not have.

        The bump is not one of the producer's own, so its late EndTxn must not pass for a repeated
        one: without the client's version, it is refused by its epoch.
        """
        epoch = min(held.producer_epoch + 1, EPOCH_MAX)
        fenced = held._replace(producer_epoch=epoch, last_epoch=NO_EPOCH, client_version=0)
        return self._decide(transactional_id, fenced, False, answer)

    def _decide(
        self, transactional_id: str, ending: Transaction, committed: bool, answer: Fields
    ) -> Outcome[Fields]:
        decided = ending._replace(
            state=PREPARE_COMMIT if committed else PREPARE_ABORT,
            updated_ms=self._clock.wall_ms(),
        )

        def on_settled(code: int) -> None:
            # If it is not known yet whether the record is kept, `resume_decided` finds out.
            if code == NONE:
                self._begin(_task(transactional_id, decided, is_repeated=False))

        return Outcome([transaction_record(transactional_id, decided)], answer, on_settled)

    def resume_decided(self) -> Outcome[None]:
        """Begins the markers of every decision that nobody works on, once it is committed."""
        decided = [
            _task(transactional_id, held, is_repeated=True)
            for transactional_id, held in self._prepared()
            if transactional_id not in self._marking
        ]

        def on_settled(code: int) -> None:
            if code == NONE:
                for task in decided:
                    if task.transactional_id not in self._marking:
                        self._begin(task)

        return Outcome((), None, on_settled if decided else None)

    def _prepared(self) -> Iterator[tuple[str, Transaction]]:
        for transactional_id in self._decided:
            yield transactional_id, self.transactions[transactional_id]

    def _begin(self, task: MarkerTask) -> None:
        self._marking.add(task.transactional_id)
        self._begin_markers(task)

    def complete(self, task: MarkerTask) -> Outcome[None]:
        """Every partition has its marker."""
        self._marking.discard(task.transactional_id)
        held = self.transactions.get(task.transactional_id)
        if (
            held is None
            or held.state not in PREPARED
            or (held.producer_id, held.producer_epoch) != (task.producer_id, task.producer_epoch)
        ):
            return Outcome((), None)
        completed = held._replace(
            state=COMPLETE_COMMIT if held.state == PREPARE_COMMIT else COMPLETE_ABORT,
            partitions=NO_PARTITIONS,
            updated_ms=self._clock.wall_ms(),
        )
        if held.next_producer_id != NO_ID:
            completed = completed._replace(
                producer_id=held.next_producer_id,
                producer_epoch=0,
                previous_producer_id=held.producer_id,
                next_producer_id=NO_ID,
                last_epoch=EPOCH_LAST,
            )
        return Outcome([transaction_record(task.transactional_id, completed)], None)

    # -- time -------------------------------------------------------------------------------

    def abort_timed_out(self, transactional_id: str) -> Outcome[Fields]:
        held = self.transactions.get(transactional_id)
        if held is None or not self._is_timed_out(held):
            return _refused(INVALID_TXN_STATE)
        return self._fence(transactional_id, held, _answer(NONE))

    def timed_out(self) -> list[str]:
        return [one for one in self._ongoing if self._is_timed_out(self.transactions[one])]

    def _is_timed_out(self, held: Transaction) -> bool:
        return held.state == ONGOING and self._clock.wall_ms() > held.started_ms + held.timeout_ms

    def sweep(self) -> Outcome[bool]:
        """Forgets ids that nobody used for too long; True if there are more to look at."""
        if not self._to_sweep:
            self._to_sweep = list(self.transactions)
        oldest_ms = self._clock.wall_ms() - self.config.id_expiration_ms
        records = []
        for _ in range(min(len(self._to_sweep), SWEEP_IDS_MAX)):
            transactional_id = self._to_sweep.pop()
            held = self.transactions.get(transactional_id)
            if held is None or held.state in (ONGOING, *PREPARED):
                continue
            if held.updated_ms <= oldest_ms:
                records.append(tombstone(transactional_id))
        return Outcome(records, bool(self._to_sweep), is_atomic=False)

    # -- state ------------------------------------------------------------------------------

    def _to(self, transactional_id: str, to: Transaction, answer: Fields) -> Outcome[Fields]:
        return Outcome([transaction_record(transactional_id, to)], answer)

    def replay(self, record: Record, producer_id: int = NO_ID) -> None:
        if record.fact is not None:
            transactional_id, transaction = record.fact
        else:
            transactional_id = read_key(record.key)
            transaction = None if record.value is None else read_value(record.value)
        self._ongoing.pop(transactional_id, None)
        self._decided.pop(transactional_id, None)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction
        if transaction.state == ONGOING:
            self._ongoing[transactional_id] = None
        elif transaction.state in PREPARED:
            self._decided[transactional_id] = None

    def unload(self) -> None:
        self.transactions.clear()
        self._ongoing.clear()
        self._decided.clear()
        self._marking.clear()

    def __iter__(self) -> Iterator[tuple[str, Transaction]]:
        yield from self.transactions.items()


def _task(transactional_id: str, decided: Transaction, *, is_repeated: bool) -> MarkerTask:
    return MarkerTask(
        transactional_id,
        decided.producer_id,
        decided.producer_epoch,
        decided.state == PREPARE_COMMIT,
        decided.client_version,
        decided.partitions,
        is_repeated,
    )


def _may_name(held: Transaction, asked: InitAsked) -> bool:
    """Whether the id that a producer says it has is one that it may have (KIP-360)."""
    if asked.producer_id == held.producer_id:
        return True
    return asked.producer_id == held.previous_producer_id and asked.producer_epoch >= EPOCH_LAST


def _owner_refusal(held: Transaction | None, producer_id: int, producer_epoch: int) -> int:
    if held is None or held.producer_id != producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if held.producer_epoch != producer_epoch:
        return PRODUCER_FENCED
    return CONCURRENT_TRANSACTIONS if held.state in PREPARED else NONE


def _end_refusal(held: Transaction, asked: EndAsked) -> int:
    """What a client without an epoch per transaction is owed; NONE is also for a repeated end."""
    if held.producer_id != asked.producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if held.producer_epoch != asked.producer_epoch:
        return PRODUCER_FENCED
    if held.state == EMPTY:
        return INVALID_TXN_STATE
    if held.state == ONGOING:
        return NONE
    if asked.committed != (held.state in (PREPARE_COMMIT, COMPLETE_COMMIT)):
        return INVALID_TXN_STATE
    return CONCURRENT_TRANSACTIONS if held.state in PREPARED else NONE


def _is_repeated_end(held: Transaction, asked: EndAsked) -> bool:
    """Whether this end was decided already: the epoch is the one before the bump."""
    if held.client_version < EPOCH_PER_TRANSACTION or held.state not in (*PREPARED, *COMPLETED):
        return False
    if asked.producer_id == held.producer_id:
        return asked.producer_epoch + 1 == held.producer_epoch
    return (
        asked.producer_id == held.previous_producer_id
        and asked.producer_epoch == EPOCH_LAST
        and held.producer_epoch == 0
    )


def _answer(code: int, transaction: Transaction | None = None) -> Fields:
    if code != NONE or transaction is None:
        return {"error_code": code, "producer_id": NO_ID, "producer_epoch": NO_EPOCH}
    return {
        "error_code": code,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
    }


def _refused(code: int) -> Outcome[Fields]:
    return Outcome((), _answer(code))
