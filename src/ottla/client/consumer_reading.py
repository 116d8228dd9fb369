"""Handing out what was fetched: records of an item, some at a time.

Decodes many records at once and keeps what it does not hand out yet with the item. Runs in the
application's thread, without a lock: an item belongs to whoever polls.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.client.consumer_errors import CorruptBatchError
from ottla.client.errors import ClientError
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
    """How far an item has been handed out."""

    records: list[Record]
    position: int
    epoch: int
    is_done: bool
    """Nothing is left in the item."""


class RecordReader:
    """One poll: records of as many items as it takes."""

    __slots__ = ("_count_max", "_deserializers", "records")

    def __init__(self, count_max: int, deserializers: Deserializers) -> None:
        self._count_max = count_max
        self._deserializers = deserializers
        self.records: list[Record] = []

    def wants_more(self) -> bool:
        return len(self.records) < self._count_max

    def take(self, item: FetchedItem) -> Taken | None:
        """Reads what fits; None if there is something that cannot be read, but records before it
        to be handed out first. It will be there again for the next poll."""
        try:
            taken = take_records(item, self._count_max - len(self.records), self._deserializers)
        except ClientError:
            if self.records:
                return None
            raise
        self.records = self.records + taken.records if self.records else taken.records
        return taken


def take_records(item: FetchedItem, count_max: int, deserializers: Deserializers) -> Taken:
    """The next records of an item, `count_max` at most; none if it holds no more."""
    try:
        return _take(item, count_max, deserializers)
    except ProtocolError as cause:
        raise CorruptBatchError(item.state.key, item.damaged_at(), cause.message) from cause


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
    is_done = not item.has_more()
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
    try:
        run = read_records(item.state.key, list(item.blocks), item.state.position or 0)
    except ProtocolError:
        item.keep_blocks(1)  # one at a time, up to the one that is damaged
        run = read_records(item.state.key, list(item.blocks), item.state.position or 0)
    blocks = item.blocks
    return _Decoded(run, blocks[-1].next_offset(), blocks[-1].header[LEADER_EPOCH])
