"""Goal: the walk accepts exactly the records that read field by field are right, in whichever gait.
Method: batches made for each gait; every byte of structure changed in turn, judged by the field by
field reader; each refusal once by hand. Which gait took a batch is watched, so that no short cut is
tested by the slow path behind its back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.errors import ProtocolError
from ottla.protocol.error_codes import INVALID_RECORD
from ottla.records import walk as walk_module
from ottla.records.walk import RecordWalk, walk_records
from tests.unit.records.batches import a_record, field, refusal, zig_zag

pytestmark = pytest.mark.usefixtures("by_python")

TWO_HEADERS = zig_zag(2) + field(b"trace") + field(b"x" * 70) + field(b"") + field(None)


def identical(count: int, size: int = 100, key: bytes | None = None) -> bytes:
    return b"".join(a_record(index, b"v" * size, key) for index in range(count))


def alike(count: int, size: int = 100) -> bytes:
    """Records of as wide numbers, but not of one size."""
    return b"".join(
        a_record(index, b"v" * (size + index % 3), None if index % 5 else b"k" * (index % 7))
        for index in range(count)
    )


@pytest.fixture
def gaits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The gaits that moved a walk forward, in their order."""
    taken: list[str] = []
    one, alike_, identical_ = RecordWalk._one, RecordWalk._alike, RecordWalk._identical

    def watch_one(walk: RecordWalk) -> None:
        taken.append("one")
        one(walk)

    def watch_alike(walk: RecordWalk, layout: walk_module._Layout) -> bool:
        moved = alike_(walk, layout)
        taken.extend(["alike"] * moved)
        return moved

    def watch_identical(walk: RecordWalk, layout: walk_module._Layout) -> bool:
        moved = identical_(walk, layout)
        taken.extend(["identical"] * moved)
        return moved

    monkeypatch.setattr(RecordWalk, "_one", watch_one)
    monkeypatch.setattr(RecordWalk, "_alike", watch_alike)
    monkeypatch.setattr(RecordWalk, "_identical", watch_identical)
    return taken


def test_the_identical_records_of_two_blocks(gaits: list[str]) -> None:
    walk = walk_records(identical(150), 0, 150)
    assert gaits == ["identical", "identical"]
    assert (walk.index, walk.delta_max, walk.null_key_suspected) == (150, 0, True)


@pytest.mark.parametrize("size", [0, 5, 57, 58, 59, 60, 61, 62, 63, 64, 65, 8000])
@pytest.mark.parametrize("key", [None, b"", b"k", b"k" * 63])
def test_identical_records_of_any_size(gaits: list[str], size: int, key: bytes | None) -> None:
    walk = walk_records(identical(20, size, key), 0, 20)
    if size + len(key or b"") < 8000:
        assert gaits == ["identical"]
    assert walk.null_key_suspected == (key is None)


def test_identical_records_are_found_again_in_the_next_block(gaits: list[str]) -> None:
    records = a_record(0, b"v" * 20) + b"".join(a_record(at, b"v" * 100) for at in range(1, 90))
    walk_records(records, 0, 90)
    assert gaits == ["alike", "alike", "identical"]


def test_a_few_records_are_not_worth_it(gaits: list[str]) -> None:
    walk_records(identical(7), 0, 7)
    assert gaits == ["alike"]


@pytest.mark.parametrize("size", [3, 20, 70, 5000])
def test_alike_records(gaits: list[str], size: int) -> None:
    walk_records(alike(60, size), 0, 60)
    assert set(gaits) == {"alike"}


def test_alike_records_with_headers(gaits: list[str]) -> None:
    records = b"".join(
        a_record(index, b"v" * (80 + index % 3), b"k", headers=TWO_HEADERS) for index in range(70)
    )
    walk_records(records, 0, 70)
    assert set(gaits) == {"alike"}


def test_one_by_one_where_nothing_else_fits(gaits: list[str]) -> None:
    records = b"".join(
        a_record(index, b"v" * 9000, b"k" * 100, delta=10**9) for index in range(4)
    ) + a_record(4, b"v" * 9000, b"k" * 100, headers=zig_zag(64) + (field(b"") * 2) * 64)
    walk = walk_records(records, 0, 5)
    assert gaits == ["one"] * 5
    assert walk.delta_max == 10**9


