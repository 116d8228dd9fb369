"""Goal: a batch of a familiar shape is judged as one that nobody has seen before.
Method: shapes are learned from batches of several kinds; then every byte of the header and of the
records is changed in turn, the checksum put right, and the batch judged with and without shapes.
That shapes are used at all is seen by a walk that fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.error_codes import CORRUPT_MESSAGE
from ottla.records import shapes, validation
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import MAX_TIMESTAMP, read_header
from ottla.records.validation import ProduceRules, validate_produced
from tests.unit.records.batches import NOW_MS, RULES, refusal, rules
from tests.unit.records.changed_batches import KINDS, a_batch_of, changes, judged

pytestmark = pytest.mark.usefixtures("by_python")


@pytest.fixture(autouse=True)
def _no_shapes_of_others() -> Iterator[None]:
    shapes._shapes.clear()
    shapes._counted.clear()
    yield
    shapes._shapes.clear()
    shapes._counted.clear()


def learned(batch: bytes, times: int = shapes.LEARN_AFTER) -> bytes:
    for _ in range(times):
        validate_produced(memoryview(batch), RULES, NOW_MS)
    return batch


def test_as_many_as_it_takes_and_the_walk_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = learned(build_batch(KINDS["fifteen"]), shapes.LEARN_AFTER - 1)
    assert not shapes._shapes
    learned(batch, 1)
    monkeypatch.setattr(validation, "walk_records", None)
    validated = validate_produced(memoryview(batch), RULES, NOW_MS)
    assert bytes(validated.batch) == batch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "by", [RULES, rules(compacted=True), rules(before_max_ms=50), rules(after_max_ms=1)]
)
def test_every_changed_byte_is_judged_as_without_shapes(
    kind: str, by: ProduceRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = learned(a_batch_of(KINDS[kind]))
    assert shapes._shapes
    familiar = [judged(change, by) for change in changes(batch)]
    monkeypatch.setattr(validation, "shape_of", {}.get)
    assert familiar == [judged(change, by) for change in changes(batch)]


def test_a_wrong_checksum_is_seen() -> None:
    batch = bytearray(learned(build_batch(KINDS["fifteen"])))
    batch[-2] ^= 1
    assert refusal(lambda: validate_produced(memoryview(batch), RULES, NOW_MS)).code == (
        CORRUPT_MESSAGE
    )


def test_no_largest_time_below_minus_one_is_stored() -> None:
    learned(build_batch(KINDS["one record"]))
    batch = build_batch([RecordToWrite(-5, None, b"v" * 30)])
    assert validate_produced(memoryview(batch), RULES, NOW_MS).header[MAX_TIMESTAMP] == -1


def test_a_clock_that_went_back_is_left_to_the_walk() -> None:
    learned(build_batch(KINDS["fifteen"]))
    back = [RecordToWrite(NOW_MS + at % 3, None, b"v" * 30) for at in range(15)]
    batch = build_batch(back)
    assert judged(batch, RULES) == (read_header(batch), batch)


def test_another_shape_of_the_same_size_takes_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    learned(build_batch([RecordToWrite(NOW_MS, b"ab", b"v" * 40)] * 4))
    other = learned(build_batch([RecordToWrite(NOW_MS, b"abcd", b"v" * 38)] * 4))
    monkeypatch.setattr(validation, "walk_records", None)
    assert bytes(validate_produced(memoryview(other), RULES, NOW_MS).batch) == other


def test_what_is_remembered_has_bounds() -> None:
    for size in range(shapes.SHAPES_MAX + 5):
        learned(build_batch([RecordToWrite(NOW_MS, None, bytes(size))]))
    assert len(shapes._shapes) == shapes.SHAPES_MAX
    for size in range(2 * shapes.COUNTED_MAX):
        learned(build_batch([RecordToWrite(NOW_MS, None, bytes(1000 + size))]), 1)
    assert len(shapes._counted) <= shapes.COUNTED_MAX


@pytest.mark.parametrize("count", [65, 150, 4096])
def test_a_long_batch_spares_the_walk(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = learned(build_batch([RecordToWrite(NOW_MS, None, b"v" * 100)] * count))
    monkeypatch.setattr(validation, "walk_records", None)
    assert bytes(validate_produced(memoryview(batch), RULES, NOW_MS).batch) == batch


def with_one_odd(count: int, odd: int, *records: RecordToWrite) -> bytes:
    plain = [RecordToWrite(NOW_MS, None, b"v" * 100)] * count
    return build_batch([*plain[:odd], *records, *plain[odd + len(records) :]])


@pytest.mark.parametrize("odd", [0, 1, 63, 64, 65, 98])
def test_long_batches_that_are_not_alike_are_no_shape(odd: int) -> None:
    """Two odd records that together have the size of two others, and one that has headers."""
    longer, shorter = (RecordToWrite(NOW_MS, None, b"v" * size) for size in (101, 99))
    learned(with_one_odd(100, odd, longer, shorter))
    learned(with_one_odd(100, odd, longer))
    learned(with_one_odd(100, odd, RecordToWrite(NOW_MS, None, b"v" * 96, headers=[("h", b"x")])))
    assert not shapes._shapes


def test_long_batches_with_headers_are_no_shape() -> None:
    learned(build_batch([RecordToWrite(NOW_MS, None, b"v" * 90, [("h", b"x")])] * 100))
    assert not shapes._shapes


def test_a_long_batch_of_the_same_size_and_other_records_is_left_to_the_walk() -> None:
    learned(build_batch([RecordToWrite(NOW_MS, None, b"v" * 100)] * 100))
    longer, shorter = (RecordToWrite(NOW_MS, None, b"v" * size) for size in (101, 99))
    batch = with_one_odd(100, 50, longer, shorter)
    assert judged(batch, RULES) == (read_header(batch), batch)


def test_more_records_than_are_worth_it_are_not_counted() -> None:
    learned(build_batch([RecordToWrite(NOW_MS, None, b"v")] * (shapes.RECORDS_MAX + 1)), 1)
    assert not shapes._shapes
    assert not shapes._counted
