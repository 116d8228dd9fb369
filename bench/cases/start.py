"""A broker that has just been started: how soon it answers, and what it costs while nobody asks."""

from __future__ import annotations

import time

from bench.case import Case, Figure, Figures
from bench.side import Side
from bench.sizes import Sizes


def start(side: Side, sizes: Sizes) -> Figures:
    broker = side.new_broker("start", {})
    try:
        started_s = broker.start()
        time.sleep(sizes.settle_seconds)
        before, begin = broker.cpu_seconds(), time.monotonic()
        time.sleep(sizes.idle_seconds)
        used, seconds = broker.cpu_seconds() - before, time.monotonic() - begin
        return {
            "start_s": started_s,
            "resident_mb": broker.resident_bytes() / 2**20,
            "cpu_percent": used / seconds * 100,
        }
    finally:
        side.discard(broker)


START_CASES = (
    Case(
        "start",
        "start, then idle",
        3,
        (
            Figure("start_s", "start to first metadata", "s", at_most=0.15),
            Figure("resident_mb", "idle memory", "MB", at_most=0.2),
            Figure("cpu_percent", "idle CPU", "% of a core", at_most=0.2),
        ),
        start,
    ),
)
