"""What becomes of plain clients in a child of their process: they refuse every call.

A fork copies sockets but no threads, and a lock as it happens to be: a client of the parent would
hang in the child, or answer on the parent's connections. Owns the list of those that live.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from ottla.client.errors import ClosedError


class ForkedLock:
    """In the place of a lock in a child of the process that made the client."""

    def acquire(self) -> bool:
        raise ClosedError(
            "this client was made before the process forked, and works in the parent only: make"
            " one in the child"
        )

    def release(self) -> None:
        """Nobody ever holds it."""

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.release()


class HasLock:
    """Through this lock goes whatever a client does."""

    lock: threading.Lock | ForkedLock


alive: weakref.WeakSet[HasLock] = weakref.WeakSet()


def _refuse_in_child() -> None:
    """The thread is not copied, and its lock may have been held by it."""
    for shell in list(alive):
        shell.lock = ForkedLock()
    alive.clear()


os.register_at_fork(after_in_child=_refuse_in_child)
