"""Goal: a produced batch is taken, refused and rewritten as Apache Kafka 4.3.1 does it.
Method: what a running Kafka answered to the same bytes, one case each (codes and stored headers
were taken from its answers and its log files; where we mean to differ, the test says so).
"""

from __future__ import annotations

import gzip

import cramjam
import pytest

from ottla.base import limits
from ottla.protocol.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.records import compression
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    read_header,
)
from ottla.records.batch_view import is_intact, records_of
from ottla.records.validation import (
    RECORD_ERRORS_MAX,
    InvalidRecords,
    ProduceRules,
    needs_pool,
    validate_produced,
)
from ottla.records.walk import walk_records
from tests.unit.records.batches import (
    LONG_MAX,
    NOW_MS,
    RULES,
    a_batch,
    a_record,
    java_batches,
    refusal,
    rules,
    validate,
)

pytestmark = pytest.mark.usefixtures("by_both")

ONE = a_record(0)
TWO = a_record(0, b"a") + a_record(1, b"b", delta=5)
LOG_APPEND_TIME = rules(timestamp_type="LogAppendTime")
COMPACTED = rules(compacted=True)


def kept_as_sent(batch: bytes, given: ProduceRules = RULES) -> bool:
    view = memoryview(batch)
    validated = validate_produced(view, given, NOW_MS)
    return validated.batch is view and validated.header == read_header(batch)


@pytest.mark.parametrize("codec", compression.CODEC_NAMES)
def test_what_the_java_client_sends_is_stored_as_it_is(codec: str) -> None:
    assert kept_as_sent(java_batches()[codec])


@pytest.mark.parametrize(
    "batch",
    [
        a_batch(ONE),
        a_batch(TWO, 2, max_timestamp=NOW_MS + 5),
        a_batch(ONE, leader_epoch=77),
        a_batch(ONE, producer_id=7, producer_epoch=0, base_sequence=2**31 - 1),
        a_batch(ONE, producer_epoch=3, base_sequence=5),
        a_batch(ONE, attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0),
        a_batch(ONE, attributes=0x40),
        a_batch(ONE, attributes=-32768),
        a_batch(a_record(0, attributes=1)),
        a_batch(ONE, base_timestamp=-1),
        a_batch(TWO, 2, base_timestamp=-1, max_timestamp=4),
        a_batch(TWO, 2, base_timestamp=-5, max_timestamp=0),
        a_batch(ONE, base_timestamp=1000),
        a_batch(a_record(0, delta=-3) + a_record(1, delta=-2), 2, max_timestamp=NOW_MS - 2),
        a_batch(bytes(cramjam.snappy.compress_raw(ONE)), attributes=compression.SNAPPY),
        a_batch(ONE, base_timestamp=NOW_MS + 3_600_000),
    ],
)
def test_taken_as_it_is(batch: bytes) -> None:
    assert kept_as_sent(batch)


