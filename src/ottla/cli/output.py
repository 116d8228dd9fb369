"""Where output goes: results to stdout, everything else (notes, progress) to stderr.

JSON has stable keys; tables for people are in `tables`.
"""

from __future__ import annotations

import io
import json
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, BinaryIO

SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


class OutputFormat(StrEnum):
    text = "text"
    json = "json"


def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """Whoever reads our output may have enough (`| head`): that is an end, and no failure."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_somebody_reads(target: BinaryIO) -> None:
    """Raises BrokenPipeError if nobody does, also if there is nothing to write: who follows a quiet
    topic would else stay behind for ever when `head` has gone."""
    try:
        number = target.fileno()
    except io.UnsupportedOperation:
        return
    poll = select.poll()
    poll.register(number, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError


def note(line: str) -> None:
    """A line that is no result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class Size:
    """A number of bytes, shown in the largest unit that leaves at least one before the point."""

    __slots__ = ("size_bytes",)

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def __str__(self) -> str:
        if self.size_bytes < 1024:
            return f"{self.size_bytes} B"
        value, power = self.size_bytes / 1024, 0
        # What rounds to 1024.0 is one of the next unit.
        while value >= 1023.95 and power < len(SIZE_UNITS) - 1:
            value, power = value / 1024, power + 1
        return f"{value:.1f} {SIZE_UNITS[power]}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
