"""The system's clock, and one that a test can move forward."""

from __future__ import annotations

import time


class SystemClock:
    __slots__ = ()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class MovableClock:
    """Runs with the system's clock, ahead of it by what it was moved. It never goes back."""

    __slots__ = ("_ahead_ms",)

    def __init__(self) -> None:
        self._ahead_ms = 0

    def advance(self, milliseconds: int) -> None:
        if milliseconds < 0:
            raise ValueError("a clock can only be moved forward")
        self._ahead_ms += milliseconds

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._ahead_ms

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms
