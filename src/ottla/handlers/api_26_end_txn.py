"""EndTxn 0-5: commit or abort.

Answered when the decision is kept; the markers follow. v2 tells PRODUCER_FENCED apart; v3 flexible;
v5 bumps the epoch and tells the one to go on with (KIP-890). A tag of our own asks that the id be
forgotten when all is done.
"""

from __future__ import annotations

from typing import Any

from ottla.coordinator.shard import Fields
from ottla.coordinator.transaction_asks import EndAsked
from ottla.handlers.context import Context
from ottla.handlers.transaction_requests import Answer, answered, code_for
from ottla.protocol.error_codes import INVALID_REQUEST

API_KEY = 26
VERSIONS = (0, 5)

BUMP_FROM = 5
OLD_CLIENT, EPOCH_PER_TRANSACTION = 0, 2


def handle(context: Context, request: Any) -> Answer:
    version = context.api_version
    if not request.transactional_id:
        return _refused(INVALID_REQUEST)
    asked = EndAsked(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        EPOCH_PER_TRANSACTION if version >= BUMP_FROM else OLD_CLIENT,
        request.forget_transactional_id,
    )
    return answered(
        context.services.transactions.end_transaction(asked),
        lambda fields: {**fields, "error_code": code_for(fields["error_code"], version)},
        lambda code: _refused(code_for(code, version)),
    )


def _refused(code: int) -> Fields:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
