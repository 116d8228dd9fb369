"""Conversations with the coordinators of transactions, one attempt each.

An id is for one attempt of one task (or the owner of a sink), so nothing is kept between calls:
every question names what it is about.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ottla.client.errors import ClientError
from ottla.protocol.api_keys import (
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
)
from ottla.protocol.error_codes import (
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTIONAL_ID_NOT_FOUND,
)
from ottla.spark.wire import PREPARE_VERSION, Wire

# States in which a transaction can still be ended one way or the other.
_OPEN = "Ongoing"
_FENCED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)


class Producer(NamedTuple):
    producer_id: int
    epoch: int


NOBODY = Producer(-1, -1)


class FencedOff(ClientError):
    """Somebody else has taken the id, or its transaction has run out of time."""


class Forgotten(ClientError):
    """The coordinator does not know the id (any more)."""


async def init(wire: Wire, transactional_id: str | None, timeout_ms: int) -> Producer:
    """A new epoch; whatever the id had open is aborted first, unless it is prepared. None: a
    producer without an id."""
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": NOBODY.producer_id,
        "producer_epoch": NOBODY.epoch,
        "enable2_pc": False,
        "keep_prepared_txn": False,
    }
    if transactional_id is None:
        answer = await wire.core.request(wire.core.least_loaded(), INIT_PRODUCER_ID, fields)
    else:
        answer = await wire.ask_transactions(transactional_id, INIT_PRODUCER_ID, fields)
    if answer.error_code != NONE:
        raise wire.transaction_error(transactional_id or "(none)", answer.error_code)
    return Producer(answer.producer_id, answer.producer_epoch)


async def prepare(wire: Wire, transactional_id: str, producer: Producer) -> Producer:
    """The transaction stays as it is, without a time-out; answers who may end it."""
    answer = await wire.ask_transactions(
        transactional_id,
        INIT_PRODUCER_ID,
        {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": 0,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "enable2_pc": True,
            "keep_prepared_txn": True,
        },
        version_min=PREPARE_VERSION,
    )
    if answer.error_code in _FENCED:
        raise FencedOff(f"{transactional_id} cannot be prepared: it is over, or another has it")
    if answer.error_code != NONE:
        raise wire.transaction_error(transactional_id, answer.error_code)
    return Producer(answer.producer_id, answer.producer_epoch)


async def take_over(wire: Wire, transactional_id: str) -> Producer:
    """Shuts out whoever has the id; what it has open, prepared or not, is for us to end."""
    answer = await wire.ask_transactions(
        transactional_id,
        INIT_PRODUCER_ID,
        {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": 60_000,
            "producer_id": NOBODY.producer_id,
            "producer_epoch": NOBODY.epoch,
            "enable2_pc": False,
            "keep_prepared_txn": True,
        },
        version_min=PREPARE_VERSION,
    )
    if answer.error_code != NONE:
        raise wire.transaction_error(transactional_id, answer.error_code)
    return Producer(answer.producer_id, answer.producer_epoch)


async def end(
    wire: Wire, transactional_id: str, producer: Producer, *, commit: bool, forget: bool
) -> None:
    """Commit or abort; idempotent. `forget`: the id is not needed any more."""
    answer = await wire.ask_transactions(
        transactional_id,
        END_TXN,
        {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "committed": commit,
            "forget_transactional_id": forget,
        },
        version_max=None if wire.adds_partitions_itself() else 4,
    )
    if answer.error_code == INVALID_PRODUCER_ID_MAPPING:
        raise Forgotten(f"transactional id {transactional_id} is not known")
    # Apache Kafka's word for a transaction that a time-out has ended: the opposite is decided.
    is_aborted = commit and answer.error_code == INVALID_TXN_STATE
    if is_aborted or answer.error_code in _FENCED:
        raise FencedOff(
            f"transactional id {transactional_id} has another owner, or ran out of time"
        )
    if answer.error_code != NONE:
        raise wire.transaction_error(transactional_id, answer.error_code)


async def list_open(wire: Wire, prefix: str) -> list[str]:
    """Of all brokers, since each knows those that it coordinates."""
    fields = {
        "state_filters": [_OPEN],
        "producer_id_filters": [],
        "duration_filter_ms": -1,
        "transactional_id_pattern": f"{re.escape(prefix)}.*",
    }
    core = wire.core
    if not core.cluster.brokers:
        await core.metadata.next_update()
    asked = [core.request(node_id, LIST_TRANSACTIONS, fields) for node_id in core.cluster.brokers]
    found: list[str] = []
    for pending in asked:
        answer: Any = await pending
        if answer.error_code != NONE:
            raise wire.transaction_error(prefix, answer.error_code)
        # Brokers before ListTransactions 2 know no pattern and list everything.
        found += [
            one.transactional_id
            for one in answer.transaction_states
            if one.transactional_id.startswith(prefix)
        ]
    return sorted(set(found))


async def is_open(wire: Wire, transactional_id: str) -> bool:
    """By the word of its coordinator; a list of all may be short of one that is moving."""
    answer = await wire.ask_transactions(
        transactional_id, DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]}
    )
    found = answer.transaction_states[0]
    if found.error_code == TRANSACTIONAL_ID_NOT_FOUND:
        return False
    if found.error_code != NONE:
        raise wire.transaction_error(transactional_id, found.error_code)
    return bool(found.transaction_state == _OPEN)
