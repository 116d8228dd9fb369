"""One question to a coordinator, asked until it is answered: finds it, follows it when it moves.

Owns the rule which errors of a coordinator pass by themselves. Everything else is the caller's to
judge: an answer with any other error code is returned as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ottla.client.coordinators import Coordinators
from ottla.client.core import Core
from ottla.client.errors import ConnectionLostError, TimedOutError, error_for
from ottla.client.nodes import DATA
from ottla.protocol import error_codes as codes

_MOVED = frozenset({codes.NOT_COORDINATOR, codes.COORDINATOR_NOT_AVAILABLE})
PASSING = _MOVED | {
    codes.COORDINATOR_LOAD_IN_PROGRESS,
    codes.CONCURRENT_TRANSACTIONS,
    codes.REQUEST_TIMED_OUT,
}
# Markers of the last transaction take milliseconds: Java's client waits as long at first.
_FIRST_PAUSE_MS = 20.0


def error_code_of(answer: Any) -> int:
    return int(answer.error_code)


class CoordinatorCalls:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.coordinators = Coordinators(core)

    async def ask(
        self,
        kind: int,
        key: str,
        api_key: int,
        fields: Callable[[], Any],
        deadline_ms: float,
        *,
        what: str,
        code_of: Callable[[Any], int] = error_code_of,
        purpose: str = DATA,
        version_min: int | None = None,
        version_max: int | None = None,
    ) -> Any:
        """The first answer whose code does not pass by itself; TimedOutError at the deadline.

        `fields` is called for each attempt: an epoch may have changed meanwhile.
        """

        async def attempt() -> Any:
            node_id = await self.coordinators.find(kind, key)
            try:
                answer = await self._core.request(
                    node_id,
                    api_key,
                    fields(),
                    purpose=purpose,
                    version_min=version_min,
                    version_max=version_max,
                )
            except (ConnectionLostError, TimedOutError):
                self.coordinators.forget(kind, key)
                raise
            code = code_of(answer)
            if code in _MOVED:
                self.coordinators.forget(kind, key)
            if code in PASSING:
                raise error_for(code, what)
            return answer

        return await self.retry(attempt, deadline_ms, what)

    async def retry(
        self, attempt: Callable[[], Coroutine[Any, Any, Any]], deadline_ms: float, what: str
    ) -> Any:
        return await self._core.retry(attempt, deadline_ms, what, first_pause_ms=_FIRST_PAUSE_MS)
