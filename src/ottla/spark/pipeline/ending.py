"""How an engine ends its queries: behind the batches under way, unless those cannot come to an end.

A batch that is interrupted is done again by the next run, so nothing is lost where brokers are away
and nobody knows for how long. Whether they are is asked while a batch is waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError

log = logging.getLogger(__name__)

# A batch under way is let finish; what takes longer is interrupted, and done again next time.
GRACE_SECONDS_MAX = 60.0
# A query for which there is nothing to do asks for offsets for a moment only.
OFFSETS_SECONDS_MAX = 3.0
# Most batches are over before anybody has to ask.
_ASK_AFTER_SECONDS, _ASK_EVERY_SECONDS = 1.0, 5.0
_LOOK_SECONDS = 0.1
# No batch is under way while a query says this.
_BEFORE_A_BATCH = ("Getting offsets from", "Initializing")


class Ending:
    """`can_go_on`: whether the brokers of a query answer."""

    def __init__(
        self,
        can_go_on: Callable[[Any], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._can_go_on = can_go_on
        self._clock = clock
        self._sleep = sleep

    def end(self, queries: Mapping[str, Any]) -> bool:
        """Whether all of them were at rest; the others are interrupted, all at the same time."""
        began = self._clock()
        interrupted: list[threading.Thread] = []
        for name, query in queries.items():
            if self._comes_to_rest(name, query, began):
                stop(name, query)
            else:
                ending = threading.Thread(target=stop, args=(name, query))
                ending.start()
                interrupted.append(ending)
        for ending in interrupted:
            ending.join()
        return not interrupted

    def _comes_to_rest(self, name: str, query: Any, began: float) -> bool:
        """One that has more to do begins the next batch at once: it is not seen at rest, but seen
        to have gone on."""
        done = last_batch(query)
        ask_at = began + _ASK_AFTER_SECONDS
        before_batch_since: float | None = None
        while query.isActive:
            status = query.status
            if not status["isTriggerActive"] or last_batch(query) != done:
                return True
            now = self._clock()
            if not status["message"].startswith(_BEFORE_A_BATCH):
                before_batch_since = None
            elif before_batch_since is None:
                before_batch_since = now
            elif now - before_batch_since > OFFSETS_SECONDS_MAX:
                log.warning("%s: its source does not answer; it is not waited for", name)
                return False
            if now >= began + GRACE_SECONDS_MAX:
                log.warning("%s: its batch has not finished in time and is interrupted", name)
                return False
            if now >= ask_at:
                if not self._can_go_on(query):
                    log.warning("%s: its brokers do not answer; it is not waited for", name)
                    return False
                ask_at = self._clock() + _ASK_EVERY_SECONDS
            self._sleep(_LOOK_SECONDS)
        return True


def stop(name: str, query: Any) -> None:
    """Spark interrupts a query and waits, for as long as spark.sql.streaming.stopTimeout. A sink
    that cannot reach its brokers does not hear it; it ends with the session."""
    try:
        query.stop()
    except Py4JError as late:
        log.warning("%s has not stopped in time: %s", name, str(late).splitlines()[0])


def last_batch(query: Any) -> int:
    """That has ended; -1 if none has in this run."""
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])
