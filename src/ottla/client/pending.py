"""A value that comes later, and flows: coroutines that wait for nothing but such values.

Owns how the core waits without an event loop. A flow is an ordinary coroutine (`async def`) that
awaits a Pending or another flow; a Scheduler runs every flow that can go on, inside whichever shell
drives the core. So one text of a conversation with a broker serves asyncio and threads alike.

Never knows a clock, a thread or asyncio, and is never touched by two threads at once: a shell holds
its lock around everything here. A Pending is settled once; what comes later is ignored only where
it was cancelled.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from ottla.base.errors import OttlaError, check

T = TypeVar("T")
logger = logging.getLogger("ottla.client")


class Cancelled(BaseException):
    """Thrown into a flow that nobody waits for any more. Catch it only to clean up."""


class Pending(Generic[T]):
    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], None]] | None = None

    def resolve(self, value: T) -> None:
        check(not self.done, "a Pending is settled once")
        self._value = value
        self._settle()

    def fail(self, error: BaseException) -> None:
        check(not self.done, "a Pending is settled once")
        self._error = error
        self._settle()

    def error(self) -> BaseException | None:
        return self._error

    def result(self) -> T:
        """The value, or the error raised. Only once it is done."""
        check(self.done, "a Pending has no result yet")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def when_done(self, callback: Callable[[Any], None]) -> None:
        """Calls back with this Pending, at once if it is settled; callbacks are short."""
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Pending[Any], None, T]:
        if not self.done:
            yield self
        return self.result()

    def _settle(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)


def heard(pending: Pending[Any]) -> None:
    """As a callback: somebody will ask how it ended."""


def settled(value: T) -> Pending[T]:
    pending: Pending[T] = Pending()
    pending.resolve(value)
    return pending


class Flow(Pending[T]):
    """A coroutine that runs whenever what it waits for is there; itself the Pending of its end."""

    __slots__ = ("_coroutine", "_scheduler", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, T], scheduler: Scheduler) -> None:
        super().__init__()
        self._coroutine = coroutine
        self._scheduler = scheduler
        self._waits_for: Pending[Any] | None = None

    def cancel(self) -> None:
        """Ends it where it waits; its `finally` blocks run before this returns."""
        if self.done:
            return
        self._waits_for = None
        try:
            self._coroutine.throw(Cancelled())
        except Cancelled as cancelled:
            self.fail(cancelled)
        except StopIteration as end:
            self.resolve(end.value)
        except Exception as error:
            self.fail(error)
        else:
            self._coroutine.close()
            self.fail(Cancelled())

    def step(self) -> None:
        if self.done:
            return
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as end:
            self.resolve(end.value)
        except (Exception, Cancelled) as error:
            # Errors on purpose are for whoever will ask; a defect that nobody waits for must show.
            if self._callbacks is None and not isinstance(error, Cancelled | OttlaError):
                logger.exception("a background flow of the client failed", exc_info=error)
            self.fail(error)
        except BaseException as error:
            # Ctrl-C came while it ran. It is over, and whoever waits for it must not wait for ever.
            self.fail(error)
            raise
        else:
            self._waits_for = waits_for
            waits_for.when_done(self._go_on)

    def _settle(self) -> None:
        self._scheduler.flows.discard(self)
        super()._settle()

    def _go_on(self, pending: Pending[Any]) -> None:
        if pending is self._waits_for:
            self._waits_for = None
            self._scheduler.ready.append(self)


class Scheduler:
    """Runs flows until each of them waits. Whatever settles a Pending calls `run` afterwards."""

    __slots__ = ("flows", "ready")

    def __init__(self) -> None:
        self.ready: deque[Flow[Any]] = deque()
        self.flows: set[Flow[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Flow[T]:
        flow = Flow(coroutine, self)
        self.flows.add(flow)
        self.ready.append(flow)
        return flow

    def run(self) -> None:
        ready = self.ready
        while ready:
            ready.popleft().step()

    def cancel_all(self) -> None:
        for flow in list(self.flows):
            flow.cancel()
        self.ready.clear()


async def gather(flows: list[Flow[T]]) -> list[T]:
    """All values in order, or the first error in order, once all are settled; who is cancelled
    while it waits here takes them with it."""
    try:
        for flow in flows:
            if not flow.done:
                await _Settled(flow)
    finally:
        for flow in flows:
            flow.cancel()
    return [flow.result() for flow in flows]


class _Settled(Generic[T]):
    """Waits like a Pending, but does not raise its error."""

    __slots__ = ("_pending",)

    def __init__(self, pending: Pending[T]) -> None:
        self._pending = pending

    def __await__(self) -> Generator[Pending[Any], None, None]:
        if not self._pending.done:
            yield self._pending
