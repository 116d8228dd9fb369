"""Goal: every way of resetting ends at the offset that Kafka's tool would choose.
Method: plans over prepared partitions; texts as people write them.
"""

from __future__ import annotations

import pytest

from ottla.cli.group_reset import (
    Change,
    Found,
    FromFile,
    Goal,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    csv_rows,
    parse_duration,
    parse_offsets,
    parse_topic,
    plan,
)

FIRST, SECOND = ("orders", 0), ("orders", 1)
# The second partition has no commit and no record that young.
FOUND = Found(
    earliest={FIRST: 10, SECOND: 0},
    latest={FIRST: 100, SECOND: 7},
    committed={FIRST: 50},
    by_time={FIRST: 60},
)


@pytest.mark.parametrize(
    ("goal", "first", "second"),
    [
        (ToEarliest(), 10, 0),
        (ToLatest(), 100, 7),
        (ToCurrent(), 50, 7),
        (ToOffset(5), 10, 5),
        (ToOffset(7), 10, 7),
        (ToOffset(1_000), 100, 7),
        (ToTime(1_700_000_000_000), 60, 7),
        (FromFile({FIRST: 99, SECOND: 8}), 99, 7),
    ],
)
def test_where_each_way_leads(goal: Goal, first: int, second: int) -> None:
    changes = plan(goal, [SECOND, FIRST], FOUND)
    assert [(change.partition, change.current, change.new) for change in changes] == [
        (FIRST, 50, first),
        (SECOND, None, second),
    ]


@pytest.mark.parametrize(("count", "new"), [(5, 55), (-5, 45), (-60, 10), (60, 100), (0, 50)])
def test_shifting_stays_inside(count: int, new: int) -> None:
    asked = None if new == 50 + count else 50 + count
    assert plan(ShiftBy(count), [FIRST], FOUND) == [Change(FIRST, 50, new, asked)]


def test_a_shift_needs_something_to_start_from() -> None:
    with pytest.raises(ValueError, match="orders-1 has no committed offset to shift from"):
        plan(ShiftBy(1), [FIRST, SECOND], FOUND)


def test_an_offset_that_does_not_exist_is_told() -> None:
    changes = plan(ToOffset(9), [FIRST, SECOND], FOUND)
    assert [change.asked for change in changes] == [9, 9]
    assert [change.asked for change in plan(ToEarliest(), [FIRST, SECOND], FOUND)] == [None, None]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("PT1H30M", 5_400_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt5m", 300_000),
        ("PT0S", 0),
        ("90m", 5_400_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("2d", 172_800_000),
        ("1m500ms", 60_500),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1", "m", "30m1h", "P1H", "-PT1H", "PT1H ", "1.5h"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: give it like PT1H30M"):
        parse_duration(text)


def test_topics() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:0") == ("orders", [0])
    assert parse_topic("orders:0,12,3") == ("orders", [0, 12, 3])
    for wrong in ("", ":0", "orders:", "orders:x", "orders:0,", "orders:-1"):
        with pytest.raises(ValueError, match="should look like orders or orders:0,1"):
            parse_topic(wrong)


def test_offsets_of_a_file() -> None:
    text = 'orders,0,5\n\n"orders",1, 7\r\n"pay,ments",0,0\n'
    assert parse_offsets(text.splitlines(keepends=True)) == {
        FIRST: 5,
        SECOND: 7,
        ("pay,ments", 0): 0,
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no offset in it"),
        ("topic,partition,offset\n", "line 1 should be"),
        ("orders,0\n", "line 1 should be"),
        ("orders,0,5\norders,0,-5\n", "line 2 should be"),
        ("shop,orders,0,5\n", "line 1 should be"),
        ("orders,0,5\norders,0,6\n", "line 2 names orders-0 again"),
    ],
)
def test_files_that_say_something_else(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_offsets(text.splitlines(keepends=True))


def test_what_is_exported_can_be_read_again() -> None:
    changes = plan(ToCurrent(), [FIRST, SECOND], FOUND)
    lines = [",".join(map(str, row)) for row in csv_rows(changes)]
    assert parse_offsets(lines) == {FIRST: 50, SECOND: 7}
