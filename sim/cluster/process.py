"""Virtual time, and the life of one process in it.

`Heap` is the world's time: events in the order of their due time, then of their making. A `Process`
gives a broker what it stands on (clock, timers, pool, post, chance) and decides what becomes of its
events: none happens after its death, and while it is paused they wait.

The same seed makes the same events: nothing here asks the machine for a time or a number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar, cast

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError

R = TypeVar("R")
Callback = Callable[[], None]

START_WALL_MS = 1_700_000_000_000


class Event:
    """One thing to happen; also a timer of the port."""

    __slots__ = ("callback", "process")

    def __init__(self, callback: Callback, process: Process | None) -> None:
        self.callback: Callback | None = callback
        self.process = process

    def cancel(self) -> None:
        self.callback = None


class Heap:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self.happened = 0
        self._heap: list[tuple[float, int, Event]] = []
        self._order = 0
        self.after_each: Callable[[Process | None], None] = lambda process: None

    def push(self, delay_ms: float, callback: Callback, process: Process | None = None) -> Event:
        self._order += 1
        event = Event(callback, process)
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._order, event))
        return event

    def run(self, until_ms: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(heap)
            callback = event.callback
            if callback is None:
                continue
            process = event.process
            if process is not None:
                if not process.is_alive:
                    continue
                if process.waiting is not None:
                    process.waiting.append(event)
                    continue
            event.callback = None
            self.happened += 1
            callback()
            self.after_each(process)
        self.now_ms = until_ms


class Process:
    """One life of one broker. `chance` is its own: what it draws shifts nothing elsewhere."""

    def __init__(self, heap: Heap, broker_id: int, chance: Random, rate: float) -> None:
        self.heap = heap
        self.broker_id = broker_id
        self.is_alive = True
        self.waiting: list[Event] | None = None
        """While it is paused: what would have happened."""
        self._chance = chance
        self._rate = rate
        self._started_ms = heap.now_ms
        self._offset_ms = chance.randrange(1_000_000)
        self.wall_offset_ms = 0

    # -- the ports --------------------------------------------------------------------------

    def monotonic_ms(self) -> int:
        """Counts from anywhere, and not as fast as elsewhere."""
        return int((self.heap.now_ms - self._started_ms) * self._rate) + self._offset_ms

    def wall_ms(self) -> int:
        return START_WALL_MS + int(self.heap.now_ms) + self.wall_offset_ms

    def call_later(self, delay_ms: float, callback: Callback) -> Event:
        # Never early by its own clock, which counts whole milliseconds.
        return self.heap.push(max(delay_ms, 0) / self._rate + 0.002, callback, self)

    def post(self, callback: Callback) -> None:
        self.heap.push(0, callback, self)

    def uniform(self, low: float, high: float) -> float:
        return self._chance.uniform(low, high)

    def random_bytes(self, count: int) -> bytes:
        return self._chance.randbytes(count)

    # -- life -------------------------------------------------------------------------------

    def pause(self) -> None:
        if self.waiting is None:
            self.waiting = []

    def resume(self) -> None:
        waiting, self.waiting = self.waiting or [], None
        for event in waiting:
            if event.callback is not None:
                self.heap.push(0, event.callback, self)

    def die(self) -> None:
        self.is_alive = False
        self.waiting = None


class Pool:
    """What would block in a thread: done after a while, and told after another moment."""

    def __init__(self, process: Process, longest_ms: Callable[[], float]) -> None:
        self._process = process
        self._longest_ms = longest_ms
        self._running = 0
        self._when_idle: Callback | None = None

    def when_idle(self, callback: Callback) -> None:
        if self._running:
            self._when_idle = callback
        else:
            callback()

    def _one_less(self) -> None:
        self._running -= 1
        if self._running == 0 and self._when_idle is not None:
            callback, self._when_idle = self._when_idle, None
            callback()

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        process = self._process
        answer: Deferred[R] = Deferred()
        self._running += 1

        def done(value: R | None, failure: BaseException | None) -> None:
            if failure is None:
                answer.resolve(cast(R, value))
            else:
                answer.fail(failure)
            self._one_less()

        def job() -> None:
            try:
                value = work(*arguments)
            except (OttlaError, OSError) as error:
                failure = error
                process.post(lambda: done(None, failure))
            else:
                process.post(lambda: done(value, None))

        process.heap.push(process.uniform(0.05, self._longest_ms()), job, process)
        return answer
