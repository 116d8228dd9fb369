"""A value that comes later, without an event loop.

Handlers and machines may not know asyncio; they answer with a Deferred when the answer has to wait.
It is resolved or failed exactly once, always on the event loop's thread, and calls back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ottla.base.errors import InvariantError

T = TypeVar("T")

_TWICE = "a Deferred is resolved once"
_TOO_EARLY = "a Deferred has no result yet"


class Deferred(Generic[T]):
    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Deferred[T]], None]] = []

    def resolve(self, value: T) -> None:
        if self.done:
            raise InvariantError(_TWICE)
        self._value = value
        self._finish()

    def fail(self, error: BaseException) -> None:
        if self.done:
            raise InvariantError(_TWICE)
        self._error = error
        self._finish()

    def result(self) -> T:
        """The value, or the error raised. Only once it is done."""
        if not self.done:
            raise InvariantError(_TOO_EARLY)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def error(self) -> BaseException | None:
        """What went wrong, if anything did. Only once it is done."""
        if not self.done:
            raise InvariantError(_TOO_EARLY)
        return self._error

    def when_done(self, callback: Callable[[Deferred[T]], None]) -> None:
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def tell(self, other: Deferred[T]) -> None:
        """What came of this one comes of `other`; for a `when_done`."""
        if self._error is not None:
            other.fail(self._error)
        else:
            other.resolve(self.result())

    def _finish(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def all_of(parts: Sequence[Deferred[Any]]) -> Deferred[None]:
    """Done when every part is; fails with the error of the first that has failed."""
    whole: Deferred[None] = Deferred()
    left = len(parts)

    def part_done(_: Deferred[Any]) -> None:
        nonlocal left
        left -= 1
        if left:
            return
        failed = next((part._error for part in parts if part._error is not None), None)
        if failed is None:
            whole.resolve(None)
        else:
            whole.fail(failed)

    if not parts:
        whole.resolve(None)
    for part in parts:
        part.when_done(part_done)
    return whole
