"""Looks for the next request for a moment before the loop sleeps.

A client that waits for its answer sends again as soon as it has it. By then the loop sleeps, and to
be woken on a core that has gone idle takes longer than the request itself. So after a request the
loop goes round without sleeping, for a moment that is longer than such a client takes.

Whoever else wants the core gets it after each of these rounds: the client has threads of its own,
which would wait for as long as the loop looks.

Where the next request does not come in that time, it is done more and more seldom; and where a
round takes so long that somebody else must have had the core, it is left alone for long: then
looking takes from others what it gives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

# A round in which nothing has come takes some microseconds, or some dozens with what it has to do.
_ROUND_S_MAX = 0.0005
# So many requests are slept for at most before looking again.
_SLEEPS_MAX = 1023


class Lookout:
    __slots__ = (
        "_call_soon",
        "_clock",
        "_is_looking",
        "_let_others",
        "_looked",
        "_moment",
        "_requests",
        "_seen",
        "_sleeps",
        "_sleeps_next",
        "_until",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        moment_s: float,
        clock: Callable[[], float] = time.perf_counter,
        let_others: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._let_others = let_others
        self._moment = moment_s
        self._is_looking = False
        self._requests = self._seen = 0  # that have come, that the last round knew of
        self._looked = self._until = 0.0
        self._sleeps = self._sleeps_next = 0  # requests that are slept for: now, after this look

    def request_came(self) -> None:
        if self._sleeps:
            self._sleeps -= 1
            return
        self._requests += 1
        if not self._is_looking:
            self._is_looking = True
            self._seen = self._requests
            self._looked = now = self._clock()
            self._until = now + self._moment
            self._call_soon(self._round)

    def _round(self) -> None:
        now = self._clock()
        if self._requests != self._seen:
            self._seen = self._requests
            self._sleeps_next = 0
            self._until = now + self._moment
        elif now - self._looked > _ROUND_S_MAX:
            self._stop(_SLEEPS_MAX)
            return
        elif now > self._until:
            self._stop(min(2 * self._sleeps_next + 1, _SLEEPS_MAX))
            return
        self._looked = now
        self._let_others()
        self._call_soon(self._round)

    def _stop(self, sleeps: int) -> None:
        self._is_looking = False
        self._sleeps = self._sleeps_next = sleeps
