"""Reads the files of a log, ours or Apache Kafka's, and judges them; changes nothing.

Gives what it finds one by one (`Batch`, `Record`, index entries, ...), and a `Problem` wherever
something is wrong, so that a file of any size can be shown. Reads with plain file operations: a
broker may be at work on the same files, and the end of a log that it writes to may look torn.

A batch with a wrong CRC does not end the reading, its length leads to the next one; a length or a
magic number that makes no sense does. Indexes are held against the `.log` beside them, if there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ottla.base.errors import ProtocolError
from ottla.cli.failure import Failure
from ottla.cli.model import Headers
from ottla.log import file_names, offset_index, producer_snapshot, time_index, txn_index
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    CONTROL_MASK,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH_END,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    MAGIC_V2,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_MASK,
    Header,
    read_header,
)
from ottla.records.batch_view import is_intact, records_of
from ottla.records.compression import CODEC_NAMES

KINDS = (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT)

# A batch of our own disk may unpack to much, but not to all of the memory.
UNPACKED_BYTES_MAX = 256 * 1024 * 1024


@dataclass(slots=True)
class Batch:
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    position: int
    size_bytes: int
    codec: str
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    crc: int
    crc_ok: bool


@dataclass(slots=True)
class Record:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class OffsetEntry:
    offset: int
    position: int


@dataclass(slots=True)
class TimeEntry:
    timestamp: int
    offset: int


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(slots=True)
class Producer:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


@dataclass(slots=True)
class Problem:
    """`position` in the file, where there is one."""

    position: int | None
    reason: str


Found = Batch | Record | OffsetEntry | TimeEntry | AbortedTransaction | Producer | Problem


def files_of(path: Path) -> list[Path]:
    """The file itself, or those of a partition's directory that can be dumped; raises Failure where
    there are none: whoever gives the data directory must not read silence as `no problem`."""
    if not path.is_dir():
        return [path]
    try:
        found = sorted(one for one in path.iterdir() if kind_of(one) is not None)
    except OSError as cause:
        raise Failure(f"{path} cannot be read: {cause.strerror}") from cause
    if not found:
        raise Failure(f"{path} has no files of a log: give the directory of a partition")
    return found


def kind_of(path: Path) -> str | None:
    """`.log`, `.index`, ...; None for any other file."""
    if file_names.offset_of(path.name) is None:
        return None
    # A segment on its way out, or in, is still one: `.log.deleted`, `.log.swap`, `.log.cleaned`.
    kind = "." + file_names.suffix_of(path.name).split(".")[1]
    return kind if kind in KINDS else None


def dump(path: Path, *, with_records: bool) -> Iterator[Found]:
    """What the file holds, in its order; raises Failure for a file that cannot be read."""
    kind, base_offset = kind_of(path), file_names.offset_of(path.name)
    if kind is None or base_offset is None:
        if not path.exists():
            raise Failure(f"{path} cannot be read: No such file or directory")
        raise Failure(
            f"{path} is no file of a log: its name should be 20 digits and one of {' '.join(KINDS)}"
        )
    readers: dict[str, Callable[[int], Iterator[Found]]] = {
        file_names.LOG: lambda base: _dump_log(path, base, with_records),
        file_names.OFFSET_INDEX: lambda base: _dump_offset_index(path, base),
        file_names.TIME_INDEX: lambda base: _dump_time_index(path, base),
        file_names.TXN_INDEX: lambda base: _dump_txn_index(path),
        file_names.SNAPSHOT: lambda base: _dump_snapshot(path),
    }
    return _readable(path, readers[kind](base_offset))


def _readable(path: Path, found: Iterator[Found]) -> Iterator[Found]:
    try:
        yield from found
    except OSError as cause:
        raise Failure(f"{path} cannot be read: {cause.strerror}") from cause


def _dump_log(path: Path, base_offset: int, with_records: bool) -> Iterator[Found]:
    expected = base_offset
    with path.open("rb") as stream:
        for found, content in _batches(stream):
            yield found
            if isinstance(found, Problem):
                return
            if not found.crc_ok:
                yield Problem(found.position, f"the CRC of the batch is not {found.crc:#010x}")
            if found.base_offset < expected:
                yield Problem(
                    found.position,
                    f"offset {found.base_offset} where {expected} or more should be",
                )
            expected = max(expected, found.last_offset + 1)
            if with_records and found.crc_ok:
                yield from _records(found, content)


def _batches(stream: BinaryIO) -> Iterator[tuple[Batch, bytes] | tuple[Problem, bytes]]:
    """Every batch with its bytes; ends with a Problem where no batch can be."""
    position = 0
    while head := stream.read(HEADER_SIZE):
        header = read_header(head) if len(head) == HEADER_SIZE else None
        if header is None or not any(head):
            reason = "zeros" if not any(head) else f"{len(head)} bytes, too few for a batch"
            yield Problem(position, reason), b""
            return
        if header[MAGIC] != MAGIC_V2 or header[BATCH_LENGTH] < HEADER_SIZE - LENGTH_END:
            reason = f"no batch: magic {header[MAGIC]}, length {header[BATCH_LENGTH]}"
            yield Problem(position, reason), b""
            return
        size_bytes = LENGTH_END + header[BATCH_LENGTH]
        content = head + stream.read(size_bytes - HEADER_SIZE)
        if len(content) < size_bytes:
            reason = f"a batch of {size_bytes} bytes, of which {len(content)} are there"
            yield Problem(position, reason), b""
            return
        yield _batch_of(header, position, content), content
        position += size_bytes


def _batch_of(header: Header, position: int, content: bytes) -> Batch:
    attributes = header[ATTRIBUTES]
    codec = attributes & CODEC_MASK
    return Batch(
        base_offset=header[BASE_OFFSET],
        last_offset=header[BASE_OFFSET] + header[LAST_OFFSET_DELTA],
        record_count=header[RECORD_COUNT],
        leader_epoch=header[LEADER_EPOCH],
        position=position,
        size_bytes=len(content),
        codec=CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}",
        timestamp_type="LogAppendTime" if attributes & LOG_APPEND_TIME_MASK else "CreateTime",
        base_timestamp=header[BASE_TIMESTAMP],
        max_timestamp=header[MAX_TIMESTAMP],
        producer_id=header[PRODUCER_ID],
        producer_epoch=header[PRODUCER_EPOCH],
        base_sequence=header[BASE_SEQUENCE],
        transactional=bool(attributes & TRANSACTIONAL_MASK),
        control=bool(attributes & CONTROL_MASK),
        crc=header[CRC],
        crc_ok=is_intact(content),
    )


def _records(batch: Batch, content: bytes) -> Iterator[Found]:
    try:
        for record in records_of(content, UNPACKED_BYTES_MAX):
            yield Record(record.offset, record.timestamp, record.key, record.value, record.headers)
    except ProtocolError as error:
        yield Problem(batch.position, f"records that cannot be read: {error}")


@dataclass(slots=True)
class LogBeside:
    """What the `.log` beside an index says; None of it if there is no such file."""

    batches: list[Batch] = field(default_factory=list)
    by_position: dict[int, Batch] = field(default_factory=dict)
    there: bool = False


def _log_beside(path: Path) -> LogBeside:
    beside = path.with_name(path.name[: file_names.OFFSET_DIGITS] + file_names.LOG)
    log = LogBeside(there=beside.exists())
    if log.there:
        with beside.open("rb") as stream:
            for found, _ in _batches(stream):
                if isinstance(found, Batch):
                    log.batches.append(found)
                    log.by_position[found.position] = found
    return log


def _dump_offset_index(path: Path, base_offset: int) -> Iterator[Found]:
    content = path.read_bytes()
    log = _log_beside(path)
    last = OffsetEntry(base_offset - 1, -1)
    written = _written(content)
    for at in range(0, len(content) - offset_index.ENTRY_BYTES + 1, offset_index.ENTRY_BYTES):
        if at >= written:
            return
        relative, position = offset_index.ENTRY.unpack_from(content, at)
        entry = OffsetEntry(base_offset + relative, position)
        yield entry
        if entry.offset <= last.offset or entry.position <= last.position:
            yield Problem(at, "the entry is not above the one before it")
        last = entry
        if log.there:
            batch = log.by_position.get(position)
            if batch is None:
                yield Problem(at, f"no batch begins at position {position} of the log")
            elif not batch.base_offset <= entry.offset:
                yield Problem(at, f"offset {entry.offset} is before position {position} of the log")
    yield from _left_over(content, offset_index.ENTRY_BYTES)


def _dump_time_index(path: Path, base_offset: int) -> Iterator[Found]:
    content = path.read_bytes()
    waiting = iter(_log_beside(path).batches)
    batch = next(waiting, None)
    latest = -1
    last = TimeEntry(-1, base_offset - 1)
    written = _written(content)
    for at in range(0, len(content) - time_index.ENTRY_BYTES + 1, time_index.ENTRY_BYTES):
        if at >= written and len(content) > time_index.ENTRY_BYTES:
            return
        timestamp, relative = time_index.ENTRY.unpack_from(content, at)
        entry = TimeEntry(timestamp, base_offset + relative)
        yield entry
        if entry.timestamp <= last.timestamp or entry.offset < last.offset:
            yield Problem(at, "the entry is not above the one before it")
        last = entry
        while batch is not None and batch.base_offset <= entry.offset:
            latest = max(latest, batch.max_timestamp)
            batch = next(waiting, None)
        if latest > entry.timestamp:
            yield Problem(at, f"the log has timestamp {latest} up to offset {entry.offset}")
    yield from _left_over(content, time_index.ENTRY_BYTES)


def _dump_txn_index(path: Path) -> Iterator[Found]:
    content = path.read_bytes()
    entries = list(txn_index.parse(content))
    for entry in entries:
        yield AbortedTransaction(*entry)
    if len(entries) < len(content) // txn_index.ENTRY_BYTES:
        yield Problem(len(entries) * txn_index.ENTRY_BYTES, "an entry of an unknown version")
    yield from _left_over(content, txn_index.ENTRY_BYTES)


def _written(content: bytes) -> int:
    """Where the zeros begin that an index is made with and that nobody has written over."""
    return len(content.rstrip(b"\0"))


def _left_over(content: bytes, entry_bytes: int) -> Iterator[Problem]:
    left = len(content) % entry_bytes
    if left:
        yield Problem(len(content) - left, f"{left} bytes, too few for an entry")


def _dump_snapshot(path: Path) -> Iterator[Found]:
    entries = producer_snapshot.decode(path.read_bytes())
    if entries is None:
        yield Problem(None, "torn, of another version, or its CRC is wrong")
        return
    for entry in entries:
        yield Producer(*entry)
