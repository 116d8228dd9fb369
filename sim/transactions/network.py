"""Questions and answers that are delayed, lost and, if somebody asks again, heard twice.

Who asks hears the answer once, or that there was none in time. A question may still be on its way
then: it arrives late, maybe long after its sender has gone on to other things.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from sim.groups.virtual import VirtualTime

SOON_MS_MAX = 30
LATE_MS_MAX = 12_000
TIMEOUT_MS = 1500

Told = Callable[[Any], None]


class Network:
    def __init__(self, time: VirtualTime, dice: Random, *, loss: float, late: float) -> None:
        self._time = time
        self._dice = dice
        self._loss = loss
        self._late = late
        self.is_healed = False

    def ask(
        self,
        act: Callable[[], Any],
        told: Told,
        *,
        may_be_late: bool,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """`act` happens where the question arrives; `told` gets what it gives, or None."""
        heard = False

        def hear(result: Any) -> None:
            nonlocal heard
            if not heard:
                heard = True
                told(result)

        def arrive() -> None:
            answer = act()
            if isinstance(answer, Deferred):
                answer.when_done(
                    lambda done: self._carry(lambda: hear(result_of(done)), timeout_ms)
                )
            else:
                self._carry(lambda: hear(answer), timeout_ms)

        self._time.call_later(timeout_ms, lambda: hear(None))
        self._carry(arrive, LATE_MS_MAX if may_be_late else SOON_MS_MAX)

    def _back(self, hear: Told, result: Any, timeout_ms: int) -> None:
        self._carry(lambda: hear(result), timeout_ms)

    def _carry(self, what: Callable[[], None], late_ms_max: int) -> None:
        delay_ms = self._dice.randint(0, SOON_MS_MAX)
        if not self.is_healed:
            if self._dice.random() < self._loss:
                return
            if self._dice.random() < self._late:
                delay_ms = self._dice.randint(0, late_ms_max)
        self._time.call_later(delay_ms, what)


class Refused(NamedTuple):
    code: int


def result_of(done: Deferred[Any]) -> Any:
    try:
        return done.result()
    except ProtocolError as refused:
        return Refused(refused.code)
    except OttlaError as failure:
        raise AssertionError("no machine fails in any other way") from failure
