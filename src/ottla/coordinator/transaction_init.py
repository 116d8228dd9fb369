"""InitProducerId: who gets a transactional id, with which epoch, and what becomes of what is open.

Pure: from what is held and what is asked to one `Step`. An open transaction is aborted under an
epoch that its producer does not have, unless it is to be kept (KIP-939): then it stays open as it
is, its writers have to go, and the client goes on under an id and epoch of its own, by which it may
commit or abort, and nothing else. With `enable_2pc` it has no time-out from then on.

Two-phase commit has to be allowed, since it lets a client hold back readers for ever. One thing
anybody may do: prepare the transaction that is its own, naming its producer id and epoch. So a
transaction that dies before it is prepared still runs out of time. What was prepared so is decided
by whoever was told of it; any other that is kept is aborted by the next who does not keep it.
"""

from __future__ import annotations

from ottla.coordinator.transaction_asks import (
    EPOCH_LAST,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    NEEDS_ID,
    InitAsked,
    Step,
    TransactionConfig,
    answer_of,
    refusal,
)
from ottla.coordinator.transaction_records import (
    COMPLETED,
    DECIDED,
    EMPTY,
    NO_EPOCH,
    NO_ID,
    NO_PARTITIONS,
    NO_TIMEOUT,
    NO_TIMESTAMP,
    ONGOING,
    PREPARE_ABORT,
    Transaction,
)
from ottla.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    PRODUCER_FENCED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def init_step(
    held: Transaction | None,
    asked: InitAsked,
    config: TransactionConfig,
    fresh_id: int | None,
    now_ms: int,
) -> Step:
    code = _bounds_refusal(asked, config)
    if code != NONE:
        return refusal(code)
    if held is None:
        if asked.keep_prepared and asked.producer_id != NO_ID:
            return refusal(INVALID_PRODUCER_ID_MAPPING)
        return _begin_id(asked, fresh_id, now_ms)
    if not _may_name(held, asked):
        return refusal(PRODUCER_FENCED)
    if held.state in DECIDED:
        return refusal(CONCURRENT_TRANSACTIONS)
    if held.state != ONGOING:
        return _next_epoch(held, asked, config, fresh_id, now_ms)
    if asked.keep_prepared:
        return _keep(held, asked, fresh_id, now_ms)
    if held.is_prepared_by_its_own() and not asked.enable_2pc:
        # It is for whoever prepared it to decide. What knows nothing of that, a request of its own
        # writer that comes late for one, must not.
        return refusal(CONCURRENT_TRANSACTIONS)
    is_named = asked.producer_id != NO_ID
    if is_named and (asked.producer_id, asked.producer_epoch) != held.client():
        return refusal(PRODUCER_FENCED)  # of before, so what is open now is not its own
    # Who aborts its own transaction so (KIP-360) goes on with the epoch of the fence, as in Kafka.
    own_epoch = asked.producer_epoch if is_named else NO_EPOCH
    return fence_step(held, CONCURRENT_TRANSACTIONS, now_ms, own_epoch)


def _bounds_refusal(asked: InitAsked, config: TransactionConfig) -> int:
    if not asked.enable_2pc:
        is_good = 0 < asked.timeout_ms <= config.timeout_ms_max
        return NONE if is_good else INVALID_TRANSACTION_TIMEOUT
    is_own = asked.keep_prepared and asked.producer_id != NO_ID
    is_allowed = config.two_phase_commit or is_own
    return NONE if is_allowed else TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _may_name(held: Transaction, asked: InitAsked) -> bool:
    """Whether the id that a producer says it has is one that it may have (KIP-360)."""
    is_of_before = asked.producer_epoch not in (NO_EPOCH, held.producer_epoch)
    if asked.keep_prepared and is_of_before and held.state in COMPLETED:
        return False  # what it means to keep is over
    if asked.producer_id in (NO_ID, held.producer_id, held.client()[0]):
        return True
    return asked.producer_id == held.previous_producer_id and asked.producer_epoch >= EPOCH_LAST


# -- nothing is open --------------------------------------------------------------------------


def _begin_id(asked: InitAsked, fresh_id: int | None, now_ms: int) -> Step:
    if fresh_id is None:
        return NEEDS_ID
    timeout_ms = NO_TIMEOUT if asked.enable_2pc else asked.timeout_ms
    begun = Transaction(fresh_id, 0, timeout_ms, EMPTY, NO_PARTITIONS, now_ms, NO_TIMESTAMP)
    return Step(answer_of(NONE, begun), begun)


def _next_epoch(
    held: Transaction,
    asked: InitAsked,
    config: TransactionConfig,
    fresh_id: int | None,
    now_ms: int,
) -> Step:
    is_named = asked.producer_id != NO_ID
    timeout_ms = asked.timeout_ms
    if asked.enable_2pc:
        timeout_ms = NO_TIMEOUT if config.two_phase_commit else held.timeout_ms
    emptied = held._replace(
        state=EMPTY,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
        started_ms=NO_TIMESTAMP,
        next_producer_id=NO_ID,
        last_epoch=asked.producer_epoch,
    )
    going_on = [NO_EPOCH, held.producer_epoch]
    if held.producer_epoch == EPOCH_MAX:
        going_on.append(held.last_epoch)  # the fence took the last one
    if held.producer_epoch >= EPOCH_LAST and asked.producer_epoch in going_on:
        # No epoch is left: the next one is epoch 0 of another producer id.
        if fresh_id is None:
            return NEEDS_ID
        begun = emptied._replace(
            producer_id=fresh_id, previous_producer_id=held.producer_id, producer_epoch=0
        )
    elif is_named and asked.producer_epoch == held.last_epoch:
        # The answer to the same request was lost: what was given stands.
        begun = emptied._replace(last_epoch=held.last_epoch)
    elif is_named and asked.producer_epoch != held.producer_epoch:
        return refusal(PRODUCER_FENCED)
    else:
        begun = emptied._replace(producer_epoch=held.producer_epoch + 1)
    return Step(answer_of(NONE, begun), begun)


# -- a transaction is open --------------------------------------------------------------------


def _keep(held: Transaction, asked: InitAsked, fresh_id: int | None, now_ms: int) -> Step:
    named = (asked.producer_id, asked.producer_epoch)
    is_told_again = held.is_prepared() and named in _told_to(held)
    if asked.producer_id != NO_ID and not is_told_again:
        if held.is_prepared() or named != held.client():
            return refusal(PRODUCER_FENCED)
    kept, timeout_ms = held, held.timeout_ms
    if asked.enable_2pc and timeout_ms != NO_TIMEOUT:
        timeout_ms = NO_TIMEOUT
        if asked.producer_id != NO_ID:
            kept = kept._replace(timeout_before_ms=held.timeout_ms)
    if is_told_again:
        kept = kept._replace(timeout_ms=timeout_ms)
    else:
        client_id, client_epoch = held.client()
        if client_epoch >= EPOCH_LAST:
            if fresh_id is None:
                return NEEDS_ID
            kept = kept._replace(previous_producer_id=client_id)
            client_id, client_epoch = fresh_id, -1
        kept = kept._replace(
            next_producer_id=client_id,
            next_producer_epoch=client_epoch + 1,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
        )
    answer = {
        **answer_of(NONE, kept),
        "ongoing_txn_producer_id": kept.producer_id,
        "ongoing_txn_producer_epoch": kept.producer_epoch,
    }
    return Step(answer, None if kept == held else kept)


def _told_to(held: Transaction) -> tuple[tuple[int, int], ...]:
    """Who gets the answer once more that it has had: its client, and who prepared it."""
    own = (held.producer_id, held.producer_epoch)
    first = (held.producer_id, held.producer_epoch + 1)
    if held.producer_epoch >= EPOCH_LAST:
        first = (held.next_producer_id, 0)
    return (held.client(), own) if held.client() == first else (held.client(),)


def fence_step(held: Transaction, code: int, now_ms: int, own_epoch: int = NO_EPOCH) -> Step:
    """Aborts an open transaction under an epoch that its producer does not have.

    `own_epoch` is that of the producer if it may go on with the new one: it asked for this itself,
    or ran out of time and nobody else has the id. It names its epoch to learn the new one, or with
    an epoch per transaction aborts what is aborted already. Whoever is fenced by another producer
    may not: without the client's version, its late EndTxn does not pass for a repeated one.
    """
    client_id, client_epoch = held.client()
    epoch_above = min(client_epoch + 1, EPOCH_MAX)
    # The highest epoch is no producer's: who had the last one names it, and gets another id. And
    # who says that it has the highest one was told so by nobody.
    is_told = own_epoch != NO_EPOCH and client_epoch < EPOCH_MAX
    fenced = held._replace(
        state=PREPARE_ABORT,
        last_epoch=own_epoch,
        client_version=EPOCH_PER_TRANSACTION if is_told else 0,
        updated_ms=now_ms,
    )
    if client_id == held.producer_id:
        fenced = fenced._replace(
            producer_epoch=epoch_above, next_producer_id=NO_ID, next_producer_epoch=NO_EPOCH
        )
    else:
        fenced = fenced._replace(
            producer_epoch=min(held.producer_epoch + 1, EPOCH_MAX),
            next_producer_epoch=epoch_above,
        )
    return Step(answer_of(code), fenced)
