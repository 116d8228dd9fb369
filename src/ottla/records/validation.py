"""The produce door: what a client sends for one partition becomes one batch to store, or a refusal.

Owns every check that Apache Kafka makes on a produced batch, in its order and with its codes, and
the three reasons for which a batch is not stored as it came: the topic's LogAppendTime, the topic's
codec, a wrong maxTimestamp. Records are never re-encoded: at most they are packed differently.
Never raises anything but ProtocolError, whatever the bytes are.

What the record walk adds to Kafka's checks: offset deltas must be 0, 1, 2, ... in plain batches too
(Kafka stores them unread), and what Kafka answers with UNKNOWN_SERVER_ERROR, because its parser
fell over, is INVALID_RECORD here.

Cost of a batch of 16 KiB, all in, by bench/micro/bench_validation.py where its checksum alone takes
1.1 µs: 4 µs for 16 records of 1 KB, 6 µs for 150 of 100 B, 50 µs if their sizes vary, 75 µs with
keys besides. A single record of 1 KB takes 3.3 µs, a megabyte of 1 KB records 105 µs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from ottla.base.errors import ProtocolError
from ottla.base.ids import NO_TIMESTAMP
from ottla.base.limits import (
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSED_RATIO_MAX,
    LOOP_DECOMPRESS_BYTES_MAX,
)
from ottla.base.ports import Buffer
from ottla.native import compiled
from ottla.protocol.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.records.batch_header import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    CONTROL_MASK,
    CRC,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    MAGIC_POSITION,
    MAGIC_V2,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_POSITION,
    RECORD_COUNT,
    TRANSACTIONAL_MASK,
    Header,
    read_header,
)
from ottla.records.compression import NONE, ZSTD, compress, decompress
from ottla.records.crc32c import crc32c, crc32c_of_bytes
from ottla.records.shapes import count_batch, shape_of
from ottla.records.walk import RecordWalk, walk_records

LOG_APPEND_TIME = "LogAppendTime"

# A refusal names this many records; a batch of a megabyte could have 150,000 of them to name.
RECORD_ERRORS_MAX = 1_000

# A plain batch of more records than this, none like the other, is walked for a millisecond.
_LOOP_RECORDS_MAX = 4_096

# A batch of the older formats has this many bytes after its length at least (Kafka's constant).
_BATCH_LENGTH_MIN = 14
_INT64_MAX = (1 << 63) - 1

# Behind the attributes' position, which is where the checksum begins, the records begin here.
_RECORDS_IN_BODY = HEADER_SIZE - ATTRIBUTES_POSITION

_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT16 = Struct(">h")
_INT64 = Struct(">q")


@dataclass(slots=True)
class ProduceRules:
    """What a topic and the version of the request ask of a batch."""

    max_message_bytes: int
    compression_codec: int | None  # None: whatever the producer chose
    compression_level: int | None
    timestamp_type: str  # "CreateTime" or "LogAppendTime"
    before_max_ms: int
    after_max_ms: int
    compacted: bool
    zstd_allowed: bool  # since Produce v7
    keeps_plain: bool = field(init=False)  # a plain batch is stored as it came

    def __post_init__(self) -> None:
        plain_fits = self.compression_codec in (None, NONE)
        self.keeps_plain = plain_fits and self.timestamp_type != LOG_APPEND_TIME


@dataclass(slots=True)
class Validated:
    """`batch` is what to store: the bytes that came, or a new bytearray; `header` is its own."""

    header: Header
    batch: Buffer


class InvalidRecords(ProtocolError):
    """Records that break a rule of the topic: which ones (by index in the batch), and how."""

    def __init__(self, code: int, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class NotOneBatch(ProtocolError):
    """What came is not one batch that this version of the request may have. Kafka refuses that
    before it goes to the partition, and so tells nothing of its log."""


def needs_pool(records: memoryview | None, rules: ProduceRules) -> bool:
    """Whether to validate these is too long a work for the event loop."""
    if records is None or len(records) <= LOOP_DECOMPRESS_BYTES_MAX:
        return False
    header = read_header(records)
    return (
        header[ATTRIBUTES] & CODEC_MASK != NONE
        or rules.compression_codec not in (None, NONE)
        or rules.timestamp_type == LOG_APPEND_TIME
        or header[RECORD_COUNT] > _LOOP_RECORDS_MAX
    )


def validate_produced(records: memoryview | None, rules: ProduceRules, now_ms: int) -> Validated:
    if records is not None:
        header = familiar_header(records, rules, now_ms)
        if header is not None:
            return Validated(header, records)
    return validate_unfamiliar(records, rules, now_ms)


def validate_unfamiliar(records: memoryview | None, rules: ProduceRules, now_ms: int) -> Validated:
    """As `validate_produced`, for what has no `familiar_header`."""
    if records is None or len(records) < HEADER_SIZE:
        raise _refuse_fragment(records)
    size = len(records)
    header = read_header(records)
    codec = header[ATTRIBUTES] & CODEC_MASK
    if header[BATCH_LENGTH] != size - LENGTH_END or header[MAGIC] != MAGIC_V2:
        raise _refuse_framing(header, size)
    if codec == ZSTD and not rules.zstd_allowed:
        raise NotOneBatch(UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer")
    if header[BASE_OFFSET] != 0:
        raise ProtocolError(INVALID_RECORD, "the base offset of a produced batch must be 0")
    if size > rules.max_message_bytes:
        raise _refuse_size(size, rules)
    # One copy for the checksum and the walk: both want `bytes`.
    body = records[ATTRIBUTES_POSITION:].tobytes()
    if crc32c(body) != header[CRC]:
        raise ProtocolError(CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    _check_header(header)
    walk = _walk(body, header, rules)
    max_timestamp = _check_records(header, rules, now_ms, walk)
    if rules.compression_codec not in (None, codec):
        return _repack(records, rules, max_timestamp, walk)
    if max_timestamp != header[MAX_TIMESTAMP] or rules.timestamp_type == LOG_APPEND_TIME:
        return _finish(bytearray(records), rules, max_timestamp)
    return Validated(header, records)


def _walk(body: bytes, header: Header, rules: ProduceRules) -> RecordWalk:
    codec, count = header[ATTRIBUTES] & CODEC_MASK, header[RECORD_COUNT]
    if codec == NONE:
        walk = walk_records(body, _RECORDS_IN_BODY, count)
        if rules.keeps_plain and compiled is None:
            count_batch(body, _RECORDS_IN_BODY, count)
        return walk
    return walk_records(_unpacked(codec, body), 0, count)


def _unpacked(codec: int, body: bytes) -> bytes:
    size = ATTRIBUTES_POSITION + len(body)
    limit = max(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX * size)
    try:
        return decompress(codec, memoryview(body)[_RECORDS_IN_BODY:], limit)
    except ProtocolError as refused:
        if refused.code != CORRUPT_MESSAGE:
            raise
        # The checksum is right, so it was not damaged on its way: it comes like this every time,
        # and CORRUPT_MESSAGE would make a client send it again for as long as it may.
        raise ProtocolError(INVALID_RECORD, refused.message) from refused


def familiar_header(records: memoryview, rules: ProduceRules, now_ms: int) -> Header | None:
    """The header of a batch that is right, is to be stored as it came, and is like many before it:
    a short cut for those. None says nothing about a batch: it has to be looked at in full. The
    compiled twin knows all shapes."""
    if not rules.keeps_plain:
        return None
    if compiled is not None:
        return compiled.good_header(
            records,
            rules.max_message_bytes,
            rules.compacted,
            now_ms - rules.before_max_ms,
            min(now_ms + rules.after_max_ms, _INT64_MAX),
        )
    size = len(records)
    if size < HEADER_SIZE:
        return None
    header = HEADER.unpack_from(records)
    # fmt: off
    (base_offset, length, _, magic, checksum, attributes, last_offset_delta, base_timestamp,
     max_timestamp, producer_id, epoch, sequence, count) = header
    # fmt: on
    shape = shape_of((count, size - HEADER_SIZE))
    if (
        shape is None
        or base_offset
        or length != size - LENGTH_END
        or magic != MAGIC_V2
        or attributes & ~TRANSACTIONAL_MASK
        or last_offset_delta != count - 1
        or size > rules.max_message_bytes
        or (rules.compacted and not shape.has_keys)
        or (producer_id != -1 and (producer_id < 0 or sequence < 0 or epoch < 0))
    ):
        return None
    body = records[ATTRIBUTES_POSITION:].tobytes()
    if crc32c_of_bytes(body) != checksum:
        return None
    delta = shape.largest_delta(body, _RECORDS_IN_BODY)
    if delta is None or max_timestamp != base_timestamp + delta:
        return None
    # No delta of a familiar shape is below -64.
    if max_timestamp < NO_TIMESTAMP or max_timestamp > now_ms + rules.after_max_ms:
        return None
    return None if base_timestamp - 64 < now_ms - rules.before_max_ms else header


def _refuse_fragment(records: memoryview | None) -> NotOneBatch:
    """Too short for a header: Kafka looks at as much of it as there is."""
    if not records:
        return NotOneBatch(INVALID_RECORD, "there is no batch in the partition's records")
    if len(records) > MAGIC_POSITION:
        length = _INT32.unpack_from(records, 8)[0]
        if length < _BATCH_LENGTH_MIN or records[MAGIC_POSITION] > MAGIC_V2:
            return NotOneBatch(CORRUPT_MESSAGE, "the length or the magic of the batch is wrong")
        if records[MAGIC_POSITION] == MAGIC_V2 and length + LENGTH_END <= len(records):
            return NotOneBatch(CORRUPT_MESSAGE, "the batch is shorter than its own header")
    return NotOneBatch(INVALID_RECORD, "the batch is cut short")


def _refuse_framing(header: Header, size: int) -> NotOneBatch:
    """Its length or its magic is wrong: the code depends on what Kafka would look at first."""
    batch_size = header[BATCH_LENGTH] + LENGTH_END
    magic = header[MAGIC]
    if header[BATCH_LENGTH] < _BATCH_LENGTH_MIN:
        return NotOneBatch(CORRUPT_MESSAGE, f"the batch declares {batch_size} bytes")
    if not 0 <= magic <= MAGIC_V2:
        return NotOneBatch(CORRUPT_MESSAGE, f"unknown magic {magic}")
    if batch_size > size:
        return NotOneBatch(INVALID_RECORD, "the batch is cut short")
    if magic != MAGIC_V2:
        return NotOneBatch(INVALID_RECORD, f"magic {magic} is no longer taken, only magic 2")
    if batch_size < HEADER_SIZE:
        return NotOneBatch(CORRUPT_MESSAGE, "the batch is shorter than its own header")
    return NotOneBatch(INVALID_RECORD, "there is more than one batch for the partition")


def _refuse_size(size: int, rules: ProduceRules) -> ProtocolError:
    return ProtocolError(
        MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes is larger than max.message.bytes ({rules.max_message_bytes})",
    )


def _check_header(header: Header) -> None:
    _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, count = header
    if count <= 0 or last_offset_delta != count - 1:
        raise ProtocolError(
            INVALID_RECORD,
            f"{count} records do not go with a last offset delta of {last_offset_delta}",
        )
    if producer_id != -1 and (producer_id < 0 or sequence < 0):
        raise ProtocolError(INVALID_RECORD, "a producer id needs a sequence")
    if attributes & CONTROL_MASK:
        raise ProtocolError(INVALID_RECORD, "clients may not write control batches")
    if attributes & LOG_APPEND_TIME_MASK:
        raise ProtocolError(INVALID_TIMESTAMP, "only the broker sets the time type LogAppendTime")
    if producer_id >= 0 and epoch < 0:
        raise ProtocolError(INVALID_PRODUCER_EPOCH, f"{epoch} is no epoch of a producer")


def _check_records(header: Header, rules: ProduceRules, now_ms: int, walk: RecordWalk) -> int:
    """Refuses records that break a rule of the topic; gives the timestamp to store as maximum."""
    if rules.timestamp_type == LOG_APPEND_TIME:
        suspect = False
        max_timestamp = now_ms
    else:
        base = header[BASE_TIMESTAMP]
        max_timestamp = base + walk.delta_max
        max_timestamp = max_timestamp if max_timestamp > NO_TIMESTAMP else NO_TIMESTAMP
        suspect = (
            max_timestamp > now_ms + rules.after_max_ms
            or max_timestamp > _INT64_MAX
            or base + walk.delta_not_below < now_ms - rules.before_max_ms
        )
    if suspect or (rules.compacted and walk.null_key_suspected):
        _refuse_records(header, rules, now_ms, walk)
    return max_timestamp


def _refuse_records(header: Header, rules: ProduceRules, now_ms: int, walk: RecordWalk) -> None:
    """Finds the records at fault one by one. A time out of range decides the code, as in Kafka."""
    earliest = now_ms - rules.before_max_ms
    latest = min(now_ms + rules.after_max_ms, _INT64_MAX)
    any_time = rules.timestamp_type == LOG_APPEND_TIME
    code = INVALID_RECORD
    errors: list[tuple[int, str]] = []
    for index, (delta, key_is_null) in enumerate(walk.outlines()):
        timestamp = header[BASE_TIMESTAMP] + delta
        if rules.compacted and key_is_null:
            errors.append((index, "a compacted topic takes no record without a key"))
        elif not (any_time or timestamp == NO_TIMESTAMP or earliest <= timestamp <= latest):
            code = INVALID_TIMESTAMP
            errors.append((index, f"timestamp {timestamp} is not in {earliest} .. {latest}"))
        if len(errors) == RECORD_ERRORS_MAX:
            break
    if errors:
        raise InvalidRecords(code, f"{len(errors)} records refused: {errors[0][1]}", errors)


def _repack(
    records: memoryview, rules: ProduceRules, max_timestamp: int, walk: RecordWalk
) -> Validated:
    """The same records under the topic's codec."""
    codec = rules.compression_codec or NONE
    batch = bytearray(records[:HEADER_SIZE])
    batch += compress(codec, memoryview(walk.data)[walk.start :], rules.compression_level)
    if len(batch) > rules.max_message_bytes:
        raise _refuse_size(len(batch), rules)
    _INT32.pack_into(batch, LENGTH_END - _INT32.size, len(batch) - LENGTH_END)
    (attributes,) = _INT16.unpack_from(batch, ATTRIBUTES_POSITION)
    _INT16.pack_into(batch, ATTRIBUTES_POSITION, attributes & ~CODEC_MASK | codec)
    return _finish(batch, rules, max_timestamp)


def _finish(batch: bytearray, rules: ProduceRules, max_timestamp: int) -> Validated:
    """Time type, largest time and checksum of a batch that is not stored as it came.

    The base timestamp and the deltas stay the producer's, under LogAppendTime too: that is what
    Kafka stores, and a reader takes maxTimestamp for every record then.
    """
    if rules.timestamp_type == LOG_APPEND_TIME:
        batch[ATTRIBUTES_POSITION + 1] |= LOG_APPEND_TIME_MASK
    _INT64.pack_into(batch, MAX_TIMESTAMP_POSITION, max_timestamp)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return Validated(HEADER.unpack_from(batch), batch)
