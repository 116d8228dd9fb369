"""The handler pool: threads for what may block (fsync, recovery, unpacking, deletion).

Kafka's request handler threads, reduced to what needs a thread here; `num.io.threads` sets their
number and may change while they run. Results come back on the event loop, in a Deferred.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError

R = TypeVar("R")
Job = tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]


class HandlerPool:
    def __init__(self, loop: asyncio.AbstractEventLoop, size: int) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._leaving = 0  # of the threads: told to end, but not gone yet
        self._size = size
        self._busy = 0
        self._closed = False
        self._idle: Deferred[None] | None = None

    @property
    def size(self) -> int:
        return self._size

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        deferred: Deferred[R] = Deferred()
        self._busy += 1
        # Threads are made when there is work for them: an idle broker has none.
        if len(self._threads) - self._leaving < min(self._busy, self._size):
            self._add_thread()
        self._jobs.put((deferred, work, arguments))
        return deferred

    def resize(self, size: int) -> None:
        """More threads come as work needs them; surplus ones end after the job they are at."""
        self._size = max(size, 1)
        for _ in range(len(self._threads) - self._leaving - self._size):
            self._leaving += 1
            self._jobs.put(None)

    def when_idle(self) -> Deferred[None]:
        """Done when nothing is under way or waits, what comes of other work included."""
        self._idle = Deferred()
        self._maybe_idle()
        return self._idle

    def _maybe_idle(self) -> None:
        if self._idle is not None and not self._idle.done and not self._busy:
            self._idle.resolve(None)

    def close(self) -> None:
        """Finish what was handed in, then end every thread."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in list(self._threads):
            thread.join()

    def _add_thread(self) -> None:
        name = f"ottla-handler-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                self._tell(self._forget, threading.current_thread())
                return
            self._do(*job)
            # An idle thread holds nothing of its last job: it may have been a batch unpacked.
            del job

    def _do(
        self, deferred: Deferred[Any], work: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        try:
            value = work(*arguments)
        except ProtocolError as refused:
            # An answer, and nothing to be traced: the frames it came through hold what they were
            # at, megabytes of a batch that was unpacked, until somebody collects the garbage.
            refused.__traceback__ = refused.__cause__ = refused.__context__ = None
            self._tell(self._failed, deferred, refused)
        except BaseException as error:  # handed to whoever waits, who decides
            self._tell(self._failed, deferred, error)
        else:
            self._tell(self._resolved, deferred, value)

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _forget(self, thread: threading.Thread) -> None:
        if thread in self._threads and not self._closed:
            self._threads.remove(thread)
            self._leaving -= 1

    def _resolved(self, deferred: Deferred[Any], value: Any) -> None:
        self._busy -= 1
        deferred.resolve(value)
        self._maybe_idle()

    def _failed(self, deferred: Deferred[Any], error: BaseException) -> None:
        self._busy -= 1
        deferred.fail(error)
        self._maybe_idle()
