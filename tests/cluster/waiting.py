"""Waiting for what has to come to hold, with much patience."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.patience import SECONDS_MAX


def until(holds: Callable[[], bool], what: str, seconds: float = SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to hold: {what}"
        time.sleep(0.01)
