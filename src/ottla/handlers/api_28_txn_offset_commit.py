"""TxnOffsetCommit 0-5: offsets that count when, and only when, a transaction is committed.

v2 adds the leader epoch; v3 flexible, with the member that commits; v4 can be told to abort; v5
(KIP-890) needs no AddOffsetsToTxn before it: the partition is added here. Before v5 it is verified
that the partition is in the transaction.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import caller_of, decide
from ottla.handlers.produce_admission import NO_TICKET, is_answer_good, ticket_for
from ottla.handlers.transaction_requests import PATIENCE_MS, Answer, answered
from ottla.metadata.topic_names import CONSUMER_OFFSETS
from ottla.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_GROUP_ID,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.partition import Partition

API_KEY = 28
VERSIONS = (0, 5)

LOADING_FROM = 2
ABORTABLE_FROM = 4
ADDED_FROM = 5
EPOCH_PER_TRANSACTION = 2


def handle(context: Context, request: Any) -> Answer:
    if not request.group_id:
        return _refused(context, request, INVALID_GROUP_ID)
    if not request.transactional_id:
        return _refused(context, request, INVALID_REQUEST)
    host = context.services.groups.host_of(request.group_id)
    if isinstance(host, int):
        # Before the transaction is asked: it may know nothing of this group, which would abort it.
        return _refused(context, request, host)
    # The transaction may end while the coordinator is asked: then its yes counts for nothing.
    admission = _Admission(context, request)
    checked = _in_transaction(context, request)
    if checked.done:
        return _commit(context, request, checked, admission)
    answer: Deferred[Fields] = Deferred()

    def done(outcome: Deferred[int]) -> None:
        try:
            committed = _commit(context, request, outcome, admission)
        except OttlaError as failure:
            answer.fail(failure)
            return
        if not isinstance(committed, Deferred):
            answer.resolve(committed)
            return
        committed.when_done(lambda later: _pass_on(later, answer))

    checked.when_done(done)
    return answer


class _Admission:
    """A ticket of the partition that holds the group, if that is here; see `log.admissions`."""

    def __init__(self, context: Context, request: Any) -> None:
        self._partitions = context.services.partitions
        self._index = context.services.groups.partition_of(request.group_id)
        self._partition = self._find()
        self._owner = (request.producer_id, request.producer_epoch)
        self._ticket = NO_TICKET
        if self._partition is not None:
            self._ticket = ticket_for(self._partition, request.producer_id)

    def _find(self) -> Partition | None:
        return self._partitions.find(CONSUMER_OFFSETS, self._index)

    def is_good(self, code: int) -> bool:
        if self._find() is not self._partition:
            return False
        if self._partition is None:
            return True  # nor is the group here, which is the answer
        return is_answer_good(self._partition, *self._owner, self._ticket, code)


def _in_transaction(context: Context, request: Any) -> Deferred[int]:
    """Adds the group's partition to the transaction, or makes sure that it is in it."""
    services = context.services
    place = (CONSUMER_OFFSETS, services.groups.partition_of(request.group_id))
    owner = (request.transactional_id, request.producer_id, request.producer_epoch)
    if context.api_version >= ADDED_FROM:
        return services.transactions.ask_to_add(*owner, [place], EPOCH_PER_TRANSACTION, PATIENCE_MS)
    checked: Deferred[int] = Deferred()
    if not services.config.get_bool("transaction.partition.verification.enable"):
        checked.resolve(NONE)
        return checked

    def verified(outcome: Deferred[Any]) -> None:
        try:
            checked.resolve(outcome.result()[place])
        except OttlaError as failure:
            checked.fail(failure)

    services.transactions.ask_to_verify(*owner, [place]).when_done(verified)
    return checked


def _commit(
    context: Context, request: Any, checked: Deferred[int], admission: _Admission
) -> Answer:
    def refused(code: int) -> Fields:
        return _refused(context, request, code)

    verdict = answered(checked, lambda code: {"code": code}, lambda code: {"code": code})
    assert not isinstance(verdict, Deferred)  # it is done
    if not admission.is_good(verdict["code"]):
        if context.api_version >= ADDED_FROM:
            return handle(context, request)
        # Asked again, the coordinator might say yes to the next transaction of this epoch, and
        # offsets have no sequence to tell them by. Whoever still waits for an answer asks anew.
        return refused(COORDINATOR_NOT_AVAILABLE)
    if verdict["code"] != NONE:
        return refused(verdict["code"])
    caller = caller_of(context)
    return decide(
        context,
        request.group_id,
        lambda shard: shard.commit_in_transaction(request, caller),
        refused,
    )


def _refused(context: Context, request: Any, code: int) -> Fields:
    """Every partition gets the code, but for those that there are not."""
    told = _code_for(code, context.api_version)
    image = context.services.image
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": told
                        if image.partition(topic.name, one.partition_index) is not None
                        else UNKNOWN_TOPIC_OR_PARTITION,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _code_for(code: int, api_version: int) -> int:
    if code == COORDINATOR_LOAD_IN_PROGRESS and api_version < LOADING_FROM:
        return COORDINATOR_NOT_AVAILABLE
    if code == TRANSACTION_ABORTABLE and api_version < ABORTABLE_FROM:
        return INVALID_TXN_STATE
    if code == PRODUCER_FENCED:
        return INVALID_PRODUCER_EPOCH
    return code


def _pass_on(later: Deferred[Fields], answer: Deferred[Fields]) -> None:
    try:
        fields = later.result()
    except OttlaError as failure:
        answer.fail(failure)
    else:
        answer.resolve(fields)
