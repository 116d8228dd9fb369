"""The exactly-once protocol, with a death at every single call it makes.

A query of a few batches, two tasks each, is run to its end over any number of deaths, as a
supervisor would. Whatever died and wherever: every row is visible once, and nothing is left open.
The two designs that look sufficient and are not stand beside it and must be caught.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from ottla.spark.decisions import Decision, decision_of
from ottla.spark.errors import SinkConflict
from ottla.spark.sink_cluster import SinkCluster
from ottla.spark.sink_protocol import Attempt, Written, abort_batch, commit_batch, write_task
from tests.seeds import seed_for
from tests.unit.spark.sink_world import (
    Batch,
    Crash,
    Fuse,
    LostAnswer,
    MemoryClaim,
    MemoryCluster,
    Shared,
    Turns,
    World,
    halves,
)

SINK, QUERY = "orders", "query-1"
BATCHES = 3
ROWS = 8
TASKS = 2

Commit = Callable[[SinkCluster, str, int, list[Written]], None]


class Query:
    """What Spark keeps of a query: its commit log. `run` is one life of its driver."""

    def __init__(self, world: World, commit: Commit = commit_batch) -> None:
        self.world = world
        self.done = 0
        self.runs = 0
        self.attempts = 0
        self.commit = commit

    def run(self, fuse: Fuse) -> None:
        self.runs += 1
        cluster = MemoryCluster(self.world, fuse)
        while self.done < BATCHES:
            self.batch(cluster)

    def batch(self, cluster: MemoryCluster) -> None:
        written: list[Written | None] = []
        try:
            for task, rows in enumerate(halves(range(self.done * ROWS, (self.done + 1) * ROWS))):
                written.append(self._task(cluster, task, rows))
            self.commit(cluster, SINK, self.done, [one for one in written if one is not None])
        except (LostAnswer, SinkConflict):
            written += [None] * (TASKS - len(written))
            abort_batch(cluster, SINK, self.done, written)
            raise
        self.done += 1

    def _task(self, cluster: MemoryCluster, task: int, rows: list[int]) -> Written:
        """With one retry, as Spark's; the first attempt is not told that it has lost."""
        for tries in range(2):
            self.attempts += 1
            attempt = Attempt(SINK, QUERY, f"run-{self.runs}", self.done, task, self.attempts)
            try:
                return write_task(cluster, attempt, (Batch([row]) for row in rows))
            except LostAnswer:
                if tries:
                    raise
        raise AssertionError

    def run_to_the_end(self, fuse: Fuse) -> None:
        for _ in range(10):
            try:
                self.run(fuse)
            except (Crash, LostAnswer):
                continue
            return
        raise AssertionError("the query never came to its end")


def calls_of_a_whole_run() -> int:
    fuse = Fuse()
    Query(World()).run(fuse)
    return fuse.calls


CALLS = calls_of_a_whole_run()


def check(world: World) -> None:
    assert world.visible() == Counter(range(BATCHES * ROWS))
    assert world.undecided() == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [Crash, LostAnswer])
def test_every_row_once_wherever_somebody_dies(error: type[BaseException], after: bool) -> None:
    assert CALLS > 30
    for at in range(1, CALLS + 1):
        world = World()
        Query(world).run_to_the_end(Fuse(at, after, error))
        check(world)


def test_every_row_once_over_two_deaths() -> None:
    for first in range(1, CALLS + 1, 3):
        for second in range(1, CALLS + 1, 4):
            world = World()
            query = Query(world)
            with pytest.raises(Crash):
                query.run(Fuse(first, after=True))
            query.run_to_the_end(Fuse(second, after=bool(second % 2)))
            check(world)


class Checkpoint:
    """What two drivers of one query share."""

    def __init__(self) -> None:
        self.done = 0


def drive(world: World, checkpoint: Checkpoint, number: int, turns: Turns) -> None:
    """One life of one of two drivers, calls in turn with the other's."""
    query = Query(world)
    query.runs, query.attempts, query.done = number * 1000, number * 1000, checkpoint.done
    cluster = MemoryCluster(world, Shared(turns=turns, number=number))
    try:
        while query.done < BATCHES:
            query.batch(cluster)
            if checkpoint.done != query.done - 1:
                return  # CONCURRENT_STREAM_LOG_UPDATE: Spark ends the query of the slower driver
            checkpoint.done = query.done
    except SinkConflict:
        pass
    finally:
        turns.leave(number)


def test_two_drivers_of_one_query_call_by_call() -> None:
    """Neither knows that it is the zombie. A third one comes when both are gone."""
    seed = seed_for("two drivers of one sink")
    for history in range(100):
        world, checkpoint = World(), Checkpoint()
        turns = Turns(Random(seed + history))
        for number in (1, 2):
            turns.join(number)
        with ThreadPoolExecutor(2) as pool:
            for driver in [pool.submit(drive, world, checkpoint, n, turns) for n in (1, 2)]:
                driver.result(60)
        last = Query(world)
        last.runs, last.attempts, last.done = 9000, 9000, max(0, checkpoint.done - 1)
        last.run(Fuse())
        assert world.visible() == Counter(range(BATCHES * ROWS)), f"seed {seed + history}"
        assert world.undecided() == [], f"seed {seed + history}"


