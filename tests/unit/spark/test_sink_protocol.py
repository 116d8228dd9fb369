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

from ottla.spark.decisions import TOKENS_KEPT, Decision, decision_of
from ottla.spark.errors import SinkConflict
from ottla.spark.sink_cluster import SinkCluster
from ottla.spark.sink_protocol import (
    Attempt,
    Written,
    abort_at_once,
    abort_batch,
    commit_at_once,
    commit_batch,
    token_of_run,
    write_task,
)
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
def attempt_of(query: str, batch: int = 0, number: int = 1) -> Attempt:
    return Attempt(SINK, query, f"run-of-{query}", batch, 0, number)


def test_a_second_query_on_the_same_sink_is_refused_by_name() -> None:
    cluster = MemoryCluster(World())
    commit_batch(cluster, SINK, 0, [write_task(cluster, attempt_of("one"), [Batch([1])])])
    with pytest.raises(SinkConflict, match=r"belongs to query one.*this is query two.*sinkId"):
        write_task(cluster, attempt_of("two"), [Batch([2])])


def test_a_query_leaves_its_sink_for_another_only_when_all_of_it_is_done() -> None:
    """Its batch is decided there, and Spark does not know: in the other sink it would come again.
    Or it is not decided there: what was prepared would be open for ever."""
    world = World()
    cluster = MemoryCluster(world)

    def other(batch: int) -> Written:
        new = Attempt("other", "one", "run-2", batch, 0, 1)
        return write_task(cluster, new, [Batch([batch])])

    commit_batch(cluster, SINK, 0, [write_task(cluster, attempt_of("one"), [Batch([0])])])
    for batch in (0, 1):
        if batch == 1:
            write_task(cluster, attempt_of("one", batch), [Batch([batch])])  # and its driver dies
        written = other(batch)
        with pytest.raises(SinkConflict, match=f"query one .* sink {SINK} up to batch 0.* sinkId"):
            commit_batch(cluster, "other", batch, [written])
        abort_batch(cluster, "other", batch, [written])
        assert world.visible() == Counter([0])
    commit_batch(cluster, SINK, 1, [write_task(cluster, attempt_of("one", 1, 2), [Batch([1])])])
    commit_batch(cluster, "other", 2, [other(2)])
    assert world.visible() == Counter([0, 1, 2])
    assert world.undecided() == []


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


def batch_write(run: str, token: str = "") -> Attempt:
    return Attempt(SINK, "batch", run, -1, 0, 1, token or token_of_run(run))


def test_a_token_is_remembered_after_others() -> None:
    world = World()
    cluster = MemoryCluster(world)
    tokens = ["monday", "tuesday", "", "wednesday", "monday", "tuesday", "wednesday"]
    for number, token in enumerate(tokens):
        attempt = batch_write(f"run-{number}", token)
        written = [write_task(cluster, attempt, [Batch([number])])]
        commit_batch(cluster, SINK, -1, written, attempt.token)
    assert world.visible() == Counter([0, 1, 2, 3])
    assert world.decisions[SINK].earlier == ("tuesday", "monday")


def test_so_many_tokens_are_remembered_and_no_more() -> None:
    cluster = MemoryCluster(World())
    for number in range(TOKENS_KEPT + 5):
        attempt = batch_write(f"run-{number}", f"day-{number}")
        commit_batch(
            cluster, SINK, -1, [write_task(cluster, attempt, [Batch([number])])], attempt.token
        )
    assert len(cluster.world.decisions[SINK].earlier) == TOKENS_KEPT


@pytest.mark.parametrize("tokens", [("", ""), ("monday", "tuesday"), ("monday", "")])
def test_of_two_batch_writes_at_once_none_succeeds_without_its_rows(
    tokens: tuple[str, str],
) -> None:
    world = World()
    cluster = MemoryCluster(world)
    attempts = [batch_write(f"run-{number}", token) for number, token in enumerate(tokens)]
    written = [write_task(cluster, one, [Batch([n])]) for n, one in enumerate(attempts)]
    commit_batch(cluster, SINK, -1, [written[0]], attempts[0].token)
    with pytest.raises(SinkConflict, match=r"one at a time.*Start again"):
        commit_batch(cluster, SINK, -1, [written[1]], attempts[1].token)
    abort_batch(cluster, SINK, -1, [written[1]], attempts[1].token)
    with pytest.raises(SinkConflict, match="one at a time"):
        write_task(cluster, attempts[1], [Batch([1])])
    assert world.visible() == Counter([0])
    assert world.undecided() == []


def test_two_batch_writes_call_by_call() -> None:
    """Whatever their order: one that is told of success has its rows, one that is not has none."""
    seed = seed_for("two batch writes of one sink")
    outcomes: set[int] = set()
    for history in range(200):
        world = World()
        turns = Turns(Random(seed + history))
        done: set[int] = set()

        def write(number: int, world: World = world, turns: Turns = turns) -> int | None:
            cluster = MemoryCluster(world, Shared(turns=turns, number=number))
            attempt = batch_write(f"run-{number}")
            written: list[Written | None] = []
            try:
                written.append(write_task(cluster, attempt, [Batch([number])]))
                commit_batch(cluster, SINK, -1, [w for w in written if w], attempt.token)
            except SinkConflict:
                abort_batch(cluster, SINK, -1, written or [None], attempt.token)
                return None
            finally:
                turns.leave(number)
            return number

        for number in (1, 2):
            turns.join(number)
        with ThreadPoolExecutor(2) as pool:
            for one in [pool.submit(write, number) for number in (1, 2)]:
                succeeded = one.result(60)
                done |= set() if succeeded is None else {succeeded}
        assert world.visible() == Counter(done), f"seed {seed + history}"
        outcomes |= {len(done)}
        last = batch_write("run-last")
        cluster = MemoryCluster(world)
        commit_batch(cluster, SINK, -1, [write_task(cluster, last, [Batch([3])])], last.token)
        assert world.visible() == Counter({*done, 3}), f"seed {seed + history}"
        assert world.undecided() == [], f"seed {seed + history}"
    assert outcomes >= {1, 2}, outcomes


def test_a_batch_write_that_died_decided_is_finished_by_the_next_one() -> None:
    world = World()
    calls = Fuse()
    attempt = batch_write("run-0", "monday")
    cluster = MemoryCluster(world, calls)
    commit_batch(cluster, SINK, -1, [write_task(cluster, attempt, [Batch([0])])], "monday")
    for at in range(1, calls.calls + 1):
        world = World()
        mortal = MemoryCluster(world, Fuse(at, after=True))
        with pytest.raises(Crash):
            commit_batch(mortal, SINK, -1, [write_task(mortal, attempt, [Batch([0])])], "monday")
        living = MemoryCluster(world)
        for number, token in enumerate(["tuesday", "monday"], start=1):
            again = batch_write(f"run-{number}", token)
            row = 0 if token == "monday" else 1
            commit_batch(living, SINK, -1, [write_task(living, again, [Batch([row])])], token)
        assert world.visible() == Counter([0, 1]), f"died at call {at}"
        assert world.undecided() == [], f"died at call {at}"


def test_transactions_that_somebody_has_aborted_are_not_decided_on() -> None:
    """As `ottla txn abort` does, or `reset --sink` between the last task and the driver."""
    world = World()
    cluster = MemoryCluster(world)
    written = write_task(cluster, attempt_of("one"), [Batch([1])])
    assert written.transaction is not None
    cluster.abort(written.transaction.transactional_id)
    with pytest.raises(SinkConflict, match=r"1 of the 1 transactions.*were aborted.*start again"):
        commit_batch(cluster, SINK, 0, [written])
    assert world.decisions == {}


def test_a_plain_write_that_took_too_long_says_why_and_writes_nothing() -> None:
    world = World()
    cluster = MemoryCluster(world)
    written = [
        write_task(cluster, Attempt(SINK, "batch", "r", -1, task, task), [Batch([task])])
        for task in (0, 1)
    ]
    cluster.abort("spark/orders/r/-1/1/1")
    with pytest.raises(SinkConflict, match=r"1 of 2 tasks.*transaction\.timeout\.ms.*sinkId"):
        commit_at_once(cluster, SINK, written)
    abort_at_once(cluster, SINK)
    assert world.visible() == Counter()
    assert world.undecided() == []


def test_a_decision_survives_its_text() -> None:
    cluster = MemoryCluster(World())
    commit_batch(cluster, SINK, 7, [write_task(cluster, attempt_of("one", 7), [Batch([1])])])
    decision = cluster.world.decisions[SINK]
    assert decision_of(SINK, decision.as_value()) == decision
    tokens = Decision(SINK, "batch", -1, 3, (), "c", ("b", "a"), ("run-1", "run-2"))
    assert decision_of(SINK, tokens.as_value()) == tokens
    old = b'{"format":1,"query":"q","batch":3,"token":"","rows":1,"transactions":[["a",1,0]]}'
    assert decision_of(SINK, old).earlier == ()


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"format":1}', b'{"format":2}', b"\xff"])
def test_a_decision_of_somebody_else_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(SinkConflict, match=SINK):
        decision_of(SINK, value)
