"""What becomes of one record: a light handle over the batch that carries it.

A handle is a batch and an index; everything else (offset, error, whoever waits) is the batch's, so
that a thousand records that nobody asks about cost a thousand small objects and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.producer_batch import ProducerBatch

UNKNOWN_OFFSET = -1


class RecordMetadata(NamedTuple):
    """Where a record is. Without acknowledgements (`acks=0`) nobody knows its offset: -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


def place_of(batch: ProducerBatch, index: int) -> tuple[ProducerBatch, int]:
    """The batch that carries the record now; it may have been split since."""
    while batch.parts is not None:
        for part in batch.parts:
            if index < part.count:
                batch = part
                break
            index -= part.count
    return batch, index


def outcome_of(
    batch: ProducerBatch, index: int, timestamp_ms: int
) -> tuple[RecordMetadata | None, OttlaError | None]:
    """Of a record whose batch is done."""
    if batch.error is not None:
        return None, batch.error
    offset = UNKNOWN_OFFSET if batch.base_offset < 0 else batch.base_offset + index
    if batch.append_time_ms >= 0:
        timestamp_ms = batch.append_time_ms
    lane = batch.lane
    return RecordMetadata(lane.topic, lane.partition, offset, timestamp_ms), None
