"""The sink on Apache Kafka, which cannot prepare transactions: what is promised there, and no more.

Exactly once over restarts; what a time-out takes before the decision is an error that costs
nothing, what it takes after it is lost and called that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.spark.client_sink import ClientSinkCluster
from ottla.spark.decisions import Decision
from ottla.spark.errors import SinkConflict, SinkLoss
from ottla.spark.sink_options import parse_sink_options
from ottla.spark.sink_protocol import abort_batch, commit_batch, write_task
from tests.compat.nodes import KafkaNode
from tests.patience import SHORT_SESSION_MS
from tests.spark.queries import until
from tests.spark.test_sink_cluster import (
    attempt,
    batch_write,
    new_sink,
    query_of,
    rows,
    transactions_of,
)
from tests.spark.topics import Topics

OVERRIDES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "num.partitions": "2",
}
Make = Callable[..., ClientSinkCluster]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), OVERRIDES)
    node.start()
    yield node
    node.kill()


@pytest.fixture
def there(kafka: KafkaNode, request: pytest.FixtureRequest) -> Topics:
    return Topics(kafka.bootstrap, request.node.name)


@pytest.fixture
def make(kafka: KafkaNode) -> Iterator[Make]:
    opened: list[ClientSinkCluster] = []

    def one(**options: str) -> ClientSinkCluster:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, **options}
        opened.append(ClientSinkCluster(parse_sink_options(given, streaming=True)))
        return opened[-1]

    yield one
    for cluster in opened:
        cluster.wire.close()


def test_every_row_once_over_restarts_and_the_limit_is_told(
    make: Make, there: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = there.create("out")
    sink, cluster = new_sink(), make(topic=topic)
    loser = write_task(cluster, attempt(sink, number=7), rows(99))
    written = write_task(cluster, attempt(sink), rows(*range(10)))
    with caplog.at_level(logging.WARNING):
        commit_batch(cluster, sink, 0, [written])
    assert "cannot prepare transactions" in caplog.text
    assert "900000 ms" in caplog.text
    assert loser.transaction is not None
    assert cluster.open_transactions(f"spark/{sink}/") == []
    # The driver dies between its decision and the first commit; another one goes on.
    late = write_task(cluster, attempt(sink, batch=1, number=2), rows(10))
    cluster.claim(sink).decide(Decision(sink, query_of(sink), 1, 1, transactions_of(late)))
    successor = make(topic=topic)
    again = write_task(successor, attempt(sink, batch=1, run="r2"), rows(10))
    assert again.skipped
    for _ in range(2):
        commit_batch(successor, sink, 1, [again])
    given_up = write_task(successor, attempt(sink, batch=2, run="r2"), rows(11))
    abort_batch(successor, sink, 2, [given_up])
    assert sorted(there.decided_values("out")) == list(range(11))
    assert cluster.open_transactions(f"spark/{sink}/") == []


def test_batch_writes_with_tokens(make: Make, there: Topics) -> None:
    sink, cluster = new_sink(), make(topic=there.create("out"))
    for number, token in enumerate(["monday", "tuesday", "monday"]):
        one = batch_write(sink, f"r{number}", token)
        written = write_task(cluster, one, rows(number))
        commit_batch(cluster, sink, -1, [written], token)
    assert sorted(there.decided_values("out")) == [0, 1]


@pytest.mark.parametrize("is_decided", [False, True])
def test_what_a_time_out_takes_is_never_silent(make: Make, there: Topics, is_decided: bool) -> None:
    sink, topic = new_sink(), there.create("out")
    hasty = {"kafka.transaction.timeout.ms": str(SHORT_SESSION_MS)}
    cluster: Any = make(topic=topic, **hasty)
    written = write_task(cluster, attempt(sink), rows(1))
    if is_decided:
        cluster.claim(sink).decide(Decision(sink, query_of(sink), 0, 1, transactions_of(written)))
    until(lambda: cluster.open_transactions(f"spark/{sink}/") == [], "the time-out")
    if is_decided:
        with pytest.raises(SinkLoss, match=r"was decided.*its rows are lost"):
            commit_batch(cluster, sink, 0, [written])
    else:
        with pytest.raises(SinkConflict, match=r"1 of the 1 transactions.*transaction\.timeout"):
            commit_batch(cluster, sink, 0, [written])
        patient = make(topic=topic)
        again = write_task(patient, attempt(sink, run="r2"), rows(1))
        commit_batch(patient, sink, 0, [again])
    assert there.decided_values("out") == ([] if is_decided else [1])
