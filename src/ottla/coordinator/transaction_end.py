"""EndTxn: whether a transaction may be committed or aborted, and by whom.

Pure: from what is held and what is asked to one `Step`. Anybody who has the id, the producer id and
the epoch may end it, also after it was prepared (KIP-939); asked again, it is answered again, and
the opposite is refused.

An end may ask that the id be forgotten. Then its markers have the highest epoch there is, which no
producer ever has, so that partitions forget the producer too; and what would complete the
transaction is a tombstone instead.
"""

from __future__ import annotations

from ottla.coordinator.transaction_asks import (
    EPOCH_LAST,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    NEEDS_ID,
    EndAsked,
    MarkerTask,
    Step,
    TransactionConfig,
    answer_of,
    refusal,
)
from ottla.coordinator.transaction_records import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED,
    DECIDED,
    EMPTY,
    NO_EPOCH,
    NO_ID,
    NO_PARTITIONS,
    NO_TIMEOUT,
    NOT_TAKEN,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
)
from ottla.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
)


def end_step(held: Transaction | None, asked: EndAsked, fresh_id: int | None, now_ms: int) -> Step:
    if held is None:
        return refusal(INVALID_PRODUCER_ID_MAPPING)
    if asked.client_version >= EPOCH_PER_TRANSACTION:
        return _end_with_bump(held, asked, fresh_id, now_ms)
    code = _end_refusal(held, asked)
    if held.state == ONGOING and code == NONE:
        # Whichever way it began: without a bump, its markers have the epoch of its records.
        ending = _ending(held)._replace(client_version=asked.client_version)
        return Step(answer_of(NONE, ending), _decided(ending, asked, now_ms))
    return Step(answer_of(code, held))


def _end_with_bump(held: Transaction, asked: EndAsked, fresh_id: int | None, now_ms: int) -> Step:
    is_repeated = _is_repeated_end(held, asked)
    client_id, client_epoch = held.client()
    if client_id != asked.producer_id and not is_repeated:
        return refusal(INVALID_PRODUCER_ID_MAPPING)
    if client_epoch != asked.producer_epoch and not is_repeated:
        return refusal(PRODUCER_FENCED)
    if held.state in DECIDED:
        is_opposite = is_repeated and asked.committed != (held.state == PREPARE_COMMIT)
        return refusal(INVALID_TXN_STATE if is_opposite else CONCURRENT_TRANSACTIONS)
    if is_repeated:
        is_same = asked.committed == (held.state == COMPLETE_COMMIT) and held.state in COMPLETED
        if is_same and held.producer_epoch == EPOCH_MAX and not asked.forgets:
            return _another_id(held, fresh_id, now_ms)
        return Step(answer_of(NONE if is_same else INVALID_TXN_STATE, held))
    if held.state != ONGOING:
        if asked.committed:
            return refusal(INVALID_TXN_STATE)
        # A transaction that never wrote anything may be aborted: nobody knew of it but its
        # producer, whose epoch moves on all the same.
        held = held._replace(partitions=NO_PARTITIONS, started_ms=now_ms)
    ending = _ending(held)._replace(client_version=asked.client_version)
    bumped = _bumped(ending, fresh_id)
    if bumped is None:
        return NEEDS_ID
    answer = answer_of(NONE, bumped)
    if bumped.next_producer_id != NO_ID and bumped.next_producer_epoch == NO_EPOCH:
        answer.update(producer_id=bumped.next_producer_id, producer_epoch=0)
    return Step(answer, _decided(bumped, asked, now_ms))


def _another_id(held: Transaction, fresh_id: int | None, now_ms: int) -> Step:
    """For whom a time-out at the last epoch has aborted its transaction already: the fence took the
    highest epoch, which is no producer's."""
    if fresh_id is None:
        return NEEDS_ID
    begun = held._replace(
        producer_id=fresh_id,
        producer_epoch=0,
        previous_producer_id=held.producer_id,
        last_epoch=EPOCH_LAST,
        updated_ms=now_ms,
    )
    return Step(answer_of(NONE, begun), begun)


def _ending(held: Transaction) -> Transaction:
    """With the id and epoch for its markers, above those that any of its writers had."""
    if not held.is_prepared():
        return held
    if held.next_producer_id == held.producer_id:
        return held._replace(
            producer_epoch=held.next_producer_epoch,
            next_producer_id=NO_ID,
            next_producer_epoch=NO_EPOCH,
        )
    return held._replace(producer_epoch=EPOCH_MAX)


