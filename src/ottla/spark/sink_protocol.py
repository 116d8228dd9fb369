"""Exactly once: one prepared transaction for each task, one decision for each batch.

Tasks write into transactions of their own and leave them prepared. The driver claims the sink,
which shuts out every other driver, looks whether the batch was decided already, and if not writes
the decision: the list of transactions that count. That write is the commit point. Then it ends
them. Whoever comes later, after whatever crash, finds the decision and ends them again, which
changes nothing, or finds none and starts over.

A transaction's id says for which batch it was written. Once that batch or a later one is decided,
what the decision does not list can never count: it is dead, and anybody may abort it, a zombie
included. A transaction of an undecided batch is aborted by nobody but its own run; and before that,
the run looks for a decision and rolls forward if there is one.

Batch writes have tokens and no order, so nothing of them is dead by itself. Whoever decides finds
what other runs have open, and writes into the decision that those runs are over: one that lives
reads that under its claim and gives up, and what it has written can be aborted. A run that is not
in the newest decision has everything open that was ever to be aborted by an earlier one, or misses
it; so it looks for its transactions before it decides.

What always holds: a transaction is committed only if a decision lists it; a decision is written
only under a claim, after looking, over transactions that are open; between two decisions of a sink
all of the first are committed; nobody aborts what may still be decided.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.crash_points import crash_point
from ottla.spark.decisions import NOBODYS, TOKENS_KEPT, Decision, Prepared
from ottla.spark.errors import SinkConflict
from ottla.spark.sink_cluster import SinkCluster, TaskTransaction

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# No token that people give begins so.
_OF_A_RUN = "\0"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Who writes: one attempt of one task, in one run of one query, for one batch."""

    sink: str
    query: str
    run: str
    batch: int
    task: int
    # Unique within the run, over stages and retries.
    attempt: int
    token: str = ""
    # Whether what it writes shall wait for a decision however long that takes.
    is_lasting: bool = True

    @property
    def transactional_id(self) -> str:
        run = run_prefix(self.sink, self.run)
        return f"{run}{self.batch}/{self.task}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class Written:
    """What a task tells the driver; no transaction where it had nothing to write."""

    run: str
    query: str
    rows: int
    transaction: Prepared | None
    skipped: bool = False
    token: str = ""


def owner_id(sink: str) -> str:
    """The transactional id under which decisions are written: who has it has the sink."""
    return f"spark/{sink}"


def sink_prefix(sink: str) -> str:
    return f"{owner_id(sink)}/"


def run_prefix(sink: str, run: str) -> str:
    return f"{sink_prefix(sink)}{run}/"


def batch_of(transactional_id: str) -> int:
    return int(transactional_id.rsplit("/", 3)[1])


def batch_prefix(transactional_id: str) -> str:
    """What all transactions of its batch have in common, in its run."""
    return transactional_id.rsplit("/", 2)[0] + "/"


def run_of(transactional_id: str) -> str:
    return transactional_id.rsplit("/", 4)[1]


def write_task(
    cluster: SinkCluster, attempt: Attempt, batches: Iterable[pa.RecordBatch]
) -> Written:
    """In the task."""
    last = cluster.decision(attempt.sink) if attempt.is_lasting else None
    if last is not None:
        refuse_other_query(last, attempt.sink, attempt.query)
        if is_decided(last, attempt.batch, attempt.token):
            for _ in batches:  # Spark waits until its rows are taken
                pass
            return Written(attempt.run, attempt.query, 0, None, skipped=True)
        refuse_if_over(last, attempt.run)
    transaction: TaskTransaction | None = None
    rows = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if transaction is None:
                transaction = cluster.begin(attempt.transactional_id)
            transaction.write(batch)
            rows += batch.num_rows
            crash_point("task-mid-write", attempt.batch)
        prepared = transaction.prepare(attempt.is_lasting) if transaction is not None else None
    except Exception:
        # Nobody else knows of it yet; left alone, it would hold readers back until its time-out.
        if transaction is not None:
            transaction.abort()
        raise
    crash_point("task-prepared", attempt.batch)
    return Written(attempt.run, attempt.query, rows, prepared)


