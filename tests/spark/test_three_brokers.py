"""On three brokers in three racks: readers near one of them, and where decisions are kept.

With `kafka.client.rack` the leader may answer without records and name another replica: taken for
the end of a range, that would be a silent loss.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.client.errors import AuthorizationError
from ottla.protocol.api_keys import METADATA
from ottla.protocol.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from ottla.spark import reading
from ottla.spark.client_reader import ClientRangeReader
from ottla.spark.client_sink import ClientSinkCluster
from ottla.spark.decisions import TOPIC
from ottla.spark.sink_options import parse_sink_options
from ottla.spark.source import batch_reader, stream_reader
from ottla.spark.source_options import SourceOptions
from ottla.testing import Cluster
from tests.spark.batches import COLUMNS, values_between
from tests.spark.queries import until
from tests.spark.topics import Topics

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = ["a", "b", "c"]
LAGGING, BOOTSTRAP = 1, -1  # by their ids
# Of a busy machine; a request may take 30 seconds, and that for each range.
NOTICED_SECONDS_MAX = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, {"replica.selector.class": SELECTOR}, racks=RACKS) as found:
        yield found


def values_of(bootstrap: str, topic: str, rack: str) -> list[int]:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.client.rack": rack,
        "subscribe": topic,
        "columns": "value",
        # Each range takes several fetches, the last of which finds the end.
        "kafka.fetch.max.bytes": "500",
    }
    reader = batch_reader(options, ["value"])
    found = [
        int(value)
        for task in reader.partitions()
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    ]
    return sorted(found)


def test_every_record_is_read_wherever_the_reader_is(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap, "near")
    topic = topics.create("in", 3, replicas=3)
    topics.fill("in", range(300), partitions=3)
    for rack in [*RACKS, "elsewhere"]:
        assert values_of(cluster.bootstrap, topic, rack) == list(range(300)), rack


def test_a_replica_that_is_away_is_not_waited_for(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap, "away")
    topic = topics.create("in", 3, replicas=3)
    topics.fill("in", range(300), partitions=3)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "kafka.client.rack": "b",
        "assign": json.dumps({topic: [0, 1, 2]}),
        "kafka.fetch.max.bytes": "500",
        "columns": "value",
    }
    reader = batch_reader(options, ["value"])
    tasks = reader.partitions()
    readers = [reader.read(task) for task in tasks]
    found = [int(one) for task in readers for one in next(task).column("value").to_pylist()]
    cluster.kill(2)
    try:
        for task in readers:
            for batch in task:
                found += [int(one) for one in batch.column("value").to_pylist()]
    finally:
        cluster.start(2)
    assert sorted(found) == list(range(300))
    # Those who come after this find three brokers again: the others know of it by then.
    until(lambda: all(cluster.in_sync(topic, one) == {1, 2, 3} for one in range(3)), "its return")


class Lag:
    """A client that asks for topics at a broker that has not heard of any itself, for so many of
    its answers. `nodes` lag, and have this to say of a topic by its name."""

    def __init__(
        self,
        core: Any,
        answers: float = math.inf,
        nodes: tuple[int, ...] = (LAGGING, BOOTSTRAP),
        code: int = UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        self._core = core
        self._answers_left = answers
        self._nodes = nodes
        self._code = code
        self._request = core.request
        core.request = self._ask
        core.least_loaded = self._lagging_broker

    def _lagging_broker(self, *_: Any) -> int:
        return LAGGING if LAGGING in self._core.cluster.brokers else BOOTSTRAP

    def _ask(self, node_id: int, api_key: int, fields: Any, **more: Any) -> Any:
        pending = self._request(node_id, api_key, fields, **more)
        if api_key != METADATA or node_id not in self._nodes or self._answers_left <= 0:
            return pending
        self._answers_left -= 1
        return self._core.spawn(self._without_topics(pending, fields["topics"] is None))

    async def _without_topics(self, pending: Any, is_list: bool) -> Any:
        answer = await pending
        if is_list:
            answer.topics = []
        for topic in answer.topics:
            topic.error_code, topic.partitions = self._code, []
        return answer


class LaggingReader(ClientRangeReader):
    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        Lag(self._wire.core)


@pytest.mark.parametrize("pattern", [False, True])
def test_a_query_keeps_a_topic_that_a_broker_has_not_heard_of_yet(
    cluster: Cluster, pattern: bool
) -> None:
    """Taken for deleted it would be an error, or be read from its beginning when it appears."""
    topics = Topics(cluster.bootstrap, f"planned-{pattern}")
    topic = topics.create("in", 3, replicas=3)
    topics.fill("in", range(300), partitions=3)
    for fails in ("true", "false"):
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribePattern" if pattern else "subscribe": topic,
            "startingOffsets": "earliest",
            "failOnDataLoss": fails,
            "partition.metadata.cache.ttl.ms": "0",
        }
        reader = stream_reader(options, COLUMNS)
        start = reader.initialOffset()
        middle = reader.latestOffset(start, ReadMaxRows(90))
        Lag(reader._view._wire.core, answers=4)
        end = reader.latestOffset(middle, ReadAllAvailable())
        found = values_between(reader, start, middle) + values_between(reader, middle, end)
        reader.stop()
        assert sorted(found) == list(range(300)), fails


def test_a_topic_that_may_not_be_seen_any_more_is_not_deleted(cluster: Cluster) -> None:
    """Brokers leave it out of their lists, and say why to who asks for it."""
    topics = Topics(cluster.bootstrap, "hidden")
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribePattern": topics.create("in", 3, replicas=3),
        "failOnDataLoss": "false",
        "partition.metadata.cache.ttl.ms": "0",
    }
    reader = stream_reader(options, COLUMNS)
    start = reader.initialOffset()
    everybody = (1, 2, 3, BOOTSTRAP)
    Lag(reader._view._wire.core, nodes=everybody, code=TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match=r"hidden\.in"):
        reader.latestOffset(start, ReadAllAvailable())
    reader.stop()


def test_a_broker_that_lags_behind_has_seen_no_deletion(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records would be skipped that are there; and once all know, nobody waits for a time-out."""
    topics = Topics(cluster.bootstrap, "lagging")
    topic = topics.create("in", 3, replicas=3)
    topics.fill("in", range(300), partitions=3)
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{cluster.port(1)}",
        "subscribe": topic,
        "columns": "value",
        "failOnDataLoss": "false",
    }
    reader = batch_reader(options, ["value"])
    tasks = reader.partitions()
    monkeypatch.setattr(reading, "open_reader", LaggingReader)

    def found() -> list[int]:
        batches = [batch for task in tasks for batch in reader.read(task)]
        return sorted(int(one) for batch in batches for one in batch.column("value").to_pylist())

    assert found() == list(range(300))
    topics.delete("in")
    began = time.monotonic()
    assert found() == []
    assert time.monotonic() - began < NOTICED_SECONDS_MAX


def test_decisions_are_on_as_many_brokers_as_there_are_up_to_three(cluster: Cluster) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap}
    sink = ClientSinkCluster(parse_sink_options(options, streaming=True))
    cluster.stop(3)  # it is away, and counts all the same
    try:
        assert sink.decision("any") is None
    finally:
        sink.wire.close()
        cluster.start(3)
    admin = Topics(cluster.bootstrap, "decisions").admin
    described = admin.list_topics(TOPIC, timeout=60).topics[TOPIC]
    assert {len(one.replicas) for one in described.partitions.values()} == {3}
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    (configs,) = (done.result(60) for done in admin.describe_configs([resource]).values())
    assert configs["min.insync.replicas"].value == "2"
    assert configs["cleanup.policy"].value == "compact"
