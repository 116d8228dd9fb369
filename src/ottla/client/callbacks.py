"""What the application is told from the background thread: in order, one at a time, and whatever
one of them raises, the next is told all the same.

Who adds holds the shell's lock; who runs does not, and is one thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

logger = logging.getLogger("ottla.client")


class Callbacks:
    __slots__ = ("_is_running", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self._is_running = False

    def is_done(self) -> bool:
        """With the lock: all that were added have come to their end."""
        return not self.waiting and not self._is_running

    def run(self) -> None:
        waiting = self.waiting
        self._is_running = True  # before one is taken: who looks at both misses none
        while waiting:
            callback = waiting.popleft()
            try:
                callback()
            except Exception:
                logger.exception("a callback of the application failed")
        self._is_running = False