def _bumped(ending: Transaction, fresh_id: int | None) -> Transaction | None:
    """With the next epoch for its client; None if that takes an id that was not given."""
    if ending.next_producer_epoch != NO_EPOCH:
        # Its client has another id already, and the bump is that one's.
        if ending.next_producer_epoch < EPOCH_LAST:
            return ending._replace(
                next_producer_epoch=ending.next_producer_epoch + 1,
                last_epoch=ending.next_producer_epoch,
            )
        if fresh_id is None:
            return None
        return ending._replace(
            previous_producer_id=ending.next_producer_id,
            next_producer_id=fresh_id,
            next_producer_epoch=0,
        )
    next_id = NO_ID
    if ending.producer_epoch >= EPOCH_LAST:
        if fresh_id is None:
            return None
        next_id = fresh_id
    return ending._replace(
        # A fence may have taken the last epoch there is; the next one is of another id anyway.
        producer_epoch=min(ending.producer_epoch + 1, EPOCH_MAX),
        last_epoch=ending.producer_epoch,
        next_producer_id=next_id,
    )


def _decided(ending: Transaction, asked: EndAsked, now_ms: int) -> Transaction:
    return ending._replace(
        state=PREPARE_COMMIT if asked.committed else PREPARE_ABORT,
        updated_ms=now_ms,
        forgets=asked.forgets,
    )


def _end_refusal(held: Transaction, asked: EndAsked) -> int:
    """What a client without an epoch per transaction is owed; NONE is also for a repeated end."""
    client_id, client_epoch = held.client()
    if client_id != asked.producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if client_epoch != asked.producer_epoch:
        return PRODUCER_FENCED
    if held.state == EMPTY:
        return INVALID_TXN_STATE
    if held.state == ONGOING:
        return NONE
    if asked.committed != (held.state in (PREPARE_COMMIT, COMPLETE_COMMIT)):
        return INVALID_TXN_STATE
    return CONCURRENT_TRANSACTIONS if held.state in DECIDED else NONE


def _is_repeated_end(held: Transaction, asked: EndAsked) -> bool:
    """Whether this end was decided already: the epoch is the one before the bump."""
    if held.client_version < EPOCH_PER_TRANSACTION or held.state not in (*DECIDED, *COMPLETED):
        return False
    client_id, client_epoch = held.client()
    if asked.producer_id == client_id:
        return asked.producer_epoch + 1 == client_epoch
    return (
        asked.producer_id == held.previous_producer_id
        and asked.producer_epoch == EPOCH_LAST
        and client_epoch == 0
    )


# -- the second phase -------------------------------------------------------------------------


def marker_task(transactional_id: str, decided: Transaction, *, is_repeated: bool) -> MarkerTask:
    return MarkerTask(
        transactional_id,
        decided.producer_id,
        EPOCH_MAX if decided.forgets else decided.producer_epoch,
        decided.state == PREPARE_COMMIT,
        decided.client_version,
        decided.partitions,
        is_repeated,
    )


def completed(decided: Transaction, config: TransactionConfig, now_ms: int) -> Transaction:
    """After the last marker. Not for one that is to be forgotten."""
    done = decided._replace(
        state=COMPLETE_COMMIT if decided.state == PREPARE_COMMIT else COMPLETE_ABORT,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
    )
    if decided.timeout_before_ms != NOT_TAKEN:
        # Preparing took the time-out of one transaction, not of all that follow.
        done = done._replace(timeout_ms=decided.timeout_before_ms, timeout_before_ms=NOT_TAKEN)
    elif decided.timeout_ms == NO_TIMEOUT and not config.two_phase_commit:
        done = done._replace(timeout_ms=config.timeout_ms_max)  # it was allowed before
    if decided.next_producer_id == NO_ID:
        return done
    if decided.next_producer_epoch == NO_EPOCH:
        return done._replace(
            producer_id=decided.next_producer_id,
            producer_epoch=0,
            previous_producer_id=decided.producer_id,
            next_producer_id=NO_ID,
            last_epoch=EPOCH_LAST,
        )
    return done._replace(
        producer_id=decided.next_producer_id,
        producer_epoch=decided.next_producer_epoch,
        next_producer_id=NO_ID,
        next_producer_epoch=NO_EPOCH,
    )
