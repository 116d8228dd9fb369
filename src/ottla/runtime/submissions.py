"""Decisions that somebody waits for: decide on the newest image, commit, answer once it is done.

One after the other, in the order in which they came; the next is decided when the image has the
last one. Whoever asked is answered when this broker has acted on the change, so that a topic that
was answered for can be produced to.

Where somebody else wrote first, the newer image is decided on. Where the store can't be asked, the
answer is NOT_CONTROLLER: the one code that admin clients of every kind take as "ask again", and no
client takes for a success. (librdkafka takes REQUEST_TIMED_OUT of a topic for one.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.base.ports import Timers
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import (
    Change,
    ChangeTooLarge,
    MetadataStore,
    StoreUnavailable,
    VersionConflict,
)
from ottla.protocol.error_codes import NOT_CONTROLLER, POLICY_VIOLATION
from ottla.runtime.image_keeper import ImageKeeper
from ottla.runtime.store_lane import StoreLane

R = TypeVar("R")
Decide = Callable[[MetadataImage], Decision[Any]]

ATTEMPTS_MAX = 10
"""Each one lost to somebody who was faster; more than that is no bad luck any more."""
WAIT_MS_MAX = 25_000
"""Below the 30 s that clients wait for an answer: they are told, and not left alone."""


def unavailable(reason: str = "") -> ProtocolError:
    return ProtocolError(
        NOT_CONTROLLER, "coordination unavailable" + (f": {reason}" if reason else "")
    )


class _Asked:
    __slots__ = ("answer", "attempts", "decide", "timer")

    def __init__(self, decide: Decide, timers: Timers) -> None:
        self.decide = decide
        self.answer: Deferred[Any] = Deferred()
        self.attempts = 0
        self.timer = timers.call_later(WAIT_MS_MAX, lambda: self.fail(unavailable("no answer")))

    def fail(self, error: BaseException) -> None:
        if not self.answer.done:
            self.timer.cancel()
            self.answer.fail(error)

    def resolve(self, value: Any) -> None:
        if not self.answer.done:
            self.timer.cancel()
            self.answer.resolve(value)


class Submissions:
    def __init__(
        self, keeper: ImageKeeper, store: MetadataStore, lane: StoreLane, timers: Timers
    ) -> None:
        self._keeper = keeper
        self._store = store
        self._lane = lane
        self._timers = timers
        self._waiting: deque[_Asked] = deque()
        self._is_busy = False
        self.closed_because: str | None = "this broker is starting"
        """Why nothing can be decided now."""

    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]:
        asked = _Asked(decide, self._timers)
        self._waiting.append(asked)
        self._next()
        return asked.answer

    def open(self) -> None:
        self.closed_because = None
        self._next()

    def close(self, reason: str) -> None:
        """What waits, and what comes, is told at once that nothing can be decided."""
        self.closed_because = reason
        self._next()

    def _next(self) -> None:
        while self._waiting and not self._is_busy:
            asked = self._waiting.popleft()
            if asked.answer.done:
                continue  # it has waited too long
            if self.closed_because is not None:
                asked.fail(unavailable(self.closed_because))
            elif self._store.is_fenced():
                asked.fail(unavailable("this broker has lost its session"))
            else:
                self._decide(asked)

    def _decide(self, asked: _Asked) -> None:
        try:
            decision = asked.decide(self._keeper.image)
        except ProtocolError as refused:
            asked.fail(refused)
            return
        if not decision.writes:
            asked.resolve(decision.response)
            return
        self._is_busy = True
        committed = self._lane.run(self._store.commit, decision.writes)
        committed.when_done(lambda outcome: self._on_committed(asked, decision.response, outcome))

    def _on_committed(self, asked: _Asked, response: Any, outcome: Deferred[Change]) -> None:
        try:
            change = outcome.result()
        except VersionConflict as conflict:
            self._on_conflict(asked, conflict)
            return
        except StoreUnavailable as failure:
            # It may have been done or not. Admin clients are used to that from time-outs.
            asked.fail(unavailable(str(failure)))
        except ChangeTooLarge as failure:
            asked.fail(ProtocolError(POLICY_VIOLATION, str(failure)))
        except Exception as error:  # whatever it is, the client is owed an answer
            asked.fail(error)
        else:
            published = self._keeper.when_published(change.number)
            published.when_done(lambda _: asked.resolve(response))
        self._done()

    def _on_conflict(self, asked: _Asked, conflict: VersionConflict) -> None:
        asked.attempts += 1
        if asked.attempts >= ATTEMPTS_MAX:
            asked.fail(unavailable(str(conflict)))
            self._done()
            return

        def refreshed(outcome: Deferred[None]) -> None:
            if outcome.error() is None:
                self._waiting.appendleft(asked)
            else:
                asked.fail(unavailable(str(outcome.error())))
            self._done()

        self._lane.run(self._store.refresh).when_done(refreshed)

    def _done(self) -> None:
        self._is_busy = False
        self._next()
