"""InitProducerId 0-6: a producer id, and for a transactional id its next epoch.

v2 flexible; v3 lets a producer name the id and epoch it had (KIP-360); v4 tells PRODUCER_FENCED
apart; v6 can keep a transaction open for a coordinator outside (KIP-939). Without a transactional
id any broker answers with an id nobody has had, epoch 0.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.shard import Fields
from ottla.coordinator.transaction_asks import InitAsked
from ottla.handlers.context import Context
from ottla.handlers.transaction_requests import Answer, answered
from ottla.protocol.error_codes import (
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    PRODUCER_FENCED,
)

API_KEY = 22
VERSIONS = (0, 6)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FENCED_FROM = 4


def handle(context: Context, request: Any) -> Answer:
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request.transactional_id == "":
        return _refused(INVALID_REQUEST)
    if request.transactional_id is None:
        return _fresh_producer_id(context)
    timeout_ms_max = context.services.config.get_int("transaction.max.timeout.ms")
    if not (request.enable2_pc or 0 < request.transaction_timeout_ms <= timeout_ms_max):
        return _refused(INVALID_TRANSACTION_TIMEOUT)
    asked = InitAsked(
        request.transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        request.enable2_pc,
        request.keep_prepared_txn,
    )
    return answered(
        context.services.transactions.init_producer_id(asked),
        lambda fields: {**fields, "error_code": _code_for(fields["error_code"], context)},
        lambda code: _refused(_code_for(code, context)),
    )


def _fresh_producer_id(context: Context) -> Answer:
    taken: Deferred[int] = context.services.new_producer_id()
    return answered(taken, lambda producer_id: _answer(NONE, producer_id, 0), _refused)


def _code_for(code: int, context: Context) -> int:
    if code == PRODUCER_FENCED and context.api_version < FENCED_FROM:
        return INVALID_PRODUCER_EPOCH
    return code


def _refused(code: int) -> Fields:
    return _answer(code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _answer(code: int, producer_id: int, producer_epoch: int) -> Fields:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
