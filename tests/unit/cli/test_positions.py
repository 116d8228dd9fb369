"""Goal: `--from` means what people wrote, and a mistake is told in words.
Method: a table of texts and their meanings; the offsets that follow from each.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.positions import (
    AtOffset,
    Beginning,
    End,
    LastRecords,
    Position,
    SinceTime,
    parse_position,
    start_offset,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", AtOffset(0)),
        ("12345678901", AtOffset(12_345_678_901)),
        ("-10", LastRecords(10)),
        ("-0", LastRecords(0)),
        ("@1700000000123", SinceTime(1_700_000_000_123)),
        ("@0", SinceTime(0)),
        ("@2023-11-14T22:13:20Z", SinceTime(1_700_000_000_000)),
        ("@2023-11-14T23:13:20.5+01:00", SinceTime(1_700_000_000_500)),
        ("@-15m", SinceTime(NOW_MS - 900_000)),
        ("@-2h", SinceTime(NOW_MS - 7_200_000)),
        ("@-7d", SinceTime(NOW_MS - 604_800_000)),
        ("@-30s", SinceTime(NOW_MS - 30_000)),
        ("@-5ms", SinceTime(NOW_MS - 5)),
        ("@-99999d", SinceTime(0)),
    ],
)
def test_what_a_text_means(text: str, meaning: Position) -> None:
    assert parse_position(text, NOW_MS) == meaning


@pytest.mark.parametrize("text", ["", "start", "1.5", "--3", "@", "@soon", "@-5y", "+3", "²", "-"])
def test_a_mistake_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no") as told:
        parse_position(text, NOW_MS)
    assert text.removeprefix("@") in str(told.value)


def test_a_time_without_zone_is_local() -> None:
    expected = time.mktime((2026, 1, 31, 8, 0, 0, 0, 0, -1))
    assert parse_position("@2026-01-31T08:00:00", NOW_MS) == SinceTime(int(expected * 1_000))


def test_eight_digits_are_a_date() -> None:
    expected = time.mktime((2026, 1, 31, 0, 0, 0, 0, 0, -1))
    assert parse_position("@20260131", NOW_MS) == SinceTime(int(expected * 1_000))


@pytest.mark.parametrize(
    ("position", "by_time", "start"),
    [
        (Beginning(), None, 100),
        (End(), None, 200),
        (AtOffset(150), None, 150),
        (AtOffset(50), None, 100),
        (AtOffset(300), None, 200),
        (LastRecords(10), None, 190),
        (LastRecords(1_000), None, 100),
        (SinceTime(5), 120, 120),
        (SinceTime(5), 99, 100),
        (SinceTime(5), None, 200),
    ],
)
def test_where_reading_starts(position: Position, by_time: int | None, start: int) -> None:
    assert start_offset(position, 100, 200, by_time) == start


@given(st.datetimes(timezones=st.just(UTC)).filter(lambda moment: moment.year >= 1970))
def test_every_iso_time_is_read(moment: datetime) -> None:
    found = parse_position(f"@{moment.isoformat()}", NOW_MS)
    assert isinstance(found, SinceTime)
    assert abs(found.timestamp_ms - moment.timestamp() * 1_000) <= 1
