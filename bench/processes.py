"""What a broker process costs, read from /proc: processor seconds and resident memory.

The harness and the clients both count with these, so that two figures are never made in two ways.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_USER_TICKS, _SYSTEM_TICKS = 11, 12  # counted from the field after the command's name
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


class Times(NamedTuple):
    user_s: float
    system_s: float


def times_in(stat: str) -> Times:
    """Of the text of /proc/PID/stat. The command's name may hold anything."""
    fields = stat.rpartition(")")[2].split()
    user, system = int(fields[_USER_TICKS]), int(fields[_SYSTEM_TICKS])
    return Times(user / _TICKS_PER_SECOND, system / _TICKS_PER_SECOND)


def cpu_seconds_in(stat: str) -> float:
    """User and system time together."""
    return sum(times_in(stat))


def resident_bytes_in(status: str) -> int:
    """Resident memory in the text of /proc/PID/status; none is left of a process that has ended."""
    found = _RESIDENT.search(status)
    return int(found.group(1)) * 1024 if found else 0


def times(pid: int) -> Times:
    return times_in(Path(f"/proc/{pid}/stat").read_text())


def cpu_seconds(pid: int) -> float:
    return cpu_seconds_in(Path(f"/proc/{pid}/stat").read_text())


def cpu_seconds_of(pids: Iterable[int]) -> float:
    """Of all processes that a side needs, together."""
    return sum(map(cpu_seconds, pids))


def resident_bytes(pid: int) -> int:
    return resident_bytes_in(Path(f"/proc/{pid}/status").read_text())
