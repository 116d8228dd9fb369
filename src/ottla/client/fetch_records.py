"""Fetched blocks as records, one object each, made many at a time.

Few records are read field by field; of many, the columns are found first (`ottla.records.columns`)
and the records made of those without a line of Python per record: 0.5 µs each, where field by field
takes 2.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple, Protocol

from ottla.base.errors import ProtocolError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Buffer
from ottla.client.consumer_errors import DeserializationError
from ottla.client.fetch_batches import RecordBlock
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LOG_APPEND_TIME_MASK,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from ottla.records.varints import read_varint, read_varlong

RecordHeaders = tuple[tuple[str, bytes | None], ...]

CREATE_TIME = 0
LOG_APPEND_TIME = 1

_COLUMNS_MIN = 48
"""Fewer records are read faster one by one."""

_make_record: Callable[..., Any] = tuple.__new__


class Record(NamedTuple):
    """What a consumer is handed: a tuple with names, so that it costs little and stays as it is."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """In milliseconds; -1 if there is none."""
    timestamp_type: int
    """0 the producer's, 1 the broker's."""
    key: Any
    value: Any
    headers: RecordHeaders
    leader_epoch: int


class Deserializers(NamedTuple):
    key: Callable[[bytes], Any] | None
    value: Callable[[bytes], Any] | None


class RecordRun(Protocol):
    """Records that have been read, and are made into objects some at a time."""

    def __len__(self) -> int: ...

    def some(self, start: int, end: int) -> list[Record]: ...


def read_records(
    partition: TopicPartition, blocks: Sequence[RecordBlock], position: int
) -> RecordRun:
    """The records from `position` on. Raises ProtocolError for what cannot be read."""
    if sum(block.header[RECORD_COUNT] for block in blocks) < _COLUMNS_MIN:
        read = [record for block in blocks for record in _read_block(partition, block)]
        return _FewRecords([record for record in read if record.offset >= position])
    return _ManyRecords(partition, blocks, position)


def deserialized(records: list[Record], deserializers: Deserializers) -> list[Record]:
    """Up to the first for which the user's function raises; DeserializationError for that one."""
    if deserializers.key is None and deserializers.value is None:
        return records
    done: list[Record] = []
    for record in records:
        try:
            done.append(_deserialized(record, deserializers))
        except Exception as cause:
            if done:
                break  # these first: it will be tried again, and told then
            key = (record.topic, record.partition)
            raise DeserializationError(key, record.offset, cause) from cause
    return done


def _deserialized(record: Record, deserializers: Deserializers) -> Record:
    """Null stays null: it is what says that a key is deleted."""
    key, value = record.key, record.value
    if deserializers.key is not None and key is not None:
        key = deserializers.key(key)
    if deserializers.value is not None and value is not None:
        value = deserializers.value(value)
    return record._replace(key=key, value=value)


class _FewRecords:
    __slots__ = ("_records",)

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def some(self, start: int, end: int) -> list[Record]:
        return self._records[start:end]


# -- many at a time -------------------------------------------------------------------------------


class _ManyRecords:
    """Columns as lists; records are made when they are handed out. Then they die young, before the
    garbage collector has looked at them twice: that saves a third."""

    __slots__ = ("_columns", "_count", "_first")

    def __init__(
        self, partition: TopicPartition, blocks: Sequence[RecordBlock], position: int
    ) -> None:
        # Loaded here: numpy takes a tenth of a second that a consumer of little can do without.
        from ottla.client.columns.rows import rows_of  # noqa: PLC0415

        rows = rows_of([_as_bytes(block) for block in blocks])
        columns = rows.columns
        values = columns.values()
        headers = columns.headers(values)
        counts = [block.header[RECORD_COUNT] for block in blocks]
        data = columns.data
        self._first = int((columns.offsets < position).sum())
        self._count = len(columns.offsets) - self._first
        self._columns: list[Any] = [
            partition[0],
            partition[1],
            columns.offsets.tolist(),
            rows.timestamps.tolist(),
            _per_row([int(flag) for flag in rows.is_append_time.tolist()], counts),
            _fields(data, columns.keys()),
            _fields(data, values),
            () if headers is None else _headers(data, headers),
            _per_row([block.header[LEADER_EPOCH] for block in blocks], counts),
        ]

    def __len__(self) -> int:
        return self._count

    def some(self, start: int, end: int) -> list[Record]:
        start, end = start + self._first, min(end, self._count) + self._first
        fields = zip(
            *(
                column[start:end] if isinstance(column, list) else repeat(column, end - start)
                for column in self._columns
            ),
            strict=True,
        )
        # Straight from tuple to Record: the class's own `_make` would run a line of Python each.
        return list(map(_make_record, repeat(Record), fields))


