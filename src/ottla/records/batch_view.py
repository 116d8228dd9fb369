"""Reads the records of a stored batch: for the dump, lookup by time, compaction's tests, tools.

Owns the reading of any batch of format 2 that may stand in a log: packed or not, control batches,
batches from which compaction took records (gaps in the offsets, or none left). Trusts nothing: each
length is held against the bytes that are there, unpacking stops at `limit`, and whatever does not
fit raises ProtocolError(CORRUPT_MESSAGE). Never on the produce path, and never checks the checksum
unasked: `is_intact` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.base.errors import ProtocolError
from ottla.base.ports import Buffer
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records.batch_header import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH_END,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    MAGIC_V2,
    MAX_TIMESTAMP,
    RECORD_COUNT,
    Header,
    read_header,
)
from ottla.records.compression import NONE, decompress
from ottla.records.crc32c import crc32c
from ottla.records.varints import read_varint, read_varlong

_FIELD_BYTES_MIN = 2
"""What a header of a record takes at least: two lengths."""


@dataclass(slots=True)
class RecordView:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def is_intact(batch: Buffer) -> bool:
    """Whether `batch` is whole and its checksum is right."""
    if len(batch) < HEADER_SIZE:
        return False
    header = read_header(batch)
    end = header[BATCH_LENGTH] + LENGTH_END
    if header[MAGIC] != MAGIC_V2 or not HEADER_SIZE <= end <= len(batch):
        return False
    return crc32c(memoryview(batch)[ATTRIBUTES_POSITION:end]) == header[CRC]


def records_of(batch: Buffer, limit: int) -> Iterator[RecordView]:
    """The records of the batch at the start of `batch`, one after the other.

    What is packed may unpack to `limit` bytes: past that, MESSAGE_TOO_LARGE.
    """
    header = _read_whole_header(batch)
    packed = memoryview(batch)[HEADER_SIZE : header[BATCH_LENGTH] + LENGTH_END]
    codec = header[ATTRIBUTES] & CODEC_MASK
    # Compaction may leave a batch with nothing in it, to keep what it says of its producer.
    data = bytes(packed) if codec == NONE or not packed else decompress(codec, packed, limit)
    position = 0
    for _ in range(header[RECORD_COUNT]):
        try:
            record, position = _read_record(data, position, header)
        except IndexError as cause:
            raise _damaged("a record runs over the end of its batch") from cause
        except ProtocolError as cause:
            raise _damaged(cause.message) from cause
        yield record
    if position != len(data):
        raise _damaged("bytes are left over behind the last record")


def _damaged(what: str) -> ProtocolError:
    return ProtocolError(CORRUPT_MESSAGE, what)


def _read_whole_header(batch: Buffer) -> Header:
    if len(batch) < HEADER_SIZE:
        raise _damaged("the batch is shorter than its header")
    header = read_header(batch)
    if header[MAGIC] != MAGIC_V2:
        raise _damaged(f"magic {header[MAGIC]} cannot be read")
    if not HEADER_SIZE <= header[BATCH_LENGTH] + LENGTH_END <= len(batch):
        raise _damaged("the length of the batch is wrong")
    if header[RECORD_COUNT] < 0:
        raise _damaged("the number of records is wrong")
    return header


def _read_record(data: bytes, position: int, header: Header) -> tuple[RecordView, int]:
    length, position = read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise _damaged("the length of a record is wrong")
    timestamp_delta, position = read_varlong(data, position + 1)
    offset_delta, position = read_varint(data, position)
    if not 0 <= offset_delta <= header[LAST_OFFSET_DELTA]:
        raise _damaged(f"offset delta {offset_delta} is outside of the batch")
    key, position = _read_field(data, position, end)
    value, position = _read_field(data, position, end)
    headers, position = _read_headers(data, position, end)
    if position != end:
        raise _damaged("the fields of a record do not fill its length")
    if header[ATTRIBUTES] & LOG_APPEND_TIME_MASK:
        timestamp = header[MAX_TIMESTAMP]
    else:
        timestamp = header[BASE_TIMESTAMP] + timestamp_delta
    return RecordView(header[BASE_OFFSET] + offset_delta, timestamp, key, value, headers), end


def _read_field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise _damaged("the length of a field is wrong")
    return data[position : position + length], position + length


def _read_headers(
    data: bytes, position: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= count * _FIELD_BYTES_MIN <= end - position:
        raise _damaged("the number of headers is wrong")
    headers = []
    for _ in range(count):
        name, position = _read_field(data, position, end)
        if name is None:
            raise _damaged("a header has no name")
        value, position = _read_field(data, position, end)
        # Java reads them so, too: what is no UTF-8 shows as a mark, and does not stop a reader.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position