class LateDecisions(MemoryCluster):
    """The first decision is on its way when its writer is told that it failed. It takes effect
    with the writer's next step, unless a claim comes first and settles what becomes of it."""

    def __init__(self, world: World, claim_finds_it: bool) -> None:
        super().__init__(world)
        self.claim_finds_it = claim_finds_it
        self.late: Decision | None = None
        self.happened = False

    def claim(self, sink: str) -> MemoryClaim:
        late, self.late = self.late, None
        if late is not None and self.claim_finds_it:
            self.world.decisions[sink] = late
        return LateClaim(self, sink)

    def abort(self, transactional_id: str) -> None:
        super().abort(transactional_id)
        if self.late is not None:
            self.world.decisions[self.late.sink] = self.late
            self.late = None


class LateClaim(MemoryClaim):
    def __init__(self, cluster: LateDecisions, sink: str) -> None:
        super().__init__(cluster.world, cluster.fuse, sink)
        self.cluster = cluster

    def decide(self, decision: Decision) -> None:
        if self.cluster.happened:
            super().decide(decision)
            return
        self.cluster.happened = True
        self.cluster.late = decision
        raise LostAnswer


@pytest.mark.parametrize("claim_finds_it", [False, True])
def test_a_decision_that_comes_late_is_settled_before_anything_is_undone(
    claim_finds_it: bool,
) -> None:
    world = World()
    query = Query(world)
    cluster = LateDecisions(world, claim_finds_it)
    with pytest.raises(LostAnswer):
        query.batch(cluster)
    query.run_to_the_end(Fuse())
    check(world)


# ------------------------------------------------------------------------------------- controls
def commit_in_each_task(
    cluster: SinkCluster, sink: str, batch: int, written: list[Written]
) -> None:
    """Two-phase commit without a record of the decision."""
    del sink, batch
    for one in written:
        if one.transaction is not None:
            cluster.commit(one.transaction)


def test_a_control_without_a_decision_is_caught() -> None:
    wrong = 0
    for at in range(1, CALLS + 1):
        world = World()
        query = Query(world, commit_in_each_task)
        query.run_to_the_end(Fuse(at, after=True))
        wrong += world.visible() != Counter(range(BATCHES * ROWS))
    assert wrong > 0


def test_a_control_that_decides_without_looking_is_caught() -> None:
    def blindly(cluster: SinkCluster, sink: str, batch: int, written: list[Written]) -> None:
        transactions = tuple(one.transaction for one in written if one.transaction is not None)
        for one in transactions:
            cluster.commit(one)
        cluster.claim(sink).decide(Decision(sink, QUERY, batch, 0, transactions))

    wrong = 0
    for at in range(1, CALLS + 1):
        world = World()
        Query(world, blindly).run_to_the_end(Fuse(at, after=True))
        wrong += world.visible() != Counter(range(BATCHES * ROWS))
    assert wrong > 0


# --------------------------------------------------------------------------------------- refusals
def attempt_of(query: str, batch: int = 0) -> Attempt:
    return Attempt(SINK, query, f"run-of-{query}", batch, 0, 1)


def test_a_second_query_on_the_same_sink_is_refused_by_name() -> None:
    cluster = MemoryCluster(World())
    commit_batch(cluster, SINK, 0, [write_task(cluster, attempt_of("one"), [Batch([1])])])
    with pytest.raises(SinkConflict, match=r"belongs to query one.*this is query two.*sinkId"):
        write_task(cluster, attempt_of("two"), [Batch([2])])


def test_of_two_queries_that_begin_together_the_second_to_decide_is_refused() -> None:
    world = World()
    cluster = MemoryCluster(world)
    first = write_task(cluster, attempt_of("one"), [Batch([1])])
    second = write_task(cluster, attempt_of("two"), [Batch([2])])
    commit_batch(cluster, SINK, 0, [first])
    with pytest.raises(SinkConflict, match="belongs to query one"):
        commit_batch(cluster, SINK, 0, [second])
    abort_batch(cluster, SINK, 0, [second])
    assert world.visible() == Counter([1])
    assert world.undecided() == []


def test_an_empty_task_opens_no_transaction() -> None:
    world = World()
    cluster = MemoryCluster(world)
    commit_batch(cluster, SINK, 0, [write_task(cluster, attempt_of("one"), [])])
    assert world.transactions == {}
    assert world.decisions[SINK].batch == 0


def test_a_sink_that_was_reset_under_a_running_query_loses_nothing_silently() -> None:
    world = World()
    cluster = MemoryCluster(world)
    commit_batch(cluster, SINK, 5, [write_task(cluster, attempt_of("one", 5), [Batch([1])])])
    skipped = write_task(cluster, attempt_of("one", 5), [Batch([2])])
    del world.decisions[SINK]
    with pytest.raises(SinkConflict, match="was reset"):
        commit_batch(cluster, SINK, 5, [skipped])


def test_a_batch_write_with_a_token_happens_once() -> None:
    world = World()
    cluster = MemoryCluster(world)
    for number, token in enumerate(["monday", "monday", "tuesday"]):
        attempt = Attempt(SINK, "batch", f"run-{number}", -1, 0, 1, token)
        written = [write_task(cluster, attempt, [Batch([number])])]
        commit_batch(cluster, SINK, -1, written, token)
    assert world.visible() == Counter([0, 2])


def test_a_decision_survives_its_text() -> None:
    cluster = MemoryCluster(World())
    commit_batch(cluster, SINK, 7, [write_task(cluster, attempt_of("one", 7), [Batch([1])])])
    decision = cluster.world.decisions[SINK]
    assert decision_of(SINK, decision.as_value()) == decision


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"format":1}', b'{"format":2}', b"\xff"])
def test_a_decision_of_somebody_else_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(SinkConflict, match=SINK):
        decision_of(SINK, value)