@pytest.mark.parametrize("make", [identical, alike])
@pytest.mark.parametrize("count", [64, 65, 8192, 8193, 17_000])
def test_offset_deltas_of_up_to_three_bytes(gaits: list[str], make: object, count: int) -> None:
    records = identical(count, 1) if make is identical else alike(count, 1)
    assert walk_records(records, 0, count).index == count
    assert "one" not in gaits


@pytest.mark.parametrize("index", [0, 60, 64, 4000, 8191, 8192, 70_000, 1_048_575, 1_048_576])
def test_offsets_by_byte_and_as_numbers_agree_with_their_varints(index: int) -> None:
    end = min(walk_module.block_end(index, index + 5), index + 5)
    expected = [zig_zag(delta) for delta in range(index, end)]
    columns = walk_module.offset_columns(index, end - index)
    assert [bytes(delta) for delta in zip(*columns, strict=True)] == expected
    numbers = walk_module._offsets(index, end)
    as_bytes = [
        number if isinstance(number, bytes) else number.to_bytes(len(columns), "little")
        for number in numbers
    ]
    assert as_bytes == expected


@pytest.mark.parametrize(
    ("deltas", "highest"),
    [
        ([0] * 20, 0),
        (list(range(20)), 19),
        (list(range(20, 0, -1)), 20),
        ([-1] * 20, -1),
        ([-5, -3, -9] * 7, -3),
        ([3, -60, 63, 1] * 5, 63),
        ([64, 8191, -8192, 5] * 5, 8191),
        ([0, 10**12, -(10**12)] * 7, 10**12),
        ([2**63 - 1, -(2**63)], 2**63 - 1),
    ],
)
def test_the_largest_delta_and_a_bound_below_all(deltas: list[int], highest: int) -> None:
    for width in (0, 1):  # of one size, then of two
        records = b"".join(
            a_record(index, b"v" * (70 + width * (index % 2)), delta=delta)
            for index, delta in enumerate(deltas)
        )
        walk = walk_records(records, 0, len(deltas))
        assert walk.delta_max == highest
        assert walk.delta_not_below <= min(deltas)


def test_outlines() -> None:
    records = a_record(0, key=b"k", delta=7) + a_record(1, delta=-3) + a_record(2, key=b"")
    walk = walk_records(b"header" + records, 6, 3)
    assert list(walk.outlines()) == [(7, False), (-3, True), (0, False)]


def test_a_null_key_in_a_longer_form_is_noticed() -> None:
    body = b"\x00\x00\x00" + b"\x81\x00" + field(b"v" * 70) + b"\x00"
    walk = walk_records(zig_zag(len(body)) + body, 0, 1)
    assert walk.null_key_suspected
    assert list(walk.outlines()) == [(0, True)]


def a_raw_record(*parts: bytes) -> bytes:
    """A record of these bytes behind attributes and timestamp delta, with their length in front."""
    body = b"\x00\x00" + b"".join(parts)
    return zig_zag(len(body)) + body


