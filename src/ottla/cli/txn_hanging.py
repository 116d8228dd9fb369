"""Finds transactions that nobody will ever end: open in a partition, unknown to any coordinator.

They hold back the last stable offset, and so every read_committed reader, for ever. Brokers that
verify before they append (KIP-890) let none in; older ones, and markers that were lost, may have.

Never takes for hanging what was written to within `quiet_ms`: a transaction that has just begun, or
is just being ended, looks the same for a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.ids import TopicPartition
from ottla.cli.admin_door import existing_topic
from ottla.cli.failure import Failure
from ottla.client.errors import BrokerError
from ottla.protocol import error_codes as codes

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.admin_values import ProducerDescription, TransactionDescription


@dataclass(slots=True)
class Hanging:
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str | None
    why: str


@dataclass(slots=True)
class Open:
    """A transaction that a partition has open."""

    place: TopicPartition
    producer: ProducerDescription
    start_offset: int


def partitions_of(
    admin: Admin, topic: str | None, partition: int | None, broker: int | None
) -> list[TopicPartition]:
    """Those that are meant, as far as they have a leader."""
    topics = admin.list_topics() if topic is None else [existing_topic(admin, topic)]
    return [
        (described.name, one.partition)
        for described in topics
        for one in described.partitions
        if one.leader is not None
        and partition in (None, one.partition)
        and broker in (None, one.leader)
    ]


def open_transactions(admin: Admin, places: Sequence[TopicPartition]) -> list[Open]:
    return [
        Open(place, producer, producer.transaction_start_offset)
        for place, producers in sorted(admin.describe_producers(places).items())
        for producer in producers
        if producer.transaction_start_offset is not None
    ]


def find_hanging(
    admin: Admin, places: Sequence[TopicPartition], now_ms: int, quiet_ms: int
) -> list[Hanging]:
    quiet = [
        one
        for one in open_transactions(admin, places)
        if now_ms - one.producer.last_timestamp_ms > quiet_ms
    ]
    if not quiet:
        return []
    known = _known(admin, {one.producer.producer_id for one in quiet})
    found = []
    for one in quiet:
        description = known.get(one.producer.producer_id)
        why = why_hanging(one, description)
        if why is not None:
            name = None if description is None else description.transactional_id
            found.append(_hanging(one, name, why))
    return found


def why_hanging(one: Open, known: TransactionDescription | None) -> str | None:
    """None where a coordinator has it, and will end it."""
    if known is None:
        return "no coordinator knows its producer"
    if known.producer_id != one.producer.producer_id:
        return f"{known.transactional_id} has another producer now"
    if one.place not in known.partitions:
        return f"the transaction of {known.transactional_id} is without this partition"
    return None


def the_one_at(admin: Admin, place: TopicPartition, start_offset: int) -> Hanging:
    """The open transaction that begins there, whether it hangs or not."""
    there = open_transactions(admin, [place])
    for one in there:
        if one.start_offset == start_offset:
            return _hanging(one, None, "")
    starts = ", ".join(str(one.start_offset) for one in there)
    hint = f"; open ones begin at {starts}" if starts else "; none is open there"
    raise Failure(f"no transaction in {place[0]}-{place[1]} begins at offset {start_offset}{hint}")


def _hanging(one: Open, transactional_id: str | None, why: str) -> Hanging:
    return Hanging(
        *one.place,
        one.producer.producer_id,
        one.producer.producer_epoch,
        one.producer.coordinator_epoch,
        one.start_offset,
        one.producer.last_timestamp_ms,
        transactional_id,
        why,
    )


def _known(admin: Admin, producer_ids: Iterable[int]) -> dict[int, TransactionDescription]:
    known: dict[int, TransactionDescription] = {}
    for listed in admin.list_transactions(producer_ids=sorted(producer_ids)):
        try:
            (known[listed.producer_id],) = admin.describe_transactions([listed.transactional_id])
        except BrokerError as cause:
            # Forgotten since it was listed.
            if cause.code != codes.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return known
