"""A busy turn of the loop: its answers leave together, at the end of it.

To send is to wake the peer if it sleeps, which takes as long as everything else that a small answer
costs. Where many connections have something to say in the same turn, some of them are often of one
process, or on one core: it is woken by the first of the answers, and finds the others there. So
where the last turn was busy, what this one has for its peers is kept until its end, or for a
moment. A turn that is not busy costs nothing but a look now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from ottla.base.limits import TURN_ANSWERS_MAX

# So many connections with something to send make a turn busy.
_BUSY_FROM = 4
# So many of them pass between two looks while turns are not.
_PASSES = 63
_MOMENT_S = 0.0005


class Answered(Protocol):
    def send_now(self) -> None:
        """Raises nothing: others are told behind it."""


class Turn:
    __slots__ = (
        "_began",
        "_call_soon",
        "_clock",
        "_count",
        "_is_busy",
        "_is_whole",
        "_kept",
        "_passes",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._kept: list[Answered] = []
        self._is_busy = False
        self._is_whole = False  # this turn is counted from its beginning
        self._count = 0  # in this turn; 0 as well where nobody counts
        self._passes = 0
        self._began = 0.0

    def keeps(self, peer: Answered) -> bool:
        """Whether it will be told to send later in this turn. Else it has to do so itself."""
        if self._count == 0:
            if self._passes:
                self._passes -= 1
                return False
            self._call_soon(self._end)
            self._began = self._clock()
        self._count += 1
        if not self._is_busy:
            return False
        self._kept.append(peer)
        if len(self._kept) >= TURN_ANSWERS_MAX or self._clock() - self._began > _MOMENT_S:
            self._send()
            self._began = self._clock()
        return True

    def _end(self) -> None:
        if self._is_whole:
            self._is_whole = self._is_busy = self._count >= _BUSY_FROM
            self._passes = 0 if self._is_busy else _PASSES
        else:
            self._is_whole = True  # the look began somewhere in this turn: the next one tells
        self._count = 0
        self._send()

    def _send(self) -> None:
        kept, self._kept = self._kept, []
        for peer in kept:
            peer.send_now()
