"""DescribeTransactions 0: where transactions stand, by transactional id."""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.shard import Fields
from ottla.coordinator.transaction_records import STATE_NAMES
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.handlers.answer_budget import entries
from ottla.handlers.context import Context
from ottla.handlers.group_requests import gather
from ottla.handlers.transaction_requests import Answer, answered
from ottla.protocol.error_codes import INVALID_REQUEST, NONE, TRANSACTIONAL_ID_NOT_FOUND

API_KEY = 65
VERSIONS = (0, 0)


def handle(context: Context, request: Any) -> Answer:
    # One that is named again is told again, as by Kafka, but looked at once.
    known = {one: _describe(context, one) for one in dict.fromkeys(request.transactional_ids)}
    return gather([known[one] for one in request.transactional_ids], _combined)


def _combined(states: list[Fields]) -> Fields:
    budget = entries()
    for state in states:
        budget.take(1 + sum(1 + len(one["partitions"]) for one in state["topics"]))
    return {"throttle_time_ms": 0, "transaction_states": states}


def _describe(context: Context, transactional_id: str) -> Answer:
    if not transactional_id:
        return _refused(transactional_id, INVALID_REQUEST)
    host = context.services.transactions.host_of(transactional_id)
    if isinstance(host, int):
        return _refused(transactional_id, host)
    looked: Deferred[Fields] = host.read(lambda shard: _state(shard, transactional_id))
    return answered(looked, dict, lambda code: _refused(transactional_id, code))


def _state(shard: TransactionShard, transactional_id: str) -> Fields:
    held = shard.transactions.get(transactional_id)
    if held is None:
        return _refused(transactional_id, TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(held.partitions):
        topics.setdefault(topic, []).append(index)
    return {
        "error_code": NONE,
        "transactional_id": transactional_id,
        "transaction_state": STATE_NAMES[held.state],
        "transaction_timeout_ms": held.timeout_ms,
        "transaction_start_time_ms": held.started_ms,
        "producer_id": held.producer_id,
        "producer_epoch": held.producer_epoch,
        "topics": [{"topic": name, "partitions": indexes} for name, indexes in topics.items()],
    }


def _refused(transactional_id: str, code: int) -> Fields:
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }
