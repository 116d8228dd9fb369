"""Reads the files of a partition into plain values, for people who look at them.

Reads anything that has the right name and says what is wrong with it instead of failing. Nothing
here is used by the broker.

Who compares it with Kafka's own DumpLogSegments (4.3.1): with `--deep-iteration` that tool reports
"Non-consecutive offsets, -1 is followed by N" for every segment that does not start at offset 0,
those that Kafka wrote included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.base.limits import DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX
from ottla.base.ports import File
from ottla.log import file_names, offset_index, producer_snapshot, time_index, txn_index
from ottla.log.batch_scan import batch_size, crc_holds, is_sound, next_offset, read_batch
from ottla.log.producer_snapshot import SnapshotEntry
from ottla.log.producer_state import last_sequence_of
from ottla.log.txn_index import AbortedTransaction
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_MASK,
    CRC,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_MASK,
    Header,
    read_header,
)
from ottla.records.batch_view import RecordView, records_of


@dataclass(slots=True)
class DumpedBatch:
    position: int
    size: int
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    magic: int
    codec: int
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    delete_horizon_ms: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    crc: int
    is_valid: bool
    """Whether the CRC holds."""


@dataclass(slots=True)
class DumpedLog:
    """`broken_at` is where no batch stands any more before the end of the file; -1 if nowhere."""

    batches: list[DumpedBatch] = field(default_factory=list)
    size: int = 0
    broken_at: int = -1


@dataclass(slots=True)
class IndexFault:
    """An index entry that the log does not bear out."""

    slot: int
    offset: int
    position: int
    reason: str


def kind_of(path: str) -> str | None:
    """The suffix of a segment file by its name (`.log`, `.index`, ...); None for any other file."""
    name = path.rpartition("/")[2]
    if file_names.offset_of(name) is None:
        return None
    suffix = file_names.suffix_of(name)
    for marked in (file_names.DELETED, file_names.SWAP, file_names.CLEANED):
        suffix = suffix.removesuffix(marked)
    known = (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT)
    return suffix if suffix in known else None


def base_offset_of(path: str) -> int:
    """The offset in a segment file's name; 0 for any other file."""
    return file_names.offset_of(path.rpartition("/")[2]) or 0


def batches_of(file: File) -> Iterator[DumpedBatch]:
    """Every batch from the start; ends where none stands any more. See `dump_log` for where."""
    position, size = 0, file.size()
    while position + HEADER_SIZE <= size:
        header = read_header(file.read_at(position, HEADER_SIZE))
        if not is_sound(header, 0, size - position):
            return
        valid = crc_holds(memoryview(read_batch(file, position, header)), header)
        yield _batch(position, header, valid)
        position += batch_size(header)


def dump_log(file: File) -> DumpedLog:
    dumped = DumpedLog(list(batches_of(file)), file.size())
    end = dumped.batches[-1].position + dumped.batches[-1].size if dumped.batches else 0
    if end < dumped.size:
        dumped.broken_at = end
    return dumped


def records_in(file: File, batch: DumpedBatch) -> Iterator[RecordView]:
    """The records of one batch; ProtocolError if they can not be read."""
    limit = max(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX * batch.size)
    return records_of(file.read_at(batch.position, batch.size), limit)


def dump_offset_index(content: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of each entry; space behind the last one is left out."""
    usable = len(content) - len(content) % offset_index.ENTRY_BYTES
    entries = [
        (base_offset + relative, position)
        for relative, position in offset_index.ENTRY.iter_unpack(content[:usable])
    ]
    while entries and entries[-1] == (base_offset, 0):
        entries.pop()
    return entries


def dump_time_index(content: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp, offset) of each entry; space behind the last one is left out."""
    usable = len(content) - len(content) % time_index.ENTRY_BYTES
    entries = [
        (timestamp, base_offset + relative)
        for timestamp, relative in time_index.ENTRY.iter_unpack(content[:usable])
    ]
    while len(entries) > 1 and entries[-1] == (0, base_offset):
        entries.pop()
    return entries


def dump_txn_index(content: bytes) -> list[AbortedTransaction]:
    return list(txn_index.parse(content))


def dump_snapshot(content: bytes) -> list[SnapshotEntry] | None:
    """None if the file is torn, corrupt or of another version."""
    return producer_snapshot.decode(content)


def check_offset_index(entries: list[tuple[int, int]], file: File) -> list[IndexFault]:
    """What is wrong with the entries of an index, held against its log."""
    faults = []
    for slot, (offset, position) in enumerate(entries):
        head = file.read_at(position, HEADER_SIZE)
        reason = None
        if len(head) < HEADER_SIZE:
            reason = "the position is behind the end of the log"
        elif not is_sound(read_header(head), 0, file.size() - position):
            reason = "no batch starts there"
        elif next_offset(read_header(head)) - 1 != offset:
            reason = f"the batch there ends with offset {next_offset(read_header(head)) - 1}"
        if reason is not None:
            faults.append(IndexFault(slot, offset, position, reason))
    return faults


def _batch(position: int, header: Header, is_valid: bool) -> DumpedBatch:
    attributes = header[ATTRIBUTES]
    delta = header[LAST_OFFSET_DELTA]
    sequence = header[BASE_SEQUENCE]
    return DumpedBatch(
        position=position,
        size=batch_size(header),
        base_offset=header[BASE_OFFSET],
        last_offset=next_offset(header) - 1,
        record_count=header[RECORD_COUNT],
        leader_epoch=header[LEADER_EPOCH],
        magic=header[MAGIC],
        codec=attributes & CODEC_MASK,
        timestamp_type="LogAppendTime" if attributes & LOG_APPEND_TIME_MASK else "CreateTime",
        base_timestamp=header[BASE_TIMESTAMP],
        max_timestamp=header[MAX_TIMESTAMP],
        delete_horizon_ms=header[BASE_TIMESTAMP] if attributes & DELETE_HORIZON_MASK else None,
        producer_id=header[PRODUCER_ID],
        producer_epoch=header[PRODUCER_EPOCH],
        base_sequence=sequence,
        last_sequence=last_sequence_of(sequence, delta) if sequence >= 0 else -1,
        is_transactional=bool(attributes & TRANSACTIONAL_MASK),
        is_control=bool(attributes & CONTROL_MASK),
        crc=header[CRC],
        is_valid=is_valid,
    )
