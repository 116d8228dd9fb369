"""Goal: what the builder writes, the door takes and the view reads, whatever the records and the
codec; and whatever anybody else writes, the door answers with a ProtocolError or a batch that every
reader can read. Method: random records; random changes of right batches, with the checksum left
wrong and with it put right.
"""

from __future__ import annotations

import contextlib
import struct

import google_crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.base.errors import ProtocolError
from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records import compression
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import LAST_OFFSET_DELTA, MAX_TIMESTAMP, RECORD_COUNT, read_header
from ottla.records.batch_view import RecordView, is_intact, records_of
from ottla.records.validation import ProduceRules, Validated, validate_produced

NOW_MS = 1_700_000_000_000
LIMIT = 1 << 20

CODECS = st.integers(0, 4)
FIELDS = st.none() | st.binary(max_size=10) | st.integers(0, 300).map(bytes)
TIMES = st.integers(0, 3) | st.integers(-100_000, 100_000) | st.integers(-NOW_MS - 1, 0)
HEADERS = st.lists(st.tuples(st.text(max_size=70), FIELDS), max_size=3)
RECORDS = st.builds(
    RecordToWrite, TIMES.map(lambda delta: NOW_MS + delta), FIELDS, FIELDS, st.just([]) | HEADERS
)
# Many of one kind, for the walk over identical and alike ones; few of any kind.
BATCHES = st.lists(RECORDS, min_size=1, max_size=12) | st.tuples(RECORDS, st.integers(1, 150)).map(
    lambda drawn: [drawn[0]] * drawn[1]
)


def rules(codec: int | None = None, timestamp_type: str = "CreateTime") -> ProduceRules:
    return ProduceRules(
        max_message_bytes=LIMIT,
        compression_codec=codec,
        compression_level=None,
        timestamp_type=timestamp_type,
        before_max_ms=(1 << 63) - 1,
        after_max_ms=3_600_000,
        compacted=False,
        zstd_allowed=True,
    )


def views(records: list[RecordToWrite]) -> list[RecordView]:
    return [
        RecordView(offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))
        for offset, record in enumerate(records)
    ]


@given(BATCHES, CODECS)
def test_what_is_built_is_taken_as_it_is_and_read_again(
    records: list[RecordToWrite], codec: int
) -> None:
    batch = memoryview(build_batch(records, codec=codec))
    validated = validate_produced(batch, rules(), NOW_MS)
    assert validated.batch is batch
    assert list(records_of(validated.batch, LIMIT)) == views(records)


@given(BATCHES, CODECS, CODECS, st.sampled_from(["CreateTime", "LogAppendTime"]))
def test_a_rewritten_batch_has_the_same_records(
    records: list[RecordToWrite], codec: int, topic_codec: int, timestamp_type: str
) -> None:
    batch = build_batch(records, codec=codec, producer_id=5, producer_epoch=6, base_sequence=7)
    validated = validate_produced(memoryview(batch), rules(topic_codec, timestamp_type), NOW_MS)
    assert is_intact(validated.batch)
    assert validated.header == read_header(validated.batch)
    expected = views(records)
    if timestamp_type == "LogAppendTime":
        for view in expected:
            view.timestamp = NOW_MS
    assert list(records_of(validated.batch, LIMIT)) == expected


def taken(batch: bytes) -> Validated | None:
    """None for a refusal; anything but a ProtocolError fails the test."""
    try:
        return validate_produced(memoryview(batch), rules(), NOW_MS)
    except ProtocolError:
        return None


def with_right_crc(batch: bytes) -> bytes:
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


def check_every_reader_can_read(validated: Validated) -> None:
    header = validated.header
    assert is_intact(validated.batch)
    records = list(records_of(validated.batch, 1 << 26))
    assert [record.offset for record in records] == list(range(header[RECORD_COUNT]))
    assert header[LAST_OFFSET_DELTA] == len(records) - 1
    assert header[MAX_TIMESTAMP] == max(-1, *(record.timestamp for record in records))


@given(BATCHES, CODECS, st.data())
def test_a_changed_bit_is_refused(
    records: list[RecordToWrite], codec: int, data: st.DataObject
) -> None:
    batch = bytearray(build_batch(records, codec=codec))
    at = data.draw(st.integers(16, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    try:
        validate_produced(memoryview(batch), rules(), NOW_MS)
    except ProtocolError as refused:
        # At 16 stands the magic, which is looked at before the checksum.
        assert refused.code == CORRUPT_MESSAGE or at == 16
    else:
        raise AssertionError("taken")


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["change", "change", "change", "insert", "remove", "cut"]),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([0, 1, 2, 127, 128, 129, 254, 255]) | st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


def changed(content: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    made = bytearray(content)
    for kind, where, byte in changes:
        at = int(where * len(made))
        if kind == "insert":
            made.insert(at, byte)
        elif kind == "cut":
            del made[at:]
        elif made and kind == "remove":
            del made[at]
        elif made:
            made[at] = byte
    return bytes(made)


@settings(max_examples=400)
@given(BATCHES, CODECS, CHANGES)
def test_changed_records_with_a_right_checksum(
    records: list[RecordToWrite], codec: int, changes: list[tuple[str, float, int]]
) -> None:
    """The structure of the records is at stake, so they are packed again after the change."""
    batch = build_batch(records)
    packed = compression.compress(codec, changed(batch[61:], changes))
    length = struct.pack(">i", 49 + len(packed))
    attributes = struct.pack(">h", codec)
    hostile = with_right_crc(batch[:8] + length + batch[12:21] + attributes + batch[23:61] + packed)
    validated = taken(hostile)
    if validated is not None:
        check_every_reader_can_read(validated)


@settings(max_examples=400)
@given(BATCHES, CODECS, CHANGES)
def test_changed_batches_with_a_right_checksum(
    records: list[RecordToWrite], codec: int, changes: list[tuple[str, float, int]]
) -> None:
    """Header, packed bytes and all."""
    hostile = changed(build_batch(records, codec=codec), changes)
    if len(hostile) > 21:
        hostile = with_right_crc(hostile)
    validated = taken(hostile)
    if validated is not None:
        check_every_reader_can_read(validated)


@settings(max_examples=400)
@example(b"")
@given(st.binary(max_size=200))
def test_garbage(content: bytes) -> None:
    assert taken(content) is None


@settings(max_examples=400)
@given(st.binary(max_size=200), st.integers(0, 7), st.integers(1, 5))
def test_garbage_behind_a_right_header(content: bytes, codec: int, count: int) -> None:
    header = read_header(build_batch([RecordToWrite(NOW_MS, None, None)]))
    fields = (*header[5:6], count - 1, *header[7:12], count)
    covered = struct.pack(">hiqqqhii", codec, *fields[1:]) + content
    hostile = struct.pack(">qiib", 0, len(covered) + 9, -1, 2)
    hostile += struct.pack(">I", google_crc32c.value(covered)) + covered
    validated = taken(hostile)
    if validated is not None:
        check_every_reader_can_read(validated)


@given(st.binary(max_size=300), CODECS, st.integers(0, 100))
def test_unpacking_garbage_raises_nothing_but_a_refusal(
    content: bytes, codec: int, limit: int
) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(compression.decompress(codec, content, limit)) <= limit


@given(BATCHES, CODECS, CHANGES)
def test_the_view_raises_nothing_but_a_refusal(
    records: list[RecordToWrite], codec: int, changes: list[tuple[str, float, int]]
) -> None:
    with contextlib.suppress(ProtocolError):
        list(records_of(changed(build_batch(records, codec=codec), changes), LIMIT))