def wrong(at: int) -> dict[str, tuple[bytes, int]]:
    """What is wrong from record `at` on, and how many records it claims to be."""
    offset = zig_zag(at)
    record = a_record(at)
    long_record = a_record(at, b"v" * 70)
    return {
        "no record at all": (b"", 1),
        "one record less": (record + a_record(at + 1), 3),
        "one record more": (record + a_record(at + 1), 1),
        "bytes left over": (record + b"x", 1),
        "an offset delta too high": (a_record(at + 1), 1),
        "offset deltas that stand still": (record + a_record(at), 2),
        "offset deltas that jump": (record + a_record(at + 5), 2),
        "a negative offset delta": (a_record(-1), 1),
        "a negative length": (zig_zag(-len(record)) + record[1:], 1),
        "a length too short": (zig_zag(len(record) - 3) + record[1:], 1),
        "a length past the end": (zig_zag(len(record)) + record[1:], 1),
        "a longer length past the end": (zig_zag(len(long_record)) + long_record[2:], 1),
        "a length of three bytes past the end": (b"\xfe\xff\x01" + record[1:], 1),
        "a key past the end": (a_raw_record(offset, zig_zag(60), b"aa"), 1),
        "a long key past the end": (a_raw_record(offset, zig_zag(100), b"aa"), 1),
        "a key length of which one byte would fit": (
            a_raw_record(offset, b"\xc0", bytes(96), field(b"v"), b"\x00"),
            1,
        ),
        "a key length of -2": (a_raw_record(offset, zig_zag(-2), b"\x00\x00"), 1),
        "a value past the end": (a_raw_record(offset, b"\x01", zig_zag(9), b"\x00"), 1),
        "a value length of -2": (a_raw_record(offset, b"\x01", zig_zag(-2), b"\x00"), 1),
        "no value": (a_raw_record(offset, b"\x01", b"\x00"), 1),
        "headers that are not there": (a_record(at, headers=zig_zag(5)), 1),
        "a negative number of headers": (a_record(at, headers=zig_zag(-1)), 1),
        "as many headers as an int holds": (a_record(at, headers=zig_zag(2**31 - 1)), 1),
        "a header without a name": (a_record(at, headers=zig_zag(1) + zig_zag(-1) + b"\x00"), 1),
        "a header without a name, and nothing else": (
            a_record(at, headers=zig_zag(2) + field(b"a") + field(b"b") + zig_zag(-1)),
            1,
        ),
        "a last header past the end": (a_record(at, headers=zig_zag(1) + field(b"h") + b"\x08"), 1),
        "a last header past the end, in a record that is": (
            zig_zag(len(record) + 6) + a_record(at, headers=zig_zag(1) + field(b"h") + b"\x08")[1:],
            1,
        ),
        "a header with a value length of -2": (
            a_record(at, headers=zig_zag(1) + field(b"h") + zig_zag(-2)),
            1,
        ),
        "bytes behind the headers": (a_record(at, headers=b"\x00\x00"), 1),
        "0xff throughout": (b"\xff" * 40, 1),
        "zeros throughout": (bytes(40), 5),
    }


@pytest.mark.parametrize("case", wrong(0))
@pytest.mark.parametrize("in_front", [0, 1, 30, 64])
def test_wrong_records(case: str, in_front: int) -> None:
    """Alone, and behind right ones, where a faster gait meets them first."""
    records, count = wrong(in_front)[case]
    right = b"".join(a_record(index) for index in range(in_front))
    assert refusal(walk_records, right + records, 0, in_front + count).code == INVALID_RECORD


def by_fields(data: bytes, count: int) -> RecordWalk | None:
    """The judgement of the slow reader alone."""
    walk = RecordWalk(data, 0, count)
    try:
        while walk.index < count:
            walk._one()
    except (IndexError, ProtocolError):
        return None
    return walk if walk.position == len(data) else None


def structure(count: int, record_size: int) -> Iterator[int]:
    """The first 10 and the last 2 bytes of some of the records."""
    for index in {0, 1, 7, count // 2, count - 1}:
        start, end = index * record_size, (index + 1) * record_size
        yield from range(start, min(start + 10, end))
        yield from range(max(end - 2, start + 10), end)


@pytest.mark.parametrize(
    "record",
    [
        {"value": b"v" * 100},
        {"value": b"v" * 20, "key": b"key"},
        {"value": None},
        {"value": b"v" * 100, "key": b"k", "headers": TWO_HEADERS},
        {"value": b"\x00" * 59},
    ],
    ids=str,
)
def test_every_changed_byte_is_judged_as_by_the_field_by_field_reader(
    record: dict[str, bytes | None],
) -> None:
    count = 30
    made = [a_record(index, **record) for index in range(count)]  # type: ignore[arg-type]
    right = b"".join(made)
    accepted = refused = 0
    for at in structure(count, len(made[0])):
        for byte in {0, 1, 2, 3, 126, 127, 128, 129, 254, 255, right[at] ^ 1, right[at] + 2 & 255}:
            data = right[:at] + bytes([byte]) + right[at + 1 :]
            expected = by_fields(data, count)
            try:
                walk = walk_records(data, 0, count)
            except ProtocolError as refusal_:
                assert expected is None, (at, byte)
                assert refusal_.code == INVALID_RECORD
                refused += 1
            else:
                assert expected is not None, (at, byte)
                assert walk.delta_max == expected.delta_max
                assert walk.delta_not_below <= expected.delta_not_below
                assert walk.null_key_suspected >= expected.null_key_suspected
                accepted += 1
    assert refused > 100
    assert accepted > 50
