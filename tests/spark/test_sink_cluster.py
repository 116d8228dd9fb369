"""The sink's protocol on a real broker, without Spark: what tasks and drivers do, called by hand.

The deaths of the unit tests happen here again, at each call that goes to the broker. A stock
consumer that reads committed records is the judge.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.errors import ConnectionLostError
from ottla.spark.client_sink import AT_ONCE_MAX, ClientSinkCluster
from ottla.spark.decisions import Decision, Prepared
from ottla.spark.errors import RowError, SinkConflict
from ottla.spark.sink_options import parse_sink_options
from ottla.spark.sink_protocol import (
    Attempt,
    Written,
    abort_batch,
    commit_batch,
    token_of_run,
    write_task,
)
from ottla.testing import Broker
from tests.spark.topics import Topics

# Every call in `make chaos`; here every fourth, as the unit tests take each of them.
STEP = 1 if "OTTLA_SPARK_FULL" in os.environ else 4


@pytest.fixture
def sinks(broker: Broker) -> Iterator[Any]:
    """Makes clusters as processes would have them, which end with the test."""
    opened: list[ClientSinkCluster] = []

    def make(**options: str) -> ClientSinkCluster:
        given = {"kafka.bootstrap.servers": broker.bootstrap, **options}
        opened.append(ClientSinkCluster(parse_sink_options(given, streaming=True)))
        return opened[-1]

    yield make
    for one in opened:
        one.wire.close()


def rows(*values: int) -> list[pa.RecordBatch]:
    keys = [b"key-%d" % value for value in values]
    return [
        pa.RecordBatch.from_pydict(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array([str(value) for value in values], pa.string()),
            }
        )
    ]


def query_of(sink: str) -> str:
    return f"q of {sink}"


def attempt(sink: str, batch: int = 0, query: str = "", run: str = "r", number: int = 1) -> Attempt:
    return Attempt(sink, query or query_of(sink), run, batch, 0, number)


def transactions_of(written: Written) -> tuple[Prepared, ...]:
    return () if written.transaction is None else (written.transaction,)


def new_sink() -> str:
    return f"sink-{uuid.uuid4().hex[:8]}"


def test_rows_are_seen_when_their_batch_is_decided_and_not_before(
    sinks: Any, topics: Topics
) -> None:
    topic = topics.create("out", 3)
    sink, cluster = new_sink(), sinks(topic=topic)
    written = write_task(cluster, attempt(sink), rows(*range(100)))
    assert written.rows == 100
    assert topics.values("out") == []
    assert cluster.open_transactions(f"spark/{sink}/") == [f"spark/{sink}/r/0/0/1"]
    commit_batch(cluster, sink, 0, [written])
    assert sorted(topics.values("out")) == list(range(100))
    assert cluster.open_transactions(f"spark/{sink}/") == []
    # The decision is there for others, and so is the way to do it all again without effect.
    other = sinks(topic=topic)
    decided = other.decision(sink)
    assert decided == Decision(sink, query_of(sink), 0, 100, transactions_of(written))
    commit_batch(other, sink, 0, [written])
    assert write_task(other, attempt(sink, run="r2"), rows(7)).skipped
    assert sorted(topics.values("out")) == list(range(100))


def test_a_prepared_transaction_has_no_time_out_and_an_open_one_has(
    broker: Broker, topics: Topics
) -> None:
    """The clock goes on by a day: what is prepared waits, what a dead task left does not."""
    with Broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}) as own:
        there = Topics(own.bootstrap, "prepared")
        topic = there.create("out", 1)
        options = {"kafka.bootstrap.servers": own.bootstrap, "topic": topic}
        cluster = ClientSinkCluster(parse_sink_options(options, streaming=True))
        try:
            written = write_task(cluster, attempt("s"), rows(1, 2))
            dead = cluster.begin("spark/s/r/0/1/2")
            dead.write(rows(3)[0])
            dead.flush()
            own.advance(hours=24)
            commit_batch(cluster, "s", 0, [written])
            assert sorted(there.values("out")) == [1, 2]
        finally:
            cluster.wire.close()


def test_a_batch_of_many_tasks_is_committed_whole(sinks: Any, topics: Topics) -> None:
    """More than are ended at the same time."""
    sink, cluster = new_sink(), sinks(topic=topics.create("out"))
    count = AT_ONCE_MAX + 8
    written = [write_task(cluster, attempt(sink, number=one), rows(one)) for one in range(count)]
    commit_batch(cluster, sink, 0, written)
    assert sorted(topics.values("out")) == list(range(count))
    assert cluster.open_transactions(f"spark/{sink}/") == []
    commit_batch(cluster, sink, 0, written)  # once more, after a crash that Spark knows of
    assert len(topics.values("out")) == count


def test_a_second_query_on_the_same_sink_is_refused_by_name(sinks: Any, topics: Topics) -> None:
    topic = topics.create("out")
    sink, cluster = new_sink(), sinks(topic=topic)
    commit_batch(cluster, sink, 0, [write_task(cluster, attempt(sink), rows(1))])
    other = sinks(topic=topic)
    with pytest.raises(
        SinkConflict, match=f"sink {sink} belongs to query {query_of(sink)} .* query other"
    ):
        write_task(other, attempt(sink, query="other"), rows(2))
    assert cluster.release(sink)
    commit_batch(other, sink, 0, [write_task(other, attempt(sink, query="other"), rows(2))])
    assert sorted(topics.values("out")) == [1, 2]


def test_a_query_that_gets_another_sink_id_too_early_is_told_the_first(
    sinks: Any, topics: Topics
) -> None:
    """Spark does its last batch again, which is decided under the first."""
    topic = topics.create("out")
    first, second, cluster = new_sink(), new_sink(), sinks(topic=topic)
    query = query_of(first)
    commit_batch(cluster, first, 0, [write_task(cluster, attempt(first), rows(1))])
    cluster.claim(new_sink()).store(b"of somebody else")
    other = sinks(topic=topic)
    written = write_task(other, attempt(second, query=query), rows(1))
    with pytest.raises(SinkConflict, match=f"to sink {first} up to batch 0.*sinkId={first}"):
        commit_batch(other, second, 0, [written])
    abort_batch(other, second, 0, [written])
    commit_batch(other, second, 1, [write_task(other, attempt(second, 1, query), rows(2))])
    assert sorted(topics.decided_values("out")) == [1, 2]


def test_a_driver_whose_claim_was_taken_over_decides_nothing(sinks: Any, topics: Topics) -> None:
    topic = topics.create("out")
    sink, cluster, other = new_sink(), sinks(topic=topic), sinks(topic=topic)
    zombie = cluster.claim(sink)
    assert zombie.decision() is None
    other.claim(sink)
    with pytest.raises(SinkConflict, match=f"claimed sink {sink}"):
        zombie.decide(Decision(sink, query_of(sink), 0, 0, ()))
    assert other.decision(sink) is None


def test_decisions_of_other_sinks_do_not_hide_ones_own(sinks: Any, topics: Topics) -> None:
    """Another sink's decision hangs in the same partition: an owner waits for it, and then sees
    what was decided behind it."""
    topic = topics.create("out")
    cluster, other = sinks(topic=topic), sinks(topic=topic)
    sink = new_sink()
    place = cluster.wire.shell.call(cluster._decisions.partition_of(sink))
    neighbour = sink
    while neighbour == sink or place != cluster.wire.shell.call(
        cluster._decisions.partition_of(neighbour)
    ):
        neighbour = new_sink()
    hanging = other.claim(neighbour)
    other.wire.call(lambda: other._append(neighbour, hanging._owner, b"x"), "hanging")
    claim = cluster.claim(sink)
    claim.decide(Decision(sink, query_of(sink), 0, 0, ()))
    assert cluster.decision(sink) is None  # a task may not see it yet, which costs it work only
    other.abort(f"spark/{neighbour}")
    again = sinks(topic=topic).claim(sink).decision()
    assert again is not None
    assert again.batch == 0


class Died(BaseException):
    """The process is gone."""


class Mortal:
    """A cluster whose process dies at its call number `at`, before or after it took effect."""

    def __init__(self, cluster: ClientSinkCluster, at: int, after: bool) -> None:
        self.cluster, self.at, self.after, self.calls = cluster, at, after, 0

    def _call(self, act: Any) -> Any:
        self.calls += 1
        if self.calls == self.at and not self.after:
            raise Died
        found = act()
        if self.calls == self.at:
            raise Died
        return found

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.cluster, name)

        def call(*arguments: Any, **named: Any) -> Any:
            found = self._call(lambda: method(*arguments, **named))
            return MortalPart(self, found) if name in ("claim", "begin") else found

        return call


class MortalPart:
    def __init__(self, owner: Mortal, part: Any) -> None:
        self.owner, self.part = owner, part

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.part, name)
        return lambda *arguments: self.owner._call(lambda: method(*arguments))


def run_batches(cluster: Any, sink: str, run: str, done: int) -> Iterator[int]:
    """The batches of a query from `done` on, two tasks each; yields what Spark would note down."""
    for batch in range(done, 2):
        written: list[Written] = []
        for task in (0, 1):
            first = batch * 20 + task * 10
            one = Attempt(sink, query_of(sink), run, batch, task, batch * 2 + task)
            written.append(write_task(cluster, one, rows(*range(first, first + 10))))
        commit_batch(cluster, sink, batch, written)
        yield batch


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_every_row_once_wherever_the_process_dies(sinks: Any, topics: Topics, after: bool) -> None:
    at, ended = 1 + after * (STEP // 2), False
    cluster, successor = sinks(), sinks()
    while not ended:
        name = f"out-{at}"
        topic = topics.create(name, 2)
        for one in (cluster, successor):
            object.__setattr__(one.options, "topic", topic)
        sink, done = new_sink(), 0
        mortal = Mortal(cluster, at, after)
        try:
            for batch in run_batches(mortal, sink, "first", 0):
                done = batch + 1
            ended = True
        except Died:
            list(run_batches(successor, sink, "second", done))
        assert sorted(topics.values(name)) == list(range(40)), f"died at call {at}"
        assert successor.open_transactions(f"spark/{sink}/") == [], f"died at call {at}"
        at += STEP
    assert at > 25


def test_an_abort_after_a_commit_that_happened_rolls_forward(sinks: Any, topics: Topics) -> None:
    topic = topics.create("out")
    sink, cluster = new_sink(), sinks(topic=topic)
    written = write_task(cluster, attempt(sink), rows(1, 2))
    claim = cluster.claim(sink)
    claim.decide(Decision(sink, query_of(sink), 0, 2, transactions_of(written)))
    abort_batch(cluster, sink, 0, [written])
    assert sorted(topics.values("out")) == [1, 2]


def batch_write(sink: str, run: str, token: str = "") -> Attempt:
    return Attempt(sink, "batch", run, -1, 0, 1, token or token_of_run(run))


def test_of_two_batch_writes_at_once_one_is_told_that_it_has_lost(
    sinks: Any, topics: Topics
) -> None:
    topic = topics.create("out")
    sink, one, other = new_sink(), sinks(topic=topic), sinks(topic=topic)
    first, second = batch_write(sink, "r1"), batch_write(sink, "r2")
    written = write_task(one, first, rows(1)), write_task(other, second, rows(2))
    commit_batch(one, sink, -1, [written[0]], first.token)
    with pytest.raises(SinkConflict, match=f"sink {sink} was written to.*one at a time"):
        commit_batch(other, sink, -1, [written[1]], second.token)
    abort_batch(other, sink, -1, [written[1]], second.token)
    third = batch_write(sink, "r3")
    commit_batch(other, sink, -1, [write_task(other, third, rows(2))], third.token)
    assert sorted(topics.values("out")) == [1, 2]
    assert one.open_transactions(f"spark/{sink}/") == []


def test_a_sink_released_between_task_and_driver_loses_nothing_silently(
    sinks: Any, topics: Topics
) -> None:
    topic = topics.create("out")
    sink, cluster = new_sink(), sinks(topic=topic)
    written = write_task(cluster, attempt(sink), rows(1))
    assert not sinks(topic=topic).release(sink)
    with pytest.raises(SinkConflict, match=r"1 of the 1 transactions.*reset --sink"):
        commit_batch(cluster, sink, 0, [written])
    # And while it is being released: a driver that claims the sink meanwhile does not decide.
    again = write_task(cluster, attempt(sink, number=2), rows(1))
    other = sinks(topic=topic)
    other.claim(sink).decide(Decision(sink, "", -1, 0, (), over=("r",)))
    with pytest.raises(SinkConflict, match="written to or reset by others"):
        commit_batch(cluster, sink, 0, [again])
    other.release(sink)
    assert other.decision(sink) is None
    last = write_task(cluster, attempt(sink, run="r2"), rows(1))
    commit_batch(cluster, sink, 0, [last])
    assert topics.values("out") == [1]


def test_a_batch_write_that_died_decided_is_finished_by_the_next_one(
    sinks: Any, topics: Topics
) -> None:
    topic = topics.create("out")
    sink, cluster = new_sink(), sinks(topic=topic)
    first = batch_write(sink, "r1", "monday")
    written = write_task(cluster, first, rows(1))
    cluster.claim(sink).decide(
        Decision(sink, "batch", -1, 1, transactions_of(written), "monday", (), ("r1",))
    )
    successor = sinks(topic=topic)
    for run, token in (("r2", "tuesday"), ("r3", "monday")):
        again = batch_write(sink, run, token)
        written = write_task(successor, again, rows(2))
        assert written.skipped == (token == "monday")
        commit_batch(successor, sink, -1, [written], token)
    assert sorted(topics.values("out")) == [1, 2]


def test_what_brokers_can_is_known_without_a_connection(sinks: Any, topics: Topics) -> None:
    """After a quiet hour none is left."""
    sink, cluster = new_sink(), sinks(topic=topics.create("out"))
    written = write_task(cluster, attempt(sink), rows(1))
    core = cluster.wire.core
    assert cluster.wire.prepares()
    cluster.wire.shell.enter()
    for connection in list(core.nodes.connections.values()):
        core.nodes.close(connection, ConnectionLostError("idle"))
    assert cluster.wire.prepares()
    assert cluster.wire.adds_partitions_itself()
    cluster.wire.shell.leave()
    commit_batch(cluster, sink, 0, [written])
    assert topics.values("out") == [1]


def test_an_abort_of_an_undecided_batch_leaves_nothing(sinks: Any, topics: Topics) -> None:
    topic = topics.create("out")
    sink, cluster = new_sink(), sinks(topic=topic)
    written = write_task(cluster, attempt(sink), rows(1, 2))
    abort_batch(cluster, sink, 0, [written])
    assert topics.values("out") == []
    assert cluster.open_transactions(f"spark/{sink}/") == []


def test_topics_partitions_headers_and_placement(
    sinks: Any, topics: Topics, broker: Broker
) -> None:
    """Rows name their topic and partition; without one, keys go where Java's client sends them."""
    first, second = topics.create("one", 4), topics.create("two", 4)
    sink, cluster = new_sink(), sinks()
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([first, second, first, first]),
            "partition": pa.array([3, None, None, None], pa.int32()),
            "key": pa.array([None, "k", "k", None], pa.string()),
            "value": pa.array([b"1", b"2", b"3", None], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], [], None, None], header),
        }
    )
    commit_batch(cluster, sink, 0, [write_task(cluster, attempt(sink), [batch])])
    found = {
        value: (partition, key, headers)
        for partition, key, value, headers in read_all(broker, first)
    }
    assert found[b"1"] == (3, None, [("h", b"x")])
    from ottla.client.murmur2 import murmur2

    expected = (murmur2(b"k") & 0x7FFFFFFF) % 4
    assert found[b"3"] == (expected, b"k", None)
    assert None in found
    assert [(partition, value) for partition, _, value, _ in read_all(broker, second)] == [
        (expected, b"2")
    ]