def commit_batch(
    cluster: SinkCluster, sink: str, batch: int, written: Sequence[Written], token: str = ""
) -> None:
    """In the driver, when all tasks are done."""
    query = written[0].query
    crash_point("before-claim", batch)
    claim = cluster.claim(sink)
    last = claim.decision()
    if last is not None:
        refuse_other_query(last, sink, query)
    elif not token:
        _refuse_other_sink(cluster, sink, batch, query)
    if last is not None and is_decided(last, batch, token):
        # By a run that died before Spark knew, or by one that lives while this one is a zombie.
        _roll_forward(cluster, last)
        _abort_dead(cluster, last, written[0].run)
        return
    if last is not None:
        refuse_if_over(last, written[0].run)
        if token:
            # The write before this one may have died on its way, and nobody tries it again.
            cluster.commit_open(last.transactions)
    decision = _decision(cluster, sink, batch, written, token, last)
    crash_point("before-decision", batch)
    claim.decide(decision)
    crash_point("after-decision", batch)
    _roll_forward(cluster, decision)
    _abort_dead(cluster, decision, written[0].run)
    crash_point("after-commit", batch)


def _decision(
    cluster: SinkCluster,
    sink: str,
    batch: int,
    written: Sequence[Written],
    token: str,
    last: Decision | None,
) -> Decision:
    """Under a claim: raises SinkConflict when what was written cannot count any more."""
    _refuse_skips(sink, batch, written)
    transactions = tuple(one.transaction for one in written if one.transaction is not None)
    missing = cluster.missing(transactions)
    if missing:
        raise SinkConflict(
            f"{len(missing)} of the {len(transactions)} transactions that the tasks have written "
            f"for sink {sink} were aborted before the decision ({missing[0]}): by another writer, "
            "by `ottla pipeline reset --sink` or `ottla txn abort`, or, on brokers that cannot "
            "prepare transactions, by transaction.timeout.ms. Nothing of this batch counts; "
            "start again"
        )
    rows = sum(one.rows for one in written)
    query = written[0].query
    if not token:
        return Decision(sink, query, batch, rows, transactions)
    runs = {run_of(one) for one in cluster.open_transactions(sink_prefix(sink))}
    earlier: tuple[str, ...] = ()
    if last is not None and last.token:
        earlier = tuple(one for one in (last.token, *last.earlier) if not is_of_a_run(one))
    return Decision(
        sink,
        query,
        batch,
        rows,
        transactions,
        token,
        earlier[:TOKENS_KEPT],
        tuple(sorted(runs | {written[0].run})),
    )


def abort_batch(
    cluster: SinkCluster,
    sink: str,
    batch: int,
    written: Sequence[Written | None],
    token: str = "",
) -> None:
    """In the driver, when a task or the commit has failed; the commit may have happened."""
    mine = [one for one in written if one is not None]
    if not mine:
        return  # no task got far enough to say who it was; what they wrote runs out of time
    last = cluster.decision(sink)
    if not _is_mine(last, mine, batch, token) and len(mine) == len(written):
        # All tasks were done, so the commit was tried, and its decision may be on its way still.
        # A claim makes it either visible or impossible.
        last = cluster.claim(sink).decision()
    if last is not None and _is_mine(last, mine, batch, token):
        _roll_forward(cluster, last)
        _abort_dead(cluster, last, mine[0].run)
        return
    for run in sorted({one.run for one in mine}):
        _abort(cluster, cluster.open_transactions(run_prefix(sink, run)))


def _is_mine(last: Decision | None, mine: Sequence[Written], batch: int, token: str) -> bool:
    return last is not None and last.query == mine[0].query and is_decided(last, batch, token)


