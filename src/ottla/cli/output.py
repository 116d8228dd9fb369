"""Where output goes: results to stdout, everything else (notes, progress) to stderr.

JSON has stable keys; tables for people are in `tables`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

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
