"""The way to the metadata store: calls that may block, in the pool, one at a time, in order.

The port asks for one call at a time. What was called returns on the event loop's thread, after
every change that the store has told its followers of until then: both take the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.ports import Pool

R = TypeVar("R")
Job = tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]


class StoreLane:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: deque[Job] = deque()
        self._is_busy = False

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        answer: Deferred[R] = Deferred()
        self._waiting.append((answer, work, arguments))
        self._next()
        return answer

    def _next(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        answer, work, arguments = self._waiting.popleft()

        def done(outcome: Deferred[Any]) -> None:
            self._is_busy = False
            outcome.tell(answer)
            self._next()

        self._pool.run(work, *arguments).when_done(done)