def commit_at_once(cluster: SinkCluster, sink: str, written: Sequence[Written]) -> None:
    """Of a batch that nobody will try again: each task's rows at once, one task after another."""
    transactions = [one.transaction for one in written if one.transaction is not None]
    missing = cluster.missing(transactions)
    if missing:
        raise SinkConflict(
            f"the rows of {len(missing)} of {len(transactions)} tasks were aborted before the last "
            "task was done: without sinkId a write must be over within "
            "kafka.transaction.timeout.ms of its first rows (900000, at most the brokers' "
            "transaction.max.timeout.ms). Nothing was written. Give it a sinkId, with which what "
            "is written waits for as long as it takes"
        )
    for one in transactions:
        cluster.commit(one)
    abort_at_once(cluster, sink)


def abort_at_once(cluster: SinkCluster, sink: str) -> None:
    _abort(cluster, cluster.open_transactions(sink_prefix(sink)))


def is_decided(last: Decision, batch: int, token: str) -> bool:
    if last.query == NOBODYS:
        return False
    if token:
        return token == last.token or token in last.earlier
    return last.batch >= batch


def token_of_run(run: str) -> str:
    """For a write without a token: nobody else has it, and nobody asks for it again."""
    return f"{_OF_A_RUN}{run}"


def is_of_a_run(token: str) -> bool:
    return token.startswith(_OF_A_RUN)


def refuse_if_over(last: Decision, run: str) -> None:
    if run in last.over:
        raise SinkConflict(
            f"sink {last.sink} was written to or reset by others while this write was under way, "
            "and one at a time may have it: its rows were aborted. Start again, or give each "
            "writer its own sinkId"
        )


def refuse_other_query(last: Decision, sink: str, query: str) -> None:
    if last.query not in (query, NOBODYS):
        raise SinkConflict(
            f"sink {sink} belongs to query {last.query} (its last batch was {last.batch}); this is "
            f"query {query}. Give each query its own sinkId; if this one takes over, for example "
            f"with a new checkpoint, release the sink first: ottla pipeline reset --sink {sink}"
        )


def _refuse_other_sink(cluster: SinkCluster, sink: str, batch: int, query: str) -> None:
    """A query that begins with this sink may have another one behind it, by another sinkId. Once
    all that it has there is decided and known to Spark, it may go; that is one look for a sink."""
    for one in cluster.decisions_of(query):
        if one.sink == sink:
            continue
        if one.batch >= batch or cluster.open_transactions(sink_prefix(one.sink)):
            raise SinkConflict(
                f"query {query} has written to sink {one.sink} up to batch {one.batch}, and has "
                f"not come to its end there; here it would write batch {batch} to sink {sink}, "
                f"and rows would be there twice, or never. Run it with sinkId={one.sink} until a "
                "batch is done, and change sinkId then; if this is a copy of its checkpoint, give "
                "this query a checkpointLocation of its own"
            )


def _refuse_skips(sink: str, batch: int, written: Sequence[Written]) -> None:
    if any(one.skipped for one in written):
        raise SinkConflict(
            f"a task of batch {batch} found it decided, but sink {sink} has no such decision any "
            "more: it was reset while the query was running. Start the query again"
        )


def _roll_forward(cluster: SinkCluster, decision: Decision) -> None:
    if decision.transactions:
        cluster.commit(decision.transactions[0])
        crash_point("after-first-end", decision.batch)
        cluster.commit_all(decision.transactions[1:])


def _abort_dead(cluster: SinkCluster, last: Decision, run: str) -> None:
    """Losers of retries in this run, and what dead runs have left of batches that are decided."""
    listed = {one.transactional_id for one in last.transactions}
    left = set(cluster.open_transactions(sink_prefix(last.sink))) - listed
    if last.token:
        dead = [one for one in left if run_of(one) in (run, *last.over)]
    else:
        dead = [one for one in left if batch_of(one) <= last.batch]
    _abort(cluster, sorted(dead))


def _abort(cluster: SinkCluster, transactional_ids: Iterable[str]) -> None:
    for one in transactional_ids:
        log.info("aborting %s, which no decision lists", one)
        cluster.abort(one)
