"""AddOffsetsToTxn 0-4: a transaction is going to commit offsets of a group.

So the partition of `__consumer_offsets` that holds the group becomes one of the transaction's. v2
tells PRODUCER_FENCED apart; v3 flexible.
"""

from __future__ import annotations

from typing import Any

from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.transaction_requests import PATIENCE_MS, Answer, answered, code_for
from ottla.metadata.topic_names import CONSUMER_OFFSETS
from ottla.protocol.error_codes import INVALID_REQUEST

API_KEY = 25
VERSIONS = (0, 4)

OLD_CLIENT = 0


def handle(context: Context, request: Any) -> Answer:
    def with_code(code: int) -> Fields:
        return {"throttle_time_ms": 0, "error_code": code_for(code, context.api_version)}

    if not request.transactional_id:
        return with_code(INVALID_REQUEST)
    index = context.services.groups.partition_of(request.group_id)
    added = context.services.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(CONSUMER_OFFSETS, index)],
        OLD_CLIENT,
        PATIENCE_MS,
    )
    return answered(added, with_code, with_code)
