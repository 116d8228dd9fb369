"""Queries that are run to their end, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
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


def _nothing() -> None:
    pass


class CollectingQuery:
    """A query of the source with these options, up to where its topics end when it starts. Keeps
    the topic and value of each row by its batch; `between` is done behind the first batch."""

    def __init__(
        self,
        spark: Any,
        options: dict[str, str],
        checkpoint: Path,
        between: Callable[[], None] = _nothing,
    ) -> None:
        self._source = spark.readStream.format("ottla").options(**options).load()
        self._checkpoint = str(checkpoint)
        self._between = between
        self.rows: dict[int, list[tuple[str, int]]] = {}

    def start(self) -> Any:
        """Again, too: its checkpoint is kept."""
        writer = self._source.writeStream.foreachBatch(self._take).trigger(availableNow=True)
        return writer.option("checkpointLocation", self._checkpoint).start()

    def values(self) -> dict[int, list[int]]:
        return {batch: sorted(value for _, value in rows) for batch, rows in self.rows.items()}

    def _take(self, batch: Any, number: int) -> None:
        found = batch.selectExpr("topic", "CAST(CAST(value AS STRING) AS INT) AS n").collect()
        self.rows[number] = [(row.topic, row.n) for row in found]
        if number == 0:
            self._between()
            self._between = _nothing  # Spark keeps this object, and so a client of the topic


def _has_come_to(condition: Callable[[], bool], query: Any) -> bool:
    return condition() or not query.isActive


def _started_to(condition: Callable[[], bool], start: Callable[[], Any]) -> Any:
    for _ in range(STARTS_MAX):
        query = start()
        until(partial(_has_come_to, condition, query), "a task that reads")
        if condition() or TOO_SLOW not in str(query.exception()):
            return query
    raise AssertionError


@contextmanager
def stalled_read(start: Callable[[], Any], crash_plan: Path) -> Iterator[Any]:
    """The query, while a task of its first batch waits after the first of its rows."""
    plan, mark = crash_plan / "plan", crash_plan / "task-mid-read"
    plan.write_text("task-mid-read@0:stall")
    try:
        query = _started_to(mark.exists, start)
        assert mark.exists(), query.exception()
        yield query
    finally:
        plan.unlink()
        mark.unlink(missing_ok=True)