REFUSED = {
    "nothing": (b"", INVALID_RECORD),
    "five bytes": (b"abcde", INVALID_RECORD),
    "up to the magic": (a_batch(ONE)[:16], INVALID_RECORD),
    "up to the checksum": (a_batch(ONE)[:17], INVALID_RECORD),
    "no whole header": (a_batch(ONE)[:60], INVALID_RECORD),
    "a byte short": (a_batch(ONE)[:-1], INVALID_RECORD),
    "a fragment of a declared length of 13": (a_batch(ONE, batch_length=13)[:20], CORRUPT_MESSAGE),
    "a fragment of magic 7": (a_batch(ONE, magic=7)[:20], CORRUPT_MESSAGE),
    "a fragment of magic 1": (a_batch(ONE, magic=1)[:20], INVALID_RECORD),
    "a batch that ends within its header": (a_batch(ONE, batch_length=18)[:30], CORRUPT_MESSAGE),
    "length 13": (a_batch(ONE, batch_length=13), CORRUPT_MESSAGE),
    "length 0": (a_batch(ONE, batch_length=0), CORRUPT_MESSAGE),
    "length -1": (a_batch(ONE, batch_length=-1), CORRUPT_MESSAGE),
    "length 48": (a_batch(ONE, batch_length=48), CORRUPT_MESSAGE),
    "a huge length": (a_batch(ONE, batch_length=2**31 - 1), INVALID_RECORD),
    "magic 0": (a_batch(ONE, magic=0), INVALID_RECORD),
    "magic 1": (a_batch(ONE, magic=1), INVALID_RECORD),
    "magic 3": (a_batch(ONE, magic=3), CORRUPT_MESSAGE),
    "magic -1": (a_batch(ONE, magic=-1), CORRUPT_MESSAGE),
    "two batches": (a_batch(ONE) * 2, INVALID_RECORD),
    "two batches, checksum wrong": (a_batch(ONE, crc=5) * 2, INVALID_RECORD),
    # Kafka drops what follows if it is shorter than a length field; no client sends such a thing.
    "a byte too many": (a_batch(ONE) + b"x", INVALID_RECORD),
    "base offset 77": (a_batch(ONE, base_offset=77), INVALID_RECORD),
    "base offset -7": (a_batch(ONE, base_offset=-7), INVALID_RECORD),
    "checksum": (a_batch(ONE, crc=5), CORRUPT_MESSAGE),
    "checksum of a control batch": (a_batch(ONE, crc=5, attributes=0x20), CORRUPT_MESSAGE),
    "checksum of an empty batch": (a_batch(b"", 0, crc=5), CORRUPT_MESSAGE),
    "no records": (a_batch(b"", 0), INVALID_RECORD),
    "a negative count": (a_batch(b"", record_count=-1, last_offset_delta=-2), INVALID_RECORD),
    "no records, last offset delta 0": (a_batch(b"", record_count=0), INVALID_RECORD),
    "last offset delta": (a_batch(TWO, 2, last_offset_delta=5), INVALID_RECORD),
    "count too high": (a_batch(TWO, 5), INVALID_RECORD),
    "count too low": (a_batch(TWO, 1), INVALID_RECORD),
    "count of an int": (a_batch(ONE, 2**31 - 1), INVALID_RECORD),
    "bytes behind the records": (a_batch(TWO + b"xyz", 2), INVALID_RECORD),
    "control batch": (a_batch(ONE, attributes=0x20), INVALID_RECORD),
    "no sequence": (a_batch(ONE, producer_id=7, producer_epoch=0), INVALID_RECORD),
    # Kafka takes the first and the last; every later reader of the log would have to expect them.
    # Of a producer that it knows it refuses the first, in the same way.
    "no epoch": (a_batch(ONE, producer_id=7, base_sequence=0), INVALID_PRODUCER_EPOCH),
    "epoch -2": (
        a_batch(ONE, producer_id=7, producer_epoch=-2, base_sequence=0),
        INVALID_PRODUCER_EPOCH,
    ),
    "neither epoch nor sequence": (a_batch(ONE, producer_id=7), INVALID_RECORD),
    "producer id -2": (
        a_batch(ONE, producer_id=-2, producer_epoch=0, base_sequence=0),
        INVALID_RECORD,
    ),
    # Kafka stores these unread if the batch is plain.
    "offset deltas": (a_batch(a_record(0) + a_record(5), 2), INVALID_RECORD),
    "offset deltas in gzip": (
        a_batch(gzip.compress(a_record(0) + a_record(5)), 2, attributes=1),
        INVALID_RECORD,
    ),
    "count in gzip": (a_batch(gzip.compress(TWO), 1, attributes=1), INVALID_RECORD),
    # Kafka falls over these and answers UNKNOWN_SERVER_ERROR.
    "garbage": (a_batch(b"\xff" * 40), INVALID_RECORD),
    "garbage as gzip": (a_batch(b"\xff" * 40, attributes=1), INVALID_RECORD),
    "garbage as snappy": (a_batch(b"\xff" * 40, attributes=2), INVALID_RECORD),
    "plain records as lz4": (a_batch(ONE, attributes=3), INVALID_RECORD),
    "garbage as zstd": (a_batch(b"\xff" * 40, attributes=4), INVALID_RECORD),
    "codec 5": (a_batch(ONE, attributes=5), UNSUPPORTED_COMPRESSION_TYPE),
    # Kafka takes it on a topic with CreateTime and clears the bit.
    "LogAppendTime from a client": (a_batch(ONE, attributes=8), INVALID_TIMESTAMP),
    "future": (a_batch(ONE, base_timestamp=NOW_MS + 3_600_001), INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    batch, code = REFUSED[case]
    assert refusal(validate, batch).code == code


def test_no_records_field_at_all() -> None:
    assert refusal(validate_produced, None, RULES, NOW_MS).code == INVALID_RECORD


def test_the_size_is_checked_on_the_whole_batch_and_before_the_checksum() -> None:
    batch = a_batch(a_record(0, b"v" * 1000))
    assert kept_as_sent(batch, rules(max_message_bytes=len(batch)))
    small = rules(max_message_bytes=len(batch) - 1)
    assert refusal(validate, batch, small).code == MESSAGE_TOO_LARGE
    wrong = a_batch(a_record(0, b"v" * 1000), crc=5)
    assert refusal(validate, wrong, small).code == MESSAGE_TOO_LARGE


def test_zstd_needs_a_new_enough_request() -> None:
    batch = java_batches()["zstd"]
    refused = refusal(validate, batch, rules(zstd_allowed=False))
    assert refused.code == UNSUPPORTED_COMPRESSION_TYPE
    assert kept_as_sent(java_batches()["gzip"], rules(zstd_allowed=False))


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
@pytest.mark.parametrize("claimed", [NOW_MS, NOW_MS + 900, NOW_MS + 99_999_999, -1])
def test_a_wrong_max_timestamp_is_put_right(codec: int, claimed: int) -> None:
    packed = compression.compress(codec, TWO)
    batch = a_batch(packed, 2, attributes=codec, max_timestamp=claimed)
    validated = validate(batch)
    assert is_intact(validated.batch)
    assert validated.header == read_header(validated.batch)
    assert validated.header[MAX_TIMESTAMP] == NOW_MS + 5
    assert bytes(validated.batch)[:17] == batch[:17]
    assert bytes(validated.batch)[21:35] == batch[21:35]
    assert bytes(validated.batch)[43:] == batch[43:]


def test_no_max_timestamp_is_below_minus_one() -> None:
    assert validate(a_batch(ONE, base_timestamp=-5)).header[MAX_TIMESTAMP] == -1


@pytest.mark.parametrize("codec", [compression.NONE, compression.LZ4])
def test_log_append_time(codec: int) -> None:
    """The base stays the producer's; the bit and the largest time are the broker's."""
    packed = compression.compress(codec, TWO)
    for base in (NOW_MS - 1000, NOW_MS + 99_999_999, -1):
        batch = a_batch(packed, 2, attributes=codec, base_timestamp=base)
        validated = validate(batch, LOG_APPEND_TIME)
        assert is_intact(validated.batch)
        assert validated.header == read_header(validated.batch)
        assert validated.header[ATTRIBUTES] == codec | 8
        assert validated.header[BASE_TIMESTAMP] == base
        assert validated.header[MAX_TIMESTAMP] == NOW_MS
        assert bytes(validated.batch)[61:] == packed
        assert {record.timestamp for record in records_of(validated.batch, 100)} == {NOW_MS}


def test_log_append_time_is_the_broker_s_to_set() -> None:
    batch = a_batch(ONE, attributes=8)
    assert refusal(validate, batch, LOG_APPEND_TIME).code == INVALID_TIMESTAMP


def test_what_is_rewritten_can_be_written_in_place() -> None:
    validated = validate(a_batch(ONE), LOG_APPEND_TIME)
    assert not memoryview(validated.batch).readonly


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", range(5))
def test_the_topic_s_codec(source: int, target: int) -> None:
    records = b"".join(a_record(index, b"v" * 100, delta=index) for index in range(100))
    packed = compression.compress(source, records)
    batch = a_batch(packed, 100, attributes=source | 0x10, max_timestamp=NOW_MS + 99)
    given = rules(compression_codec=target)
    if source == target:
        assert kept_as_sent(batch, given)
        return
    validated = validate(batch, given)
    assert is_intact(validated.batch)
    assert validated.header == read_header(validated.batch)
    assert validated.header[ATTRIBUTES] == target | 0x10
    assert compression.decompress(target, memoryview(validated.batch)[61:], 20_000) == records
    assert len(validated.batch) == validated.header[1] + 12


def test_the_topic_s_codec_and_log_append_time_together() -> None:
    given = rules(compression_codec=compression.ZSTD, timestamp_type="LogAppendTime")
    validated = validate(a_batch(TWO, 2), given)
    assert is_intact(validated.batch)
    assert validated.header[ATTRIBUTES] == compression.ZSTD | 8
    assert validated.header[MAX_TIMESTAMP] == NOW_MS


def test_the_level_of_the_topic_s_codec() -> None:
    text = b"".join(b"%d " % (number * number) for number in range(20_000))
    batch = a_batch(a_record(0, text))
    sizes = [
        len(validate(batch, rules(compression_codec=1, compression_level=level)).batch)
        for level in (1, 9)
    ]
    assert sizes[0] > sizes[1]


def test_a_batch_that_grows_past_the_limit_when_unpacked_for_the_topic() -> None:
    batch = a_batch(gzip.compress(a_record(0, bytes(50_000))), attributes=1)
    given = rules(compression_codec=compression.NONE, max_message_bytes=40_000)
    assert refusal(validate, batch, given).code == MESSAGE_TOO_LARGE


def test_timestamps_outside_of_the_bounds_are_named_record_by_record() -> None:
    records = b"".join(
        a_record(index, delta=delta) for index, delta in enumerate([0, -61_000, 30_000, 61_000])
    )
    batch = a_batch(records, 4, max_timestamp=NOW_MS + 61_000)
    refused = refusal(validate, batch, rules(before_max_ms=60_000, after_max_ms=60_000))
    assert isinstance(refused, InvalidRecords)
    assert refused.code == INVALID_TIMESTAMP
    assert [index for index, _ in refused.record_errors] == [1, 3]
    assert str(NOW_MS - 61_000) in refused.record_errors[0][1]


def test_the_bounds_are_exact() -> None:
    bounds = rules(before_max_ms=60_000, after_max_ms=60_000)
    for delta, taken in ((60_000, True), (60_001, False), (-60_000, True), (-60_001, False)):
        batch = a_batch(ONE, base_timestamp=NOW_MS + delta)
        if taken:
            assert kept_as_sent(batch, bounds)
        else:
            assert refusal(validate, batch, bounds).code == INVALID_TIMESTAMP


def test_records_close_to_the_bound_below_are_looked_at_one_by_one() -> None:
    """A walk knows the smallest time only roughly."""
    records = b"".join(a_record(index, b"v" * 70, delta=1) for index in range(20))
    batch = a_batch(records, 20, base_timestamp=NOW_MS - 60_001, max_timestamp=NOW_MS - 60_000)
    assert kept_as_sent(batch, rules(before_max_ms=60_000))
    assert refusal(validate, batch, rules(before_max_ms=59_999)).code == INVALID_TIMESTAMP


def test_no_timestamp_is_within_all_bounds() -> None:
    bounds = rules(before_max_ms=1000, after_max_ms=1000)
    assert kept_as_sent(a_batch(ONE, base_timestamp=-1), bounds)
    records = a_record(0) + a_record(1, delta=-NOW_MS - 1)
    assert kept_as_sent(a_batch(records, 2), bounds)


@pytest.mark.parametrize("base", [LONG_MAX, -LONG_MAX - 1])
def test_timestamps_that_leave_the_range_of_a_long(base: int) -> None:
    unbounded = rules(after_max_ms=LONG_MAX)
    records = a_record(0) + a_record(1, delta=5 if base > 0 else -5)
    batch = a_batch(records, 2, base_timestamp=base, max_timestamp=base)
    assert refusal(validate, batch, unbounded).code == INVALID_TIMESTAMP


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    records = a_record(0, key=b"k") + a_record(1) + a_record(2, key=b"") + a_record(3)
    refused = refusal(validate, a_batch(records, 4), COMPACTED)
    assert isinstance(refused, InvalidRecords)
    assert refused.code == INVALID_RECORD
    assert [index for index, _ in refused.record_errors] == [1, 3]
    packed = a_batch(gzip.compress(records), 4, attributes=1)
    assert refusal(validate, packed, COMPACTED).code == INVALID_RECORD


def test_a_compacted_topic_takes_keys_of_every_kind() -> None:
    for key in (b"", b"k", b"k" * 63, b"k" * 64, b"k" * 10_000):
        records = b"".join(a_record(index, b"v" * index, key) for index in range(20))
        assert kept_as_sent(a_batch(records, 20), COMPACTED)


@pytest.mark.usefixtures("by_python")
def test_a_suspicion_of_a_null_key_is_looked_into() -> None:
    """The last byte of this timestamp delta stands where a null key would, were it two shorter."""
    record = a_record(0, b"v" * 70, b"key", delta=1 << 20)
    assert walk_records(record, 0, 1).null_key_suspected
    assert kept_as_sent(a_batch(record, max_timestamp=NOW_MS + (1 << 20)), COMPACTED)


def test_one_time_out_of_range_decides_the_code() -> None:
    """As in Kafka, wherever in the batch that record is."""
    ahead = 9_999_999
    first_late = a_record(0, key=b"k", delta=ahead) + a_record(1)
    refused = refusal(validate, a_batch(first_late, 2), COMPACTED)
    assert isinstance(refused, InvalidRecords)
    assert refused.code == INVALID_TIMESTAMP
    assert len(refused.record_errors) == 2
    first_keyless = a_record(0, delta=ahead) + a_record(1, key=b"k", delta=ahead)
    assert refusal(validate, a_batch(first_keyless, 2), COMPACTED).code == INVALID_TIMESTAMP
    only_keyless = a_record(0, delta=ahead) + a_record(1, key=b"k")
    assert refusal(validate, a_batch(only_keyless, 2), COMPACTED).code == INVALID_RECORD


def test_a_refusal_does_not_name_records_without_end() -> None:
    count = RECORD_ERRORS_MAX + 10
    records = b"".join(a_record(index) for index in range(count))
    refused = refusal(validate, a_batch(records, count), COMPACTED)
    assert isinstance(refused, InvalidRecords)
    assert len(refused.record_errors) == RECORD_ERRORS_MAX


def test_log_append_time_on_a_compacted_topic() -> None:
    given = rules(compacted=True, timestamp_type="LogAppendTime")
    far = NOW_MS + 10**10
    batch = a_batch(a_record(0, key=b"k"), base_timestamp=far)
    assert validate(batch, given).header[MAX_TIMESTAMP] == NOW_MS
    batch = a_batch(a_record(0, key=b"k") + a_record(1), 2, base_timestamp=far)
    refused = refusal(validate, batch, given)
    assert isinstance(refused, InvalidRecords)
    assert [index for index, _ in refused.record_errors] == [1]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_within_a_batch(codec: int) -> None:
    """Past 8 MiB and past 64 times its own size, a batch is not unpacked further."""
    packed = compression.compress(codec, bytes(limits.DECOMPRESSED_BYTES_MAX + 1))
    batch = a_batch(packed, attributes=codec)
    given = rules(max_message_bytes=len(batch))
    ratio = limits.DECOMPRESSED_BYTES_MAX / len(batch)
    expected = MESSAGE_TOO_LARGE if ratio > limits.DECOMPRESSED_RATIO_MAX else INVALID_RECORD
    assert refusal(validate, batch, given).code == expected


def test_a_batch_may_always_unpack_to_some_size() -> None:
    """A small one to far more than 64 times its own size, a large one to 64 times that."""
    zeros = a_record(0, bytes(4_000_000))
    small = a_batch(compression.compress(compression.ZSTD, zeros), attributes=compression.ZSTD)
    assert len(small) * limits.DECOMPRESSED_RATIO_MAX < len(zeros)
    assert kept_as_sent(small)
    larger = a_record(0, bytes(9_000_000))
    large = a_batch(compression.compress(compression.SNAPPY, larger), attributes=compression.SNAPPY)
    assert kept_as_sent(large)


def test_what_goes_to_the_pool() -> None:
    small = memoryview(a_batch(ONE))
    large = memoryview(a_batch(a_record(0, bytes(limits.LOOP_DECOMPRESS_BYTES_MAX))))
    noise = compression.compress(compression.NONE, bytes(range(256)) * 1000)
    packed = memoryview(a_batch(noise, attributes=compression.LZ4))
    many = memoryview(a_batch(b"".join(a_record(index, bytes(20)) for index in range(5000)), 5000))
    assert not needs_pool(None, RULES)
    assert not needs_pool(memoryview(b""), RULES)
    assert not needs_pool(memoryview(b"\xff" * 60), LOG_APPEND_TIME)
    assert not needs_pool(small, LOG_APPEND_TIME)
    assert not needs_pool(small, rules(compression_codec=compression.ZSTD))
    assert not needs_pool(large, RULES)
    assert not needs_pool(large, rules(compression_codec=compression.NONE))
    assert needs_pool(large, LOG_APPEND_TIME)
    assert needs_pool(large, rules(compression_codec=compression.ZSTD))
    assert needs_pool(packed, RULES)
    assert needs_pool(packed, rules(compression_codec=compression.NONE))
    assert needs_pool(many, RULES)
    assert needs_pool(memoryview(b"\xff" * 100_000), RULES)
