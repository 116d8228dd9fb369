"""What is asked of a transaction shard, what it hands out, and the words they share.

Values only. A `Step` is what one request comes to: the answer, and what the transactional id is
from then on, if that changes.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.ids import TopicPartition
from ottla.coordinator.shard import Fields
from ottla.coordinator.transaction_records import NO_EPOCH, NO_ID, Transaction
from ottla.protocol.error_codes import NONE

EPOCH_MAX = 32767
# The last epoch that a client ever has; the one above is for the marker that ends it.
EPOCH_LAST = EPOCH_MAX - 1

EPOCH_PER_TRANSACTION = 2

FRESH_ID_NEEDED: Fields = {}
"""The answer of a decision that has to be asked again, with a producer id nobody has had."""


class TransactionConfig(NamedTuple):
    timeout_ms_max: int = 900_000
    id_expiration_ms: int = 604_800_000
    two_phase_commit: bool = False


class MarkerTask(NamedTuple):
    """A decision whose markers are to be written. `is_repeated`: some of them may be there."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int
    partitions: frozenset[TopicPartition]
    is_repeated: bool


class InitAsked(NamedTuple):
    """`enable_2pc` and `keep_prepared` are those of KIP-939."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_ID
    producer_epoch: int = NO_EPOCH
    enable_2pc: bool = False
    keep_prepared: bool = False


class EndAsked(NamedTuple):
    """`forgets`: nobody will use this transactional id again."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int
    forgets: bool = False


class Step(NamedTuple):
    answer: Fields
    to: Transaction | None = None


def answer_of(code: int, transaction: Transaction | None = None) -> Fields:
    """The fields of InitProducerId and EndTxn; with a transaction, those of its client."""
    if code != NONE or transaction is None:
        return {"error_code": code, "producer_id": NO_ID, "producer_epoch": NO_EPOCH}
    producer_id, producer_epoch = transaction.client()
    return {"error_code": code, "producer_id": producer_id, "producer_epoch": producer_epoch}


def refusal(code: int) -> Step:
    return Step(answer_of(code))


NEEDS_ID = Step(FRESH_ID_NEEDED)
