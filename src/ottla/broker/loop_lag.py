"""How late the event loop runs its timers: the first thing to look at when a broker is slow."""

from __future__ import annotations

import time

from ottla.base.ports import Timers

INTERVAL_MS = 1_000


class LoopLag:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.seconds = 0.0
        self._expected_ns = 0
        self._arm()

    def stop(self) -> None:
        self._timer.cancel()

    def _arm(self) -> None:
        self._expected_ns = time.monotonic_ns() + INTERVAL_MS * 1_000_000
        self._timer = self._timers.call_later(INTERVAL_MS, self._measure)

    def _measure(self) -> None:
        self.seconds = max(0, time.monotonic_ns() - self._expected_ns) / 1e9
        self._arm()
