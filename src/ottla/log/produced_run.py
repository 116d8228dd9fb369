"""Several batches of one producer, stored in one write.

A producer that has several requests under way is read from several at a time (`net/gathering.py`).
To write their batches one by one costs the kernel about twice what one longer write does, since
most of it goes into the pages at both ends. So those that follow on each other are written
together, and only where nothing has to be asked: the first that is anything but the next one of
the same producer, or would roll the segment, ends the run, and goes the usual way after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.log.appended import PREFIX, Appended
from ottla.log.epoch_cache import EpochCache
from ottla.log.log_config import LogConfig
from ottla.log.producer_state import ProducerEntry, ProducerStates, last_sequence_of
from ottla.log.segment import Segment
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BATCH_LENGTH,
    CONTROL_MASK,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
    Header,
)

SPECIAL_MASK = TRANSACTIONAL_MASK | CONTROL_MASK


class ProducedLog(Protocol):
    """What this module needs of the log."""

    config: LogConfig
    leader_epochs: EpochCache
    log_end_offset: int
    log_start_offset: int
    producers: ProducerStates
    recovery_point: int
    size: int
    unflushed_messages: int


def append_run(
    log: ProducedLog,
    segment: Segment,
    batches: Sequence[memoryview],
    headers: Sequence[Header],
    leader_epoch: int,
    now_ms: int,
) -> list[Appended]:
    """Where the first of the batches are, as many as were stored; offsets and epoch are written
    into them. OSError if they could not be written; then nothing has changed."""
    count, producer = _in_sequence(log.producers, headers)
    count = _that_fit(log, segment, batches[:count], headers, now_ms)
    if count == 0:
        return []
    run = batches[:count]
    offset, log_start = log.log_end_offset, log.log_start_offset
    stored = []
    for batch, header in zip(run, headers, strict=False):
        PREFIX.pack_into(batch, 0, offset, header[BATCH_LENGTH], leader_epoch)
        last_offset = offset + header[LAST_OFFSET_DELTA]
        stored.append(Appended(offset, last_offset, log_start, False, header[MAX_TIMESTAMP]))
        offset = last_offset + 1
    begin = segment.size
    segment.append_all(run)
    for at, batch, header in zip(stored, run, headers, strict=False):
        segment.note_batch(segment.size, len(batch), at.base_offset, at.last_offset, at.timestamp)
        if producer is not None:
            producer.on_next_batch(header[LAST_OFFSET_DELTA], at.last_offset, at.timestamp, now_ms)
    if leader_epoch != log.leader_epochs.latest:
        log.leader_epochs.assign(leader_epoch, log.log_end_offset)
    log.size += segment.size - begin
    log.log_end_offset = offset
    log.unflushed_messages = offset - log.recovery_point
    return stored


def _in_sequence(
    producers: ProducerStates, headers: Sequence[Header]
) -> tuple[int, ProducerEntry | None]:
    """How many of the first batches come from one producer, each the next one of it, and what is
    known of that producer; None if it does not number them."""
    first = headers[0]
    producer_id, epoch, sequence = first[PRODUCER_ID], first[PRODUCER_EPOCH], first[BASE_SEQUENCE]
    producer = producers.expecting(first)
    if producer is None and producer_id >= 0:
        return 0, None
    for count, header in enumerate(headers):
        if header[ATTRIBUTES] & SPECIAL_MASK or header[PRODUCER_ID] != producer_id:
            return count, producer
        if producer is not None:
            if header[BASE_SEQUENCE] != sequence or header[PRODUCER_EPOCH] != epoch:
                return count, producer
            sequence = last_sequence_of(sequence, header[LAST_OFFSET_DELTA] + 1)
    return len(headers), producer


def _that_fit(
    log: ProducedLog,
    segment: Segment,
    batches: Sequence[memoryview],
    headers: Sequence[Header],
    now_ms: int,
) -> int:
    """How many of the first batches go into this segment before one of them rolls it."""
    config = log.config
    if config.segment_jitter_ms or not segment.has_room_for(len(batches)):
        return 0
    roll_ms = config.roll_ms()
    size, last_offset = segment.size, log.log_end_offset - 1
    for count, batch in enumerate(batches):
        header = headers[count]
        size += len(batch)
        last_offset += header[LAST_OFFSET_DELTA] + 1
        if size > config.segment_bytes or segment.must_roll(
            size, last_offset, header[MAX_TIMESTAMP], now_ms, roll_ms
        ):
            return count
    return len(batches)
