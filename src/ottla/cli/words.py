"""Bytes and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def shown(value: bytes | None) -> str:
    """Text as it is, without what would spoil a terminal; other bytes as \\xNN."""
    if value is None:
        return "null"
    return printable(value.decode(errors="backslashreplace"))


def printable(text: str) -> str:
    """Names that others have chosen may hold anything, what steers a terminal too."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def check_unicode(text: str) -> None:
    """Names go to brokers as UTF-8. Raises ValueError for one that a shell passed as other
    bytes, or that JSON wrote as half a letter."""
    if any("\ud800" <= one <= "\udfff" for one in text):
        raise ValueError(f"{printable(text)} is no UTF-8")


def time_of(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1_000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        # A broken batch may claim any time at all.
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_of(duration_ms: int) -> str:
    """In the unit that leaves at least one before the point: 750 ms, 12.5 s, 3.0 min, 2.5 h."""
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1_000:.1f} s"
    if duration_ms < 3_600_000:
        return f"{duration_ms / 60_000:.1f} min"
    return f"{duration_ms / 3_600_000:.1f} h"
