"""Where to start reading: the little language of `--from` and `--delete-before`.

`beginning`, `end`, an offset, `-N` (the last N records of each partition) or `@TIME`, where TIME is
milliseconds since 1970, an ISO date and time (local time unless it says otherwise), or `-15m` for
so long ago. Pure: the offsets that a position stands for are found by `connection`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999
AGO = re.compile(r"-(\d+)(ms|s|m|h|d)")
UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(slots=True)
class Beginning:
    pass


@dataclass(slots=True)
class End:
    pass


@dataclass(slots=True)
class AtOffset:
    offset: int


@dataclass(slots=True)
class LastRecords:
    count: int


@dataclass(slots=True)
class SinceTime:
    timestamp_ms: int


Position = Beginning | End | AtOffset | LastRecords | SinceTime


def parse_position(text: str, now_ms: int) -> Position:
    """Raises ValueError with a message for people."""
    if text == "beginning":
        return Beginning()
    if text == "end":
        return End()
    if text.startswith("@"):
        return SinceTime(_parse_time(text[1:], now_ms))
    if re.fullmatch(r"\d+", text, re.ASCII):
        return AtOffset(int(text))
    if re.fullmatch(r"-\d+", text, re.ASCII):
        return LastRecords(int(text[1:]))
    raise ValueError(f"{text!r} is none of beginning, end, OFFSET, -N, @TIME")


def _parse_time(text: str, now_ms: int) -> int:
    # Eight digits are a date in ISO's short form: nobody means the first morning of 1970.
    if re.fullmatch(r"\d+", text, re.ASCII) and len(text) != len("20260131"):
        return _in_the_calendar(int(text), text)
    ago = AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * UNIT_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
        return max(0, round(moment.timestamp() * 1_000))
    except (ValueError, OverflowError, OSError) as cause:
        raise ValueError(
            f"{text!r} is no time: give milliseconds since 1970, an ISO date and time such as"
            " 2026-01-31T08:00:00Z, or -15m for so long ago"
        ) from cause


def _in_the_calendar(time_ms: int, text: str) -> int:
    if time_ms > TIME_MS_MAX:
        raise ValueError(f"{text!r} is no time: it is behind the year 9999")
    return time_ms


def start_offset(position: Position, earliest: int, latest: int, by_time: int | None) -> int:
    """The first offset to read, within what is there; `by_time`: the leader's answer, if asked."""
    match position:
        case Beginning():
            return earliest
        case End():
            return latest
        case AtOffset(offset=offset):
            return max(earliest, min(offset, latest))
        case LastRecords(count=count):
            return max(earliest, latest - count)
        case SinceTime():
            return latest if by_time is None else max(earliest, by_time)