def _as_bytes(block: RecordBlock) -> RecordBlock:
    """Slices of bytes are bytes; those of a bytearray would have to be copied once more."""
    if isinstance(block.data, bytes):
        return block
    data = bytes(memoryview(block.data)[block.start : block.end])
    return RecordBlock(block.header, data, 0, len(data))


def _per_row(of_blocks: list[int], counts: list[int]) -> list[int] | int:
    """One for each row, or one for all."""
    if len(set(of_blocks)) == 1:
        return of_blocks[0]
    return list(chain.from_iterable(map(repeat, of_blocks, counts)))


def _fields(data: Buffer, column: Any) -> list[Any] | None:
    """None if all are null."""
    missing = column.lengths < 0
    if missing.all():
        return None
    starts, ends = column.starts.tolist(), column.ends().tolist()
    if not missing.any():
        return [data[start:end] for start, end in zip(starts, ends, strict=True)]
    return [
        None if is_null else data[start:end]
        for start, end, is_null in zip(starts, ends, missing.tolist(), strict=True)
    ]


def _headers(data: Buffer, headers: Any) -> list[RecordHeaders]:
    raw = _fields(data, headers.names) or []
    names = [name.decode(errors="replace") for name in raw]
    values = _fields(data, headers.values) or [None] * len(names)
    pairs = list(zip(names, values, strict=True))
    firsts = headers.firsts.tolist()
    return [tuple(pairs[start:end]) for start, end in pairwise(firsts)]


# -- one by one -----------------------------------------------------------------------------------


def _read_block(partition: TopicPartition, block: RecordBlock) -> list[Record]:
    data = bytes(memoryview(block.data)[block.start : block.end])
    at = 0
    records = []
    try:
        for _ in range(block.header[RECORD_COUNT]):
            record, at = _read_record(partition, block, data, at)
            records.append(record)
    except IndexError as cause:
        raise _damaged("a record runs over the end of its batch") from cause
    if at != len(data):
        raise _damaged("bytes are left over behind the last record")
    return records


def _read_record(
    partition: TopicPartition, block: RecordBlock, data: bytes, at: int
) -> tuple[Record, int]:
    header = block.header
    length, at = read_varint(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise _damaged("the length of a record is wrong")
    time_delta, at = read_varlong(data, at + 1)
    offset_delta, at = read_varint(data, at)
    if not 0 <= offset_delta <= header[LAST_OFFSET_DELTA]:
        raise _damaged(f"offset delta {offset_delta} is outside of the batch")
    key, at = _read_field(data, at, end)
    value, at = _read_field(data, at, end)
    count, at = read_varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_field(data, at, end)
        content, at = _read_field(data, at, end)
        headers.append(((name or b"").decode(errors="replace"), content))
    if at != end or count < 0:
        raise _damaged("the fields of a record do not fill its length")
    is_append_time = bool(header[ATTRIBUTES] & LOG_APPEND_TIME_MASK)
    record = Record(
        partition[0],
        partition[1],
        header[BASE_OFFSET] + offset_delta,
        header[MAX_TIMESTAMP] if is_append_time else header[BASE_TIMESTAMP] + time_delta,
        LOG_APPEND_TIME if is_append_time else CREATE_TIME,
        key,
        value,
        tuple(headers),
        header[LEADER_EPOCH],
    )
    return record, end


def _read_field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise _damaged("the length of a field is wrong")
    return data[at : at + length], at + length


def _damaged(what: str) -> ProtocolError:
    return ProtocolError(CORRUPT_MESSAGE, what)
