"""Handing out what was fetched: records of an item, some at a time.

Decodes many records at once and keeps what it does not hand out yet with the item. Runs in the
application's thread, without a lock: an item belongs to whoever polls.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.client.consumer_errors import CorruptBatchError
from ottla.client.fetch_queue import FetchedItem
from ottla.client.fetch_records import (
    Deserializers,
    Record,
    RecordRun,
    deserialized,
    read_records,
)
from ottla.records.batch_header import LEADER_EPOCH, RECORD_COUNT

DECODED_AT_ONCE = 4_096
"""Records, about: enough that the fixed cost of columns does not count."""

_FOR_RECORDS = "records"


class Taken(NamedTuple):
    records: list[Record]
    position: int
    epoch: int
    is_done: bool
    """Nothing is left in the item."""


def take_records(item: FetchedItem, count_max: int, deserializers: Deserializers) -> Taken:
    """The next records of an item, `count_max` at most; none if it holds no more."""
    try:
        return _take(item, count_max, deserializers)
    except ProtocolError as cause:
        position = item.state.position or 0
        raise CorruptBatchError(item.state.key, position, cause.message) from cause


class _Decoded:
    """Records that wait, and where the partition stands behind the last of them."""

    __slots__ = ("at", "end", "epoch", "run")

    def __init__(self, run: RecordRun, end: int, epoch: int) -> None:
        self.run = run
        self.at = 0
        self.end = end
        self.epoch = epoch


def _take(item: FetchedItem, count_max: int, deserializers: Deserializers) -> Taken:
    decoded = item.cached
    if item.cached_for is not _FOR_RECORDS or not isinstance(decoded, _Decoded):
        decoded = _decode(item)
        if decoded is None:
            return Taken([], _end_of(item, item.state.position or 0), -1, True)
    records = deserialized(decoded.run.some(decoded.at, decoded.at + count_max), deserializers)
    decoded.at += len(records)
    if decoded.at < len(decoded.run):
        item.cached, item.cached_for = decoded, _FOR_RECORDS
        last = records[-1]
        item.drop_blocks_before(last.offset + 1)
        return Taken(records, last.offset + 1, last.leader_epoch, False)
    item.cached = item.cached_for = None
    item.blocks.clear()
    is_done = item.batches is None or item.batches.next_block() is None
    end = _end_of(item, decoded.end) if is_done else decoded.end
    return Taken(records, end, decoded.epoch, is_done)


def _end_of(item: FetchedItem, position: int) -> int:
    """What was passed over at the end (markers, aborted records) has been handed out, too."""
    return position if item.batches is None else item.batches.position


def _decode(item: FetchedItem) -> _Decoded | None:
    """The blocks that are open, or else the next ones."""
    count = sum(block.header[RECORD_COUNT] for block in item.blocks)
    if count < DECODED_AT_ONCE:
        for block in item.more_blocks():
            count += block.header[RECORD_COUNT]
            if count >= DECODED_AT_ONCE:
                break
    if not item.blocks:
        return None
    blocks = list(item.blocks)
    run = read_records(item.state.key, blocks, item.state.position or 0)
    return _Decoded(run, blocks[-1].next_offset(), blocks[-1].header[LEADER_EPOCH])
