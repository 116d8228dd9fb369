"""What is to happen at a time: a heap of callbacks, driven by whoever knows the time.

Cancelled timers stay in the heap until their time and are few; nothing here looks at a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Timer:
    __slots__ = ("callback", "deadline_ms")

    def __init__(self, deadline_ms: float, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Timer) -> bool:
        return self.deadline_ms < other.deadline_ms


class Timers:
    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Timer] = []

    def call_at(self, deadline_ms: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(deadline_ms, callback)
        heapq.heappush(self._heap, timer)
        return timer

    def run_due(self, now_ms: float) -> None:
        heap = self._heap
        while heap and heap[0].deadline_ms <= now_ms:
            callback = heapq.heappop(heap).callback
            if callback is not None:
                callback()

    def next_deadline_ms(self) -> float | None:
        heap = self._heap
        while heap and heap[0].callback is None:
            heapq.heappop(heap)
        return heap[0].deadline_ms if heap else None
