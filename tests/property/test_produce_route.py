"""Goal: the short way of a produce answers what the long way answers, whatever is sent, and
whatever becomes of a batch that waits for other replicas.
Method: the same requests to two topics of a real broker: once all on one connection, where routes
are learned and used, once each on a connection of its own, where there are none. Answers and the
stored bytes must be equal. Then the same on three brokers, and with a batch that nobody else gets.
"""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.cimpl import NewTopic

from ottla.base.deferred import Deferred
from ottla.handlers.produce_route import FIRST_FLEXIBLE_VERSION, ProduceRoute
from ottla.log.batch_scan import batch_size
from ottla.native import compiled
from ottla.protocol.error_codes import (
    NONE,
    NOT_ENOUGH_REPLICAS,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages import encode_request
from ottla.records import compression
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import (
    BASE_SEQUENCE,
    HEADER_SIZE,
    PRODUCER_ID,
    RECORD_COUNT,
    read_header,
)
from ottla.testing import Broker, Cluster
from tests.compat.confluent import admin_client, create_topic, new_name, result_of
from tests.compat.nodes import wait_until
from tests.compat.wire import Wire, fetch
from tests.patience import SECONDS_MAX
from tests.property.line import Line
from tests.seeds import seed_for

PRODUCE, METADATA = 0, 3
NOW_MS = 1_790_000_000_000
REQUESTS = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.message.timestamp.after.max.ms": 10**15}) as broker:
        yield broker


def line_to(port: int) -> Line:
    return Line(port, PRODUCE, 9)


def a_batch(rng: random.Random, sequence: int) -> bytes:
    count = rng.choice((1, 1, 3, 20))
    records = [
        RecordToWrite(NOW_MS + number, rng.choice((None, b"key")), rng.randbytes(size), ())
        for number, size in enumerate(rng.choices((0, 9, 90), k=count))
    ]
    producer = rng.random() < 0.5
    batch = bytearray(
        build_batch(
            records,
            codec=rng.choice((compression.NONE, compression.NONE, compression.LZ4)),
            producer_id=77 if producer else -1,
            producer_epoch=0 if producer else -1,
            base_sequence=rng.choice((sequence, sequence, 0, 5)) if producer else -1,
            transactional=rng.random() < 0.05,
        )
    )
    if rng.random() < 0.15:
        batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del batch[max(HEADER_SIZE, len(batch) - rng.randrange(1, 10)) :]
    return bytes(batch)


def a_body(version: int, topic: str, topic_id: object, batch: bytes, rng_acks: int) -> bytes:
    entry = {"index": 0, "records": batch}
    named = {"name": topic, "topic_id": topic_id, "partition_data": [entry]}
    return encode_request(
        PRODUCE,
        version,
        {"transactional_id": None, "acks": rng_acks, "timeout_ms": 1000, "topic_data": [named]},
    )


def told(response: Any) -> list[Any]:
    """An answer without the name or id of its topic."""
    return [
        (
            one.index,
            one.error_code,
            one.base_offset,
            one.log_append_time_ms,
            one.log_start_offset,
            [(error.batch_index, error.batch_index_error_message) for error in one.record_errors],
            one.error_message,
        )
        for topic in response.responses
        for one in topic.partition_responses
    ]


def topic_id_of(broker: Broker | Cluster, topic: str) -> uuid.UUID:
    described = result_of(admin_client(broker.bootstrap).describe_topics(TopicCollection([topic])))
    text = str(described.topic_id)
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


@pytest.mark.parametrize("version", [8, 9, 12, 13])
def test_both_ways_give_the_same_answers(broker: Broker, version: int) -> None:
    rng = random.Random(seed_for(f"produce route {version}"))
    topics = [create_topic(broker.bootstrap) for _ in range(2)]
    ids = [topic_id_of(broker, topic) for topic in topics]
    routed = line_to(broker.port)
    sequence = 0
    for _ in range(REQUESTS):
        batch = a_batch(rng, sequence)
        acks = rng.choice((-1, -1, 1, 2))
        first = told(routed.call(version, a_body(version, topics[0], ids[0], batch, acks)))
        alone = line_to(broker.port)
        second = told(alone.call(version, a_body(version, topics[1], ids[1], batch, acks)))
        alone.socket.close()
        assert first == second
        header = read_header(batch)
        if first[0][1] == 0 and header[PRODUCER_ID] == 77:
            sequence = header[BASE_SEQUENCE] + header[RECORD_COUNT]
    routed.socket.close()
    stored = [_stored(broker, topic) for topic in topics]
    assert stored[0] == stored[1]
    assert len(stored[0]) > 1000


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests were answered together, each time that several could have been."""
    taken = []
    real = ProduceRoute.answer_run

    def noted(route: ProduceRoute, *arguments: Any) -> list[bytes]:
        answers = real(route, *arguments)
        taken.append(len(answers))
        return answers

    monkeypatch.setattr(ProduceRoute, "answer_run", noted)
    return taken


@pytest.mark.parametrize("version", [8, 9, 12, 13])
def test_requests_that_come_at_once_get_the_answers_of_single_ones(
    broker: Broker, version: int, runs: list[int]
) -> None:
    rng = random.Random(seed_for(f"produce run {version}"))
    topics = [create_topic(broker.bootstrap) for _ in range(2)]
    ids = [topic_id_of(broker, topic) for topic in topics]
    at_once = line_to(broker.port)
    sequence = 0
    for _ in range(REQUESTS):
        batches, acks = [], []
        for _ in range(rng.randrange(1, 6)):
            batch = a_batch(rng, sequence)
            header = read_header(batch)
            if header[PRODUCER_ID] == 77 and header[BASE_SEQUENCE] == sequence:
                sequence += header[RECORD_COUNT]
            batches.append(batch)
            acks.append(rng.choice((-1, -1, -1, -1, 1, 2)))
        each = list(zip(batches, acks, strict=True))
        bodies = [a_body(version, topics[0], ids[0], batch, wanted) for batch, wanted in each]
        first = [told(answer) for answer in at_once.call_at_once(version, bodies)]
        second = []
        for batch, wanted in each:
            alone = line_to(broker.port)
            body = a_body(version, topics[1], ids[1], batch, wanted)
            second.append(told(alone.call(version, body)))
            alone.socket.close()
        assert first == second
        if any(answer[0][1] for answer in first):
            sequence = next_sequence(_stored(broker, topics[0]))
    at_once.socket.close()
    assert _stored(broker, topics[0]) == _stored(broker, topics[1])
    if version < FIRST_FLEXIBLE_VERSION:
        assert not runs
    elif compiled is not None:  # Python's own short cut is for shapes that were seen often
        assert max(runs) > 1


def next_sequence(stored: bytes) -> int:
    """What the producer has to send next, after something of it was refused."""
    position, sequence = 0, 0
    while position < len(stored):
        header = read_header(stored, position)
        if header[PRODUCER_ID] == 77:
            sequence = header[BASE_SEQUENCE] + header[RECORD_COUNT]
        position += batch_size(header)
    return sequence


def _stored(broker: Broker, topic: str) -> bytes:
    return (Path(broker.data_dir) / f"{topic}-0" / f"{0:020d}.log").read_bytes()


# -- where others have to have it, too ------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, {"log.message.timestamp.after.max.ms": 10**15}) as cluster:
        yield cluster


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each request that took the short way, whether its answer had to wait."""
    taken = []
    real = ProduceRoute.answer

    def noted(route: ProduceRoute, *arguments: Any) -> Any:
        answer = real(route, *arguments)
        if answer is not None:
            taken.append(isinstance(answer, Deferred))
        return answer

    monkeypatch.setattr(ProduceRoute, "answer", noted)
    return taken


def replicated_topic(cluster: Cluster) -> str:
    topic = new_name()
    made = admin_client(cluster.bootstrap).create_topics([NewTopic(topic, 1, 3)])
    result_of(made)
    with Wire(f"127.0.0.1:{cluster.port(cluster.leader(topic))}") as wire:
        wait_until(lambda: fetch(wire, topic, 0).error_code == NONE, SECONDS_MAX, "it is served")
    return topic


def line_to_leader(cluster: Cluster, topic: str) -> Line:
    return line_to(cluster.port(cluster.leader(topic)))


@pytest.mark.parametrize("version", [9, 12, 13])
def test_both_ways_give_the_same_answers_where_others_have_to_have_it(
    cluster: Cluster, version: int, waited: list[bool]
) -> None:
    rng = random.Random(seed_for(f"replicated produce route {version}"))
    topics = [replicated_topic(cluster) for _ in range(2)]
    ids = [topic_id_of(cluster, topic) for topic in topics]
    routed = line_to_leader(cluster, topics[0])
    sequence = 0
    for _ in range(REQUESTS // 3):
        batch = a_batch(rng, sequence)
        acks = rng.choice((-1, -1, 1, 2))
        first = told(routed.call(version, a_body(version, topics[0], ids[0], batch, acks)))
        alone = line_to_leader(cluster, topics[1])
        second = told(alone.call(version, a_body(version, topics[1], ids[1], batch, acks)))
        alone.socket.close()
        assert first == second
        header = read_header(batch)
        if first[0][1] == NONE and header[PRODUCER_ID] == 77:
            sequence = header[BASE_SEQUENCE] + header[RECORD_COUNT]
    routed.socket.close()
    assert True in waited


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("ending", [REQUEST_TIMED_OUT, UNKNOWN_TOPIC_OR_PARTITION])
def test_both_ways_tell_what_became_of_a_batch_that_waits(
    cluster: Cluster, version: int, ending: int, waited: list[bool]
) -> None:
    """Nobody fetches it: its time is up, or its topic is deleted."""
    answers = []
    batch = build_batch([RecordToWrite(NOW_MS, None, b"one")])
    for is_routed in (True, False):
        topic = replicated_topic(cluster)
        body = a_body(version, topic, topic_id_of(cluster, topic), batch, -1)
        leader = cluster.leader(topic)
        known, new = line_to_leader(cluster, topic), line_to_leader(cluster, topic)
        with known.socket, new.socket:
            for _ in range(2):
                assert told(known.call(version, body))[0][1] == NONE
            line = known if is_routed else new
            waited.clear()
            for other in set(cluster.broker_ids) - {leader}:
                cluster.cut(leader, other)
            line.send(version, body)
            wait_for_batches(cluster, leader, topic, 3)
            if ending == REQUEST_TIMED_OUT:
                cluster.advance(seconds=2)
            else:
                result_of(admin_client(cluster.bootstrap).delete_topics([topic]))
            answers.append(told(line.receive(version)))
            cluster.heal()
        assert waited == ([True] if is_routed else [])
    assert answers[0] == answers[1]
    assert answers[0][0][1:3] == (ending, 2)


def test_where_too_few_are_in_sync_nothing_is_stored(cluster: Cluster) -> None:
    topic = replicated_topic(cluster)
    batch = build_batch([RecordToWrite(NOW_MS, None, b"one")])
    body = a_body(12, topic, None, batch, -1)
    leader = cluster.leader(topic)
    others = set(cluster.broker_ids) - {leader}
    with (line := line_to_leader(cluster, topic)).socket:
        for _ in range(2):
            assert told(line.call(12, body))[0][1] == NONE
        for other in others:
            cluster.kill(other)
        wait_until(lambda: cluster.in_sync(topic) == {leader}, SECONDS_MAX, "it leads alone")
        refused = told(line.call(12, body))
        for other in others:
            cluster.start(other)
        wait_until(lambda: cluster.in_sync(topic) > {leader}, SECONDS_MAX, "another is back")
        stored = told(line.call(12, body))
    assert refused[0][1:3] == (NOT_ENOUGH_REPLICAS, -1)
    assert stored[0][1:3] == (NONE, 2)


def wait_for_batches(cluster: Cluster, broker_id: int, topic: str, count: int) -> None:
    """Until that broker has so many of them in its log."""
    path = Path(cluster.data_dir) / f"broker-{broker_id}" / f"{topic}-0" / f"{0:020d}.log"
    size = count * (HEADER_SIZE + 8)
    wait_until(lambda: path.stat().st_size >= size, SECONDS_MAX, f"{count} batches are stored")
