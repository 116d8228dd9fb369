"""Keeps a steady rate: the n-th record is due n/rate seconds after the first."""

from __future__ import annotations

import time
from collections.abc import Callable

# How soon somebody who wants to stop is heard.
STEP_S = 0.1
# Behind by more than this (a slow reader, a stopped process) the schedule starts anew: people who
# ask for 100 records a second do not want a burst of what was missed.
BEHIND_S_MAX = 1.0


class Pace:
    def __init__(self, records_per_second: float, now_s: float) -> None:
        self._step_s = 1.0 / records_per_second
        self._due_s = now_s

    def wait_before_next(self, now_s: float) -> float:
        """Seconds to wait before the next record may go; it is then taken as gone."""
        if now_s - self._due_s > BEHIND_S_MAX:
            self._due_s = now_s
        wait_s = max(0.0, self._due_s - now_s)
        self._due_s += self._step_s
        return wait_s


def keep_pace(rate: float, is_stopping: Callable[[], bool] = lambda: False) -> Callable[[], None]:
    """Gives what to call before each record; it waits until the record is due."""
    pace = Pace(rate, time.monotonic())

    def wait() -> None:
        due_s = time.monotonic()
        due_s += pace.wait_before_next(due_s)
        while (left_s := due_s - time.monotonic()) > 0 and not is_stopping():
            time.sleep(min(left_s, STEP_S))

    return wait
