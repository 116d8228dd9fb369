"""InitProducerId 0-5: a fresh producer id for an idempotent producer.

v2 flexible; v3 lets a producer name the id and epoch it had (KIP-360), which matters only to
transactions; v4 tells PRODUCER_FENCED apart. Transactions are not built: no broker coordinates a
transactional id, so each answers NOT_COORDINATOR, as Kafka's brokers do for ids of others. A
client then asks FindCoordinator, which is not advertised, and fails with that reason.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from ottla.handlers.context import Context
from ottla.protocol.error_codes import (
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    NOT_COORDINATOR,
)

API_KEY = 22
VERSIONS = (0, 5)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields | Deferred[Fields]:
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request.transactional_id == "":
        return _refused(INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(_transactional_refusal(context, request.transaction_timeout_ms))
    return _fresh_producer_id(context)


def _transactional_refusal(context: Context, timeout_ms: int) -> int:
    timeout_ms_max = context.services.config.get_int("transaction.max.timeout.ms")
    return NOT_COORDINATOR if 0 < timeout_ms <= timeout_ms_max else INVALID_TRANSACTION_TIMEOUT


def _fresh_producer_id(context: Context) -> Deferred[Fields]:
    answer: Deferred[Fields] = Deferred()

    def allocated(outcome: Deferred[int]) -> None:
        try:
            fields = _answer(NONE, outcome.result(), 0)
        except ProtocolError as refused:
            fields = _refused(refused.code)
        except OttlaError as failure:
            answer.fail(failure)
            return
        answer.resolve(fields)

    context.services.new_producer_id().when_done(allocated)
    return answer


def _refused(code: int) -> Fields:
    return _answer(code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _answer(code: int, producer_id: int, producer_epoch: int) -> Fields:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
