"""What stays of each batch, and the bytes that are stored for it afterwards.

Of a key the record with the latest offset stays. Offsets never change: a batch keeps its first and
last offset, its sequences and its producer, whatever is taken out of it. A batch of which all stays
is copied byte for byte; of others the records that stay are copied as they are. So a reader finds
gaps and nothing else that is new.

Tombstones, and markers of transactions of which nothing is left, stay until everybody who reads
the log had time to see them: when they are first cleaned, the batch gets its *delete horizon* (now
+ delete.retention.ms), a bit in the attributes, with the horizon itself in the base timestamp and
the records' time deltas made to fit. After it they go (KIP-534).

A batch without records stays where something rests on its header: the last batch of each producer
that is still known (its sequence and epoch), and the last batch of all that is cleaned, where the
log would seem to end if nothing followed. More would hurt: after some answers in a row without any
record, librdkafka takes what it reads for a message that is too large. The last batch of
a producer is the last of those that are cleaned, whatever it wrote behind them: Kafka keeps the
very last only, and when the end of the log is lost or truncated it has forgotten the producer.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import numpy as np

from ottla.base.ports import Buffer
from ottla.log.batch_scan import next_offset
from ottla.log.compaction_batches import BatchRun
from ottla.log.compaction_columns import columns_of, has_values
from ottla.log.compaction_plan import ProducerEnds
from ottla.log.compaction_transactions import TransactionWalk
from ottla.log.key_map import KeyHasher, KeyMap
from ottla.log.log_config import LONG_MAX
from ottla.records.batch_header import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_MASK,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    Header,
)
from ottla.records.columns import Flags, RecordColumns
from ottla.records.compression import NONE, compress
from ottla.records.crc32c import crc32c
from ottla.records.varints import varint

_ROOM_FOR_HEADER = bytes(HEADER_SIZE)
_UINT32 = Struct(">I")
NO_TIMESTAMP = -1
_LONG_MIN = -LONG_MAX - 1

Kept = tuple[Header, Buffer]
"""A batch of the cleaned segment: its header, and all of its bytes."""


class Newest(NamedTuple):
    """What a cleaning knows of the dirty section: the latest offset of each key, up to `last`."""

    hasher: KeyHasher
    keys: KeyMap
    last_offset: int


class BatchFilter:
    """Goes over the batches of a cleaning, run by run, in offset order."""

    __slots__ = ("_delete_retention_ms", "_newest", "_now_ms", "_producers", "_transactions")

    def __init__(
        self,
        newest: Newest,
        transactions: TransactionWalk,
        producers: ProducerEnds,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._newest = newest
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def filter_run(self, run: BatchRun) -> list[Kept]:
        """What is kept of a run."""
        kept: dict[int, Kept | None] = {}
        with_records: list[int] = []
        for number, header in enumerate(run.headers):
            discarded = self._judge(run, number, header, kept)
            if not discarded:
                with_records.append(number)
        for columns in columns_of(run, with_records):
            self._filter_records(run, columns, kept)
        result = []
        for number, header in enumerate(run.headers):
            batch = kept[number]
            if batch is not None:
                result.append(batch)
            elif self._is_last_of_producer(header):
                result.append(without_records(run, number))
        return result

    # -- batches ------------------------------------------------------------------------------

    def _judge(
        self, run: BatchRun, number: int, header: Header, kept: dict[int, Kept | None]
    ) -> bool:
        """Decides on the batch as a whole, if it can be; False if its records have to be seen."""
        if header[ATTRIBUTES] & CONTROL_MASK:
            kept[number] = self._filter_control(run, number, header)
            return True
        if self._transactions.on_batch(header) or header[RECORD_COUNT] == 0:
            kept[number] = None
            return True
        return False

    def _filter_control(self, run: BatchRun, number: int, header: Header) -> Kept | None:
        batch = _bytes_of(run, number)
        nothing_left = self._transactions.on_control_batch(header, batch)
        if header[RECORD_COUNT] == 0:
            return None
        if not nothing_left:
            return header, batch
        if not header[ATTRIBUTES] & DELETE_HORIZON_MASK:
            (columns,) = columns_of(run, [number])
            keep = KeptRecords(columns, np.ones(header[RECORD_COUNT], np.bool_))
            return self._rebuilt(header, keep, 0, header[RECORD_COUNT], True)
        return None if header[BASE_TIMESTAMP] <= self._now_ms else (header, batch)

    def _is_last_of_producer(self, header: Header) -> bool:
        producer_id = header[PRODUCER_ID]
        last_offset = self._producers.last_offsets.get(producer_id)
        if last_offset is not None:
            return next_offset(header) - 1 == last_offset
        # Only a marker is known of it: that keeps its epoch, which fences older ones.
        epoch = self._producers.marker_epochs.get(producer_id)
        return bool(header[ATTRIBUTES] & CONTROL_MASK) and header[PRODUCER_EPOCH] == epoch

    # -- records ------------------------------------------------------------------------------

    def _filter_records(
        self, run: BatchRun, columns: RecordColumns, kept: dict[int, Kept | None]
    ) -> None:
        headers = [run.headers[region.number] for region in columns.regions]
        has_value = has_values(columns)
        unknown = columns.offsets > self._newest.last_offset
        keep = KeptRecords(columns, self._is_kept(columns, headers, has_value) | unknown)
        tombstones = columns.per_region(keep.flags & ~has_value & ~unknown)
        for row, count in enumerate(columns.per_region(keep.flags)):
            number, header = columns.regions[row].number, headers[row]
            # Where the map ends within the batch, older values of its keys may still be there:
            # its time to be seen has not begun.
            needs_horizon = (
                tombstones[row] > 0
                and not header[ATTRIBUTES] & DELETE_HORIZON_MASK
                and next_offset(header) - 1 <= self._newest.last_offset
            )
            if count == 0:
                kept[number] = None
            elif count == header[RECORD_COUNT] and not needs_horizon:
                kept[number] = header, _bytes_of(run, number)
            else:
                kept[number] = self._rebuilt(header, keep, row, count, needs_horizon)

    def _is_kept(self, columns: RecordColumns, headers: list[Header], has_value: Flags) -> Flags:
        hasher, keys, _ = self._newest
        hashes = hasher.hash_keys(columns.packed, columns.key_starts, columns.key_lengths)
        newest: Flags = columns.offsets >= keys.latest(hashes)
        # A record without a key can only be from before the topic was compacted; Kafka drops it.
        newest &= columns.key_lengths >= 0
        horizon_passed = [
            bool(header[ATTRIBUTES] & DELETE_HORIZON_MASK)
            and header[BASE_TIMESTAMP] <= self._now_ms
            for header in headers
        ]
        if any(horizon_passed):
            newest &= has_value | ~columns.spread(np.array(horizon_passed))
        return newest

    # -- rebuilding ---------------------------------------------------------------------------

    def _rebuilt(
        self, header: Header, keep: KeptRecords, row: int, count: int, set_horizon: bool
    ) -> Kept:
        """The batch with the kept records alone."""
        fields = list(header)
        fields[RECORD_COUNT] = count
        if not header[ATTRIBUTES] & LOG_APPEND_TIME_MASK:
            fields[MAX_TIMESTAMP] = _in_64_bits(header[BASE_TIMESTAMP] + keep.latest_delta(row))
        if set_horizon:
            # A retention that is meant to be for ever stays that, whatever the time is.
            fields[BASE_TIMESTAMP] = min(self._now_ms + self._delete_retention_ms, LONG_MAX)
            fields[ATTRIBUTES] |= DELETE_HORIZON_MASK
            records = keep.shifted(row, header[BASE_TIMESTAMP] - fields[BASE_TIMESTAMP])
        else:
            records = keep.pieces(row)
        codec = header[ATTRIBUTES] & CODEC_MASK
        if codec != NONE:
            records = [compress(codec, b"".join(records))]
        return _packed_batch(fields, records)


class KeptRecords:
    """The bytes of the records that stay, by region. What it takes to find them is worked out for
    all regions at once, when the first is asked for."""

    __slots__ = ("_columns", "_ends", "_latest", "_piece_at", "_starts", "flags")

    def __init__(self, columns: RecordColumns, flags: Flags) -> None:
        self._columns = columns
        self.flags = flags
        self._starts: list[int] | None = None
        self._ends: list[int] = []
        self._piece_at: list[int] = []
        self._latest: list[int] | None = None

    def pieces(self, row: int) -> list[Buffer]:
        """The records of a region as they are; neighbours in one piece."""
        if self._starts is None:
            self._find_pieces()
        view = memoryview(self._columns.data)
        first, behind = self._piece_at[row], self._piece_at[row + 1]
        starts, ends = self._starts or [], self._ends
        return [view[starts[piece] : ends[piece]] for piece in range(first, behind)]

    def shifted(self, row: int, shift: int) -> list[Buffer]:
        """The records with `shift` added to their time deltas, which changes their lengths too."""
        columns = self._columns
        data = columns.data
        rows = slice(columns.firsts[row], columns.firsts[row + 1])
        keep = self.flags[rows]
        records: list[Buffer] = []
        for delta, after, end in zip(
            columns.time_deltas[rows][keep].tolist(),
            columns.after_times[rows][keep].tolist(),
            columns.ends[rows][keep].tolist(),
            strict=True,
        ):
            # The attributes of a record are not in use, and written as 0.
            body = b"\x00" + varint(_in_64_bits(delta + shift)) + data[after:end]
            records.append(varint(len(body)))
            records.append(body)
        return records

    def latest_delta(self, row: int) -> int:
        """The largest time delta of the kept records of a region that has some."""
        if self._latest is None:
            columns = self._columns
            deltas = np.where(self.flags, columns.time_deltas, np.iinfo(np.int64).min)
            self._latest = np.maximum.reduceat(deltas, columns.firsts[:-1]).tolist()
        return self._latest[row]

    def _find_pieces(self) -> None:
        columns, flags = self._columns, self.flags
        follows = np.concatenate(([False], flags[:-1]))
        follows[columns.firsts[:-1]] = False
        begins = flags & ~follows
        is_followed = np.concatenate((flags[1:], [False]))
        is_followed[columns.firsts[1:] - 1] = False
        self._starts = columns.starts[begins].tolist()
        self._ends = columns.ends[flags & ~is_followed].tolist()
        self._piece_at = np.concatenate(([0], np.cumsum(begins)))[columns.firsts].tolist()


def _in_64_bits(time_ms: int) -> int:
    """Nobody checks the times that producers write: from the end of all times to the beginning is
    more than a number of the format can say. What does not fit becomes the nearest that does."""
    return max(_LONG_MIN, min(time_ms, LONG_MAX))


def _packed_batch(fields: list[int], records: list[Buffer]) -> Kept:
    batch = bytearray().join([_ROOM_FOR_HEADER, *records])
    fields[BATCH_LENGTH] = len(batch) - LENGTH_END
    HEADER.pack_into(batch, 0, *fields)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return tuple(fields), batch


def without_records(run: BatchRun, number: int) -> Kept:
    """The header alone, for what it says of offsets and of its producer."""
    header = run.headers[number]
    if header[RECORD_COUNT] == 0:
        return header, _bytes_of(run, number)
    fields = list(header)
    fields[ATTRIBUTES] &= ~(CODEC_MASK | DELETE_HORIZON_MASK)
    fields[BASE_TIMESTAMP] = NO_TIMESTAMP
    fields[RECORD_COUNT] = 0
    return _packed_batch(fields, [])


def _bytes_of(run: BatchRun, number: int) -> memoryview:
    return memoryview(run.chunk)[run.starts[number] : run.end(number)]
