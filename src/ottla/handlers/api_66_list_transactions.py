"""ListTransactions 0-2: the transactional ids that this broker coordinates.

v1 can ask for those that have been open for so long, v2 for ids that match an expression (RE2, of
which the whole id has to match).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ProtocolError
from ottla.coordinator.shard import Fields
from ottla.coordinator.subscription_pattern import compiled
from ottla.coordinator.transaction_records import NO_TIMESTAMP, STATE_NAMES, Transaction
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.handlers.context import Context
from ottla.handlers.group_requests import gather
from ottla.handlers.transaction_requests import Answer, answered
from ottla.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    NONE,
)

API_KEY = 66
VERSIONS = (0, 2)

Filter = Callable[[str, Transaction], bool]


def handle(context: Context, request: Any) -> Answer:
    asked_states = dict.fromkeys(request.state_filters)
    unknown = [name for name in asked_states if name not in STATE_NAMES]
    transactions = context.services.transactions
    if transactions.is_loading():
        return _response(COORDINATOR_LOAD_IN_PROGRESS, [], [])
    try:
        wanted = _filter(context, request)
    except ProtocolError as refused:
        return _response(refused.code, [], [])
    if asked_states and len(unknown) == len(asked_states):
        return _response(NONE, unknown, [])
    answers = [
        answered(
            host.read(lambda shard: _listed(shard, wanted)),
            lambda found: {"code": NONE, "found": found},
            lambda code: {"code": code, "found": []},
        )
        for host in transactions.hosts()
    ]

    def combine(results: list[Fields]) -> Fields:
        codes = [one["code"] for one in results if one["code"] != NONE]
        if codes:
            return _response(codes[0], unknown, [])
        return _response(NONE, unknown, [row for one in results for row in one["found"]])

    return gather(answers, combine)


def _filter(context: Context, request: Any) -> Filter:
    states = {STATE_NAMES.index(name) for name in request.state_filters if name in STATE_NAMES}
    producer_ids = set(request.producer_id_filters)
    duration_ms = request.duration_filter
    now_ms = context.services.clock.wall_ms()
    pattern = request.transactional_id_pattern
    matches = compiled(pattern).fullmatch if pattern else None

    def wanted(transactional_id: str, held: Transaction) -> bool:
        if states and held.state not in states:
            return False
        if producer_ids and held.producer_id not in producer_ids:
            return False
        if duration_ms >= 0 and (
            held.started_ms == NO_TIMESTAMP or now_ms - held.started_ms <= duration_ms
        ):
            return False
        return matches is None or matches(transactional_id) is not None

    return wanted


def _listed(shard: TransactionShard, wanted: Filter) -> list[Fields]:
    return [
        {
            "transactional_id": transactional_id,
            "producer_id": held.producer_id,
            "transaction_state": STATE_NAMES[held.state],
        }
        for transactional_id, held in shard
        if wanted(transactional_id, held)
    ]


def _response(code: int, unknown: list[str], found: list[Fields]) -> Fields:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "unknown_state_filters": unknown,
        "transaction_states": found,
    }
