"""Whether a transactional batch may be appended: its partition has to be in the open transaction.

The coordinator is asked once for each transaction and partition, and its yes is remembered until
the marker (`log.admissions`). Up to Produce v11 the client has added the partition before and it is
only verified; from v12 on (KIP-890) it is added now. So no batch of a transaction that is over, or
that never was, can get into the log, where nobody would ever end it.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from ottla.base.ids import TopicPartition
from ottla.handlers.context import Context
from ottla.log.producer_state import ANY_SEQUENCE
from ottla.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    UNKNOWN_SERVER_ERROR,
)
from ottla.records.batch_header import BASE_SEQUENCE, PRODUCER_EPOCH, PRODUCER_ID, Header
from ottla.replication.partition import Partition

FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_THAT_ADDS = 12
EPOCH_PER_TRANSACTION = 2

# Errors that pass by themselves. Old producers retry on this code without asking for metadata.
PASSING = {
    CONCURRENT_TRANSACTIONS: NOT_ENOUGH_REPLICAS,
    COORDINATOR_LOAD_IN_PROGRESS: NOT_ENOUGH_REPLICAS,
    COORDINATOR_NOT_AVAILABLE: NOT_ENOUGH_REPLICAS,
    NOT_COORDINATOR: NOT_ENOUGH_REPLICAS,
    PRODUCER_FENCED: INVALID_PRODUCER_EPOCH,
}

NO_TICKET = 0

Codes = dict[TopicPartition, int]


def is_in_transaction(partition: Partition, header: Header) -> bool:
    """Whether its coordinator has said that this producer's open transaction is here."""
    held = partition.log
    return held is not None and held.producers.admissions.has(
        partition.leader_epoch, header[PRODUCER_ID], header[PRODUCER_EPOCH]
    )


def is_in_order(context: Context, partition: Partition, header: Header) -> bool:
    """Whether nothing can be missing before the first batch of a producer nobody knows here.

    With an epoch per transaction it has to be number 0. Otherwise it is the second, sent behind a
    first that was refused for a passing reason: stored, it would shut out the first for good.
    """
    held = partition.log
    if context.api_version < FIRST_VERSION_THAT_ADDS or held is None or header[BASE_SEQUENCE] == 0:
        return True
    entry = held.producers.entries.get(header[PRODUCER_ID])
    return entry is not None and entry.next_sequence != ANY_SEQUENCE


def ticket_for(partition: Partition, producer_id: int) -> int:
    """What has to be shown again when the coordinator has said yes."""
    held = partition.log
    if held is None:
        return NO_TICKET
    return held.producers.admissions.ask(partition.leader_epoch, producer_id)


def is_answer_good(
    partition: Partition, producer_id: int, producer_epoch: int, ticket: int, code: int
) -> bool:
    """Whether the coordinator's answer still counts: the transaction may have ended meanwhile."""
    held = partition.log
    if held is None:
        return True  # what follows finds that out
    admissions = held.producers.admissions
    if code != NONE:
        admissions.refuse(producer_id, ticket)
        return True
    return admissions.admit(partition.leader_epoch, producer_id, producer_epoch, ticket)


def admit(
    context: Context, transactional_id: str, header: Header, places: list[TopicPartition]
) -> Deferred[Codes]:
    """An error code for each place; 0: the batch may be appended. Never fails: a batch is answered,
    whatever became of the question.
    """
    answer: Deferred[Codes] = Deferred()
    owner = (transactional_id, header[PRODUCER_ID], header[PRODUCER_EPOCH])
    if context.api_version >= FIRST_VERSION_THAT_ADDS:
        _Adding(context, owner, places, answer).begin()
    elif context.services.config.get_bool("transaction.partition.verification.enable"):
        verified = context.services.transactions.ask_to_verify(*owner, places)
        verified.when_done(lambda done: answer.resolve(_verdicts(context, done, places)))
    else:
        answer.resolve(dict.fromkeys(places, NONE))
    return answer


def _verdicts(context: Context, done: Deferred[Codes], places: list[TopicPartition]) -> Codes:
    try:
        codes = done.result()
    except OttlaError as failure:
        return dict.fromkeys(places, _code_of(failure))
    return {place: _verdict(context, codes[place]) for place in places}


def _verdict(context: Context, code: int) -> int:
    if code == TRANSACTION_ABORTABLE and context.api_version < FIRST_VERSION_WITH_ABORTABLE:
        return INVALID_TXN_STATE
    return PASSING.get(code, code)


def _code_of(failure: OttlaError) -> int:
    if not isinstance(failure, ProtocolError):
        return UNKNOWN_SERVER_ERROR  # a mistake of ours, which has been logged where it was made
    return PASSING.get(failure.code, failure.code)


class _Adding:
    """The markers of the last transaction may still be under way: that is worth a short wait."""

    def __init__(
        self,
        context: Context,
        owner: tuple[str, int, int],
        places: list[TopicPartition],
        answer: Deferred[Codes],
    ) -> None:
        setting = context.services.config.get_int
        self._context = context
        self._owner = owner
        self._places = places
        self._answer = answer
        self._pause_ms = setting("add.partitions.to.txn.retry.backoff.ms")
        self._left_ms = setting("add.partitions.to.txn.retry.backoff.max.ms")

    def begin(self) -> None:
        added: Deferred[int] = self._context.services.transactions.ask_to_add(
            *self._owner, self._places, EPOCH_PER_TRANSACTION, self._pause_ms
        )
        added.when_done(self._added)

    def _added(self, outcome: Deferred[Any]) -> None:
        try:
            code = outcome.result()
        except ProtocolError as refused:
            code = refused.code
        except OttlaError as failure:
            code = _code_of(failure)
        if code == CONCURRENT_TRANSACTIONS and self._left_ms > 0:
            self._left_ms -= self._pause_ms
            self._context.services.timers.call_later(self._pause_ms, self.begin)
            return
        self._answer.resolve(dict.fromkeys(self._places, PASSING.get(code, code)))