@pytest.mark.parametrize("broken", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_name_is_named_before_a_broker_sees_it(
    sinks: Any, topics: Topics, broken: Any
) -> None:
    topic = topics.create("out", 1)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([topic, topic]),
            "value": pa.array([b"1", b"2"], pa.binary()),
            "headers": pa.array([None, [{"key": "h", "value": None}, broken]], header),
        }
    )
    with pytest.raises(RowError, match="a header that is null, or has no key"):
        write_task(sinks(), attempt(new_sink()), [batch])


def read_all(broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    import confluent_kafka as ck

    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "look",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        waiting = set(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
        consumer.assign([ck.TopicPartition(topic, one, 0) for one in waiting])
        found = []
        while waiting:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                found.append(
                    (message.partition(), message.key(), message.value(), message.headers())
                )
            else:
                waiting.discard(message.partition())
        return found
    finally:
        consumer.close()


def test_large_batches_are_divided_and_a_record_that_is_too_large_is_named(
    sinks: Any, topics: Topics
) -> None:
    topic = topics.create("out", 1, max_message_bytes="5000")
    sink, cluster = new_sink(), sinks(topic=topic)
    values = pa.array([b"%d" % n for n in range(2000)], pa.binary())
    batch = pa.RecordBatch.from_arrays([values], names=["value"])
    commit_batch(cluster, sink, 0, [write_task(cluster, attempt(sink), [batch])])
    assert topics.values("out") == list(range(2000))
    large = pa.RecordBatch.from_pydict({"value": pa.array([b"1" * 6000], pa.binary())})
    with pytest.raises(RowError, match=f"a record of 60.. bytes.*{topic}.*max.message.bytes"):
        write_task(cluster, attempt(sink, 1, number=2), [large])
    assert cluster.open_transactions(f"spark/{sink}/") == []
    strict = sinks(topic=topic, **{"kafka.max.request.size": "1000"})
    large = pa.RecordBatch.from_pydict({"value": pa.array([b"1" * 2000], pa.binary())})
    with pytest.raises(RowError, match=f"{topic} is above kafka.max.request.size 1000"):
        write_task(strict, attempt(sink, 1, number=4), [large])
    outside = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"1"]), "partition": pa.array([7], pa.int32())}
    )
    with pytest.raises(RowError, match=f"partition 7, but {topic} has 1"):
        write_task(cluster, attempt(sink, 1, number=3), [outside])


def test_a_topic_that_is_not_there_and_not_made_is_named_with_the_remedy() -> None:
    """A dead-letter topic, say: brokers may be told to make none by themselves."""
    with Broker({"auto.create.topics.enable": "false"}) as strict:
        given = {"kafka.bootstrap.servers": strict.bootstrap, "topic": "dead"}
        options = parse_sink_options({**given, "kafka.max.block.ms": "500"}, streaming=True)
        cluster = ClientSinkCluster(options)
        try:
            with pytest.raises(RowError, match=r"no topic dead.*`ottla topic create dead`"):
                write_task(cluster, attempt("s"), rows(1))
            assert cluster.open_transactions("spark/s/") == []
        finally:
            cluster.wire.close()
