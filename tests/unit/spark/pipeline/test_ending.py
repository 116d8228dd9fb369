"""How an engine ends its queries: behind the batches that are under way, if those can end."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError

from ottla.spark.pipeline.ending import GRACE_SECONDS_MAX, OFFSETS_SECONDS_MAX, Ending
from ottla.spark.pipeline.reach import Reach

WORKING, ASKING = "Processing new data", "Getting offsets from ottla"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Query:
    """A batch every `batch_seconds`, with no rest between them; one that is `deaf` does not end."""

    def __init__(
        self, clock: Clock, batch_seconds: float, *, message: str = WORKING, deaf: bool = False
    ) -> None:
        self._clock = clock
        self._batch_seconds = batch_seconds
        self._message = message
        self._deaf = deaf
        self.stopped_at: float | None = None

    @property
    def isActive(self) -> bool:
        return self.stopped_at is None

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": True, "message": self._message}

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        done = int(self._clock.now // self._batch_seconds)
        return {"batchId": done - 1, "sources": []} if done else None

    def stop(self) -> None:
        if self._deaf:
            raise Py4JError("java.util.concurrent.TimeoutException: Stream Execution thread")
        self.stopped_at = self._clock.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ended(clock: Clock, *queries: Query, reachable: bool = True) -> bool:
    ending = Ending(lambda query: reachable, clock=clock, sleep=clock.sleep)
    return ending.end({str(number): query for number, query in enumerate(queries)})


def test_a_query_that_never_rests_is_stopped_behind_its_batch(clock: Clock) -> None:
    """While it catches up the next batch begins at once, and nobody sees it at rest."""
    query = Query(clock, batch_seconds=20)
    assert ended(clock, query)
    assert query.stopped_at == pytest.approx(20, abs=0.2)


def test_a_batch_whose_brokers_do_not_answer_is_not_waited_for(clock: Clock) -> None:
    queries = [Query(clock, batch_seconds=1000) for _ in range(3)]
    assert not ended(clock, *queries, reachable=False)
    assert clock.now < 2


def test_a_source_that_does_not_answer_is_not_waited_for(clock: Clock) -> None:
    """Nothing is under way that could be finished, whoever its brokers are."""
    query = Query(clock, batch_seconds=1000, message=ASKING)
    assert not ended(clock, query)
    assert query.stopped_at == pytest.approx(OFFSETS_SECONDS_MAX, abs=0.3)


def test_a_batch_has_its_time_and_not_more(clock: Clock) -> None:
    query = Query(clock, batch_seconds=1000)
    assert not ended(clock, query)
    assert query.stopped_at == pytest.approx(GRACE_SECONDS_MAX, abs=0.3)


def test_a_query_that_does_not_hear_is_no_failure(clock: Clock) -> None:
    """It ends with the session; the others are ended all the same."""
    deaf, other = Query(clock, batch_seconds=1000, deaf=True), Query(clock, batch_seconds=1000)
    assert not ended(clock, deaf, other, reachable=False)
    assert other.stopped_at is not None


def test_brokers_that_nobody_knows_are_not_away_and_those_that_are_not_there_are() -> None:
    query = Query(Clock(), batch_seconds=1)
    assert Reach({}, "").has(query)
    reach = Reach({"socket.connection.setup.timeout.ms": "100"}, "127.0.0.1:1")
    assert not reach.has(query)
