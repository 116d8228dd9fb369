"""Virtual time: a clock that stands still, and timers that fire when it is moved."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class VirtualTimer:
    __slots__ = ("callback", "due_ms", "order")

    def __init__(self, due_ms: float, order: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: VirtualTimer) -> bool:
        return (self.due_ms, self.order) < (other.due_ms, other.order)


class VirtualTime:
    """Clock and timers in one: what is scheduled is what makes time pass."""

    START_WALL_MS = 1_700_000_000_000

    def __init__(self) -> None:
        self._now_ms = 0
        self._heap: list[VirtualTimer] = []
        self._order = 0

    def monotonic_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self.START_WALL_MS + self._now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> VirtualTimer:
        self._order += 1
        timer = VirtualTimer(self._now_ms + max(delay_ms, 0), self._order, callback)
        heapq.heappush(self._heap, timer)
        return timer

    def advance(self, milliseconds: int) -> None:
        """Time passes, and whatever is due meanwhile happens in its order."""
        until_ms = self._now_ms + milliseconds
        while self._heap and self._heap[0].due_ms <= until_ms:
            timer = heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self._now_ms = max(self._now_ms, int(timer.due_ms))
                callback()
        self._now_ms = until_ms
