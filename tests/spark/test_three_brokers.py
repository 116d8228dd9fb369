"""On three brokers in three racks: readers near one of them, and where decisions are kept.

With `kafka.client.rack` the leader may answer without records and name another replica: taken for
the end of a range, that would be a silent loss.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource

from ottla.protocol.api_keys import METADATA
from ottla.protocol.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from ottla.spark import reading
from ottla.spark.client_reader import ClientRangeReader
from ottla.spark.client_sink import ClientSinkCluster
from ottla.spark.decisions import TOPIC
from ottla.spark.sink_options import parse_sink_options
from ottla.spark.source import batch_reader
from ottla.spark.source_options import SourceOptions
from ottla.testing import Cluster
from tests.spark.queries import until
from tests.spark.topics import Topics

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = ["a", "b", "c"]
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


class LaggingReader(ClientRangeReader):
    """Hears of topics from a broker that has not heard of any itself."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        core = self._wire.core
        self._request = core.request
        core.request = self._lagging_request  # type: ignore[method-assign]
        self.bootstrap = core.least_loaded()
        core.least_loaded = lambda *_: self.bootstrap  # type: ignore[method-assign]

    def _lagging_request(self, node_id: int, api_key: int, *rest: Any, **more: Any) -> Any:
        pending = self._request(node_id, api_key, *rest, **more)
        if api_key != METADATA or node_id not in (self.bootstrap, 1):
            return pending
        return self._wire.core.spawn(self._without_topics(pending))

    async def _without_topics(self, pending: Any) -> Any:
        answer = await pending
        for topic in answer.topics:
            topic.error_code, topic.partitions = UNKNOWN_TOPIC_OR_PARTITION, []
        return answer


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
