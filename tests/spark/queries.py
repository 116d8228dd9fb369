"""Queries that are run to their end, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

SECONDS_MAX = 300

# Spark gives the process of a streaming source ten seconds from its start to its first word, and
# that cannot be set. On a machine that is busy with other tests it may need longer; nothing of ours
# has run by then, and the query is started again.
TOO_SLOW = "Python worker failed to connect back"
STARTS_MAX = 5


def run_to_the_end(start: Callable[[], Any]) -> Any:
    """Of a query that ends by itself; raises what it failed with."""
    for tries in range(1, STARTS_MAX + 1):
        query = start()
        try:
            assert query.awaitTermination(SECONDS_MAX), "the query has not come to its end"
        except Exception as failure:
            if TOO_SLOW not in str(failure) or tries == STARTS_MAX:
                raise
        else:
            return query
    raise AssertionError


def started(start: Callable[[], Any]) -> Any:
    """A query that runs on, with its first batch done."""
    for tries in range(1, STARTS_MAX + 1):
        query = start()
        try:
            until(partial(_has_begun, query), "a first batch")
            if query.isActive:
                return query
            query.awaitTermination()
        except Exception as failure:
            if TOO_SLOW not in str(failure) or tries == STARTS_MAX:
                raise
    raise AssertionError


def _has_begun(query: Any) -> bool:
    return query.lastProgress is not None or not query.isActive


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        time.sleep(0.1)
