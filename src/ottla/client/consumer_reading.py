"""Handing out what was fetched: records of an item, some at a time.

Decodes many records at once and keeps what it does not hand out yet with the item. Runs in the
application's thread, without a lock: an item belongs to whoever polls.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.client.consumer_errors import CorruptBatchError
from ottla.client.fetch_queue import FetchedItem
from ottla.client.fetch_records import Deserializers, Record, records_of
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

    __slots__ = ("at", "end", "epoch", "records")

    def __init__(self, records: list[Record], end: int, epoch: int) -> None:
        self.records = records
        self.at = 0
        self.end = end
        self.epoch = epoch


def _take(item: FetchedItem, count_max: int, deserializers: Deserializers) -> Taken:
    decoded = item.cached
    if item.cached_for is not _FOR_RECORDS or not isinstance(decoded, _Decoded):
        decoded = _decode(item, deserializers)
    records = decoded.records[decoded.at : decoded.at + count_max]
    decoded.at += len(records)
    if decoded.at < len(decoded.records):
        item.cached, item.cached_for = decoded, _FOR_RECORDS
        last = records[-1]
        item.drop_blocks_before(last.offset + 1)
        return Taken(records, last.offset + 1, last.leader_epoch, False)
    item.cached = item.cached_for = None
    item.blocks.clear()
    batches = item.batches
    is_done = batches is None or batches.next_block() is None
    # What was passed over at the end (markers, aborted records) has been handed out, too.
    end = batches.position if is_done and batches is not None else decoded.end
    return Taken(records, end, decoded.epoch, is_done)


def _decode(item: FetchedItem, deserializers: Deserializers) -> _Decoded:
    """The blocks that are open, or else the next ones."""
    position = item.state.position or 0
    count = sum(block.header[RECORD_COUNT] for block in item.blocks)
    if count < DECODED_AT_ONCE:
        for block in item.more_blocks():
            count += block.header[RECORD_COUNT]
            if count >= DECODED_AT_ONCE:
                break
    if not item.blocks:
        return _Decoded([], position, -1)
    blocks = list(item.blocks)
    records = records_of(item.state.key, blocks, position, deserializers)
    return _Decoded(records, blocks[-1].next_offset(), blocks[-1].header[LEADER_EPOCH])
