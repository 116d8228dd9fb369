"""Timers by the broker's own clock, on top of one timer of the event loop.

A heap of our own, because the clock can be moved: `poke` fires what has become due at once.
Cancelled entries stay in the heap until they come up, or until they are most of it. A fetch that
waits takes a timer and cancels it, thousands of times a second: so the heap has tuples, which are
compared without a call, and never their third part, since no two have the same order.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable

from ottla.base.ports import Clock

log = logging.getLogger("ottla.runtime")

COMPACT_ENTRIES_MIN = 512


class TimerEntry:
    __slots__ = ("_timers", "callback")

    def __init__(self, timers: LoopTimers, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timers.on_cancelled()


class LoopTimers:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._heap: list[tuple[float, int, TimerEntry]] = []
        self._order = 0
        self._cancelled = 0
        self._armed: asyncio.TimerHandle | None = None
        self._armed_ms = 0.0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerEntry:
        now_ms = self._clock.monotonic_ms()
        self._order += 1
        due_ms = now_ms + delay_ms
        entry = TimerEntry(self, callback)
        heapq.heappush(self._heap, (due_ms, self._order, entry))
        if self._armed is None or due_ms < self._armed_ms:
            self._arm(due_ms, now_ms)
        return entry

    def on_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > COMPACT_ENTRIES_MIN and self._cancelled * 2 > len(self._heap):
            self._heap = [timer for timer in self._heap if timer[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def poke(self) -> None:
        """The clock was moved: what is due by now fires."""
        self._fire()

    def close(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        self._heap = []

    def _arm(self, due_ms: float, now_ms: int) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_ms = due_ms
        # One millisecond late is right, early would wake for nothing.
        delay_ms = max(due_ms - now_ms, 0) + 1
        self._armed = self._loop.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        now_ms = self._clock.monotonic_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heapq.heappop(self._heap)[2]
            callback, entry.callback = entry.callback, None
            if callback is None:
                self._cancelled -= 1
                continue
            try:
                callback()
            except Exception:  # one timer must not stop the others
                log.exception("a timer failed")
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        # A callback may have armed for an entry of its own that is due later than the first one.
        if self._heap and not self._is_armed_for(self._heap[0][0]):
            self._arm(self._heap[0][0], now_ms)

    def _is_armed_for(self, due_ms: float) -> bool:
        return self._armed is not None and self._armed_ms <= due_ms
