"""Consume, transform, produce, exactly once: what both shells' loops have in common.

One poll is one transaction: the records that a function made of it and the positions behind it are
committed together or not at all. What aborts is read again from where it began; what dies is taken
up by the next instance with the same transactional id, from the committed positions.

Owns the judgement of errors: fenced, or a function that raises, ends the loop; what an abort cures
leads to another attempt, at most ATTEMPTS_MAX in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ConfigError
from ottla.base.ids import TopicPartition
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    FencedError,
    TransactionAbortableError,
)
from ottla.client.fetch_records import Record
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.producer_batch import Headers
from ottla.protocol import error_codes as codes

ATTEMPTS_MAX = 10
_CURED_BY_ABORT = frozenset(
    {
        codes.ILLEGAL_GENERATION,
        codes.UNKNOWN_MEMBER_ID,
        codes.REBALANCE_IN_PROGRESS,
        codes.STALE_MEMBER_EPOCH,
        codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        codes.UNKNOWN_PRODUCER_ID,
    }
)


class Output(NamedTuple):
    """A record to be written: what a function gives for one that was read."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


Outputs = Output | tuple[Any, ...] | Iterable[Output | tuple[Any, ...]] | None
Function = Callable[[Record], Outputs]


def check_settings(consumer: ConsumerSettings, transactional_id: str | None) -> None:
    """Raises ConfigError where the loop could not be exact."""
    if consumer.group_id is None:
        raise ConfigError("process needs a consumer with a group.id, to know where to go on")
    if consumer.enable_auto_commit:
        raise ConfigError(
            "process commits positions with its transactions: set enable.auto.commit=false"
        )
    if consumer.isolation_level != "read_committed":
        raise ConfigError(
            "process would read what is aborted later: set isolation.level=read_committed"
        )
    if transactional_id is None:
        raise ConfigError("process needs a producer with a transactional.id")


def outputs_of(given: Outputs) -> Iterator[tuple[Any, ...]]:
    """One, many or none; a tuple that begins with a topic is one."""
    if given is None:
        return
    if isinstance(given, tuple) and given and isinstance(given[0], str):
        yield given
        return
    for one in given:
        if not isinstance(one, tuple) or not one or not isinstance(one[0], str):
            raise TypeError(
                f"a function gives Output(topic, value, ...), several of them or None, not {one!r}"
            )
        yield one


def positions_after(records: Sequence[Record]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        (record.topic, record.partition): OffsetAndMetadata(record.offset + 1, record.leader_epoch)
        for record in records
    }


def positions_before(records: Sequence[Record]) -> dict[TopicPartition, int]:
    """Where to read again what was aborted."""
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault((record.topic, record.partition), record.offset)
    return first


def is_cured_by_abort(error: BaseException) -> bool:
    if isinstance(error, TransactionAbortableError):
        return True
    if isinstance(error, FencedError | ClosedError) or not isinstance(error, ClientError):
        return False
    if isinstance(error, BrokerError):
        return error.retriable or error.code in _CURED_BY_ABORT
    return error.retriable
