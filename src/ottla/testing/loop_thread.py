"""An event loop in a thread of its own, for brokers inside a test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import uvloop

R = TypeVar("R")
SECONDS_MAX = 60.0


class LoopThread:
    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
        self._thread.start()
        return loop

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Wait for a coroutine on the loop; from any other thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS_MAX)

    def call(self, work: Callable[[], R]) -> R:
        async def called() -> R:
            return work()

        return self.run(called())

    def stop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def step_ms(days: float, hours: float, minutes: float, seconds: float, milliseconds: float) -> int:
    step = timedelta(
        days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
    )
    return round(step.total_seconds() * 1000)
