"""Goal: processor time and memory come from the right fields. Method: texts as /proc has them."""

from __future__ import annotations

import os

from bench.processes import cpu_seconds, cpu_seconds_in, resident_bytes, resident_bytes_in, times_in

TICKS = os.sysconf("SC_CLK_TCK")
STAT = (
    f"4711 (java) odd) S 1 4711 4711 0 -1 4194304 9 8 7 6 {3 * TICKS} {2 * TICKS} 50 60 20 0 12 0"
)
STATUS = "Name:\tjava\nVmHWM:\t  900000 kB\nVmRSS:\t  331776 kB\nRssAnon:\t  1 kB\n"


def test_user_and_system_time_are_added_without_those_of_children() -> None:
    assert cpu_seconds_in(STAT) == 5.0
    assert times_in(STAT) == (3.0, 2.0)


def test_resident_memory() -> None:
    assert resident_bytes_in(STATUS) == 331776 * 1024
    assert resident_bytes_in("Name:\tgone\n") == 0


def test_this_process_has_both() -> None:
    assert cpu_seconds(os.getpid()) >= 0
    assert resident_bytes(os.getpid()) > 1024 * 1024
