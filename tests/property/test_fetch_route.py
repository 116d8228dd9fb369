"""Goal: the short way of a fetch answers what the long way answers, whatever is asked, and whatever
becomes of a fetch that waits.
Method: the same requests to a real broker: once all on one connection, where routes are learned and
used, once each on a connection of its own, where there are none. Answers must be equal, and the
short way must have been taken. In sessions: two of them, one on a line that keeps its routes, one
on new lines. Then fetches that wait, for records, for their time, for a topic that is deleted.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from ottla.base.deferred import Deferred
from ottla.handlers.fetch_route import FetchRoute
from ottla.protocol.error_codes import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages import encode_request
from ottla.testing import Broker
from tests.compat.confluent import admin_client, create_topic, new_name, result_of, send_values
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX
from tests.property.line import Line
from tests.property.test_produce_route import topic_id_of
from tests.seeds import seed_for

FETCH = 1
REQUESTS = 150
RECORDS = 40
ABORTED_EACH = 5


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each request that took the short way, whether its answer had to wait."""
    noted: list[bool] = []
    real = FetchRoute.answer

    def answer(route: FetchRoute, *arguments: Any) -> Any:
        outcome = real(route, *arguments)
        if outcome is not None:
            noted.append(isinstance(outcome, Deferred))
        return outcome

    monkeypatch.setattr(FetchRoute, "answer", answer)
    return noted


def line_to(broker: Broker) -> Line:
    return Line(broker.port, FETCH, 12)


def call_alone(broker: Broker, version: int, body: bytes) -> Any:
    line = line_to(broker)
    with line.socket:
        return line.call(version, body)


def a_body(version: int, topic_id: uuid.UUID, offset: int, **changes: Any) -> bytes:
    """A consumer's request; `changes` by the names of the protocol, of the partition, too."""
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    wanted |= {name: changes.pop(name) for name in list(changes) if name in wanted}
    fields = {
        "replica_id": -1,
        "max_wait_ms": 10,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": topic_id, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return encode_request(FETCH, version, fields | changes)


def told(answer: Any) -> Any:
    """Everything but the session's id, which is by chance."""
    return answer.throttle_time_ms, answer.error_code, repr(answer.responses)


def filled_topic(broker: Broker, *, with_aborted: bool) -> uuid.UUID:
    """Plain records, some of them behind aborted ones."""
    topic = create_topic(broker.bootstrap)
    settings = {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 3}
    plain = Producer(settings)
    for number in range(RECORDS):
        plain.produce(topic, str(number).encode() * (number + 1))
    assert plain.flush(SECONDS_MAX) == 0
    if with_aborted:
        aborting = Producer(settings | {"transactional.id": new_name("route")})
        aborting.init_transactions(SECONDS_MAX)
        for value in range(ABORTED_EACH):
            aborting.begin_transaction()
            aborting.produce(topic, str(value).encode())
            aborting.flush(SECONDS_MAX)
            aborting.abort_transaction(SECONDS_MAX)
            send_values(broker.bootstrap, topic, [b"between"])
    return topic_id_of(broker, topic)


@pytest.mark.parametrize("with_aborted", [False, True])
@pytest.mark.parametrize("version", [13, 15, 17, 18])
def test_both_ways_give_the_same_answers(
    broker: Broker, version: int, with_aborted: bool, taken: list[bool]
) -> None:
    rng = random.Random(seed_for(f"fetch route {version} {with_aborted}"))
    topic_id = filled_topic(broker, with_aborted=with_aborted)
    routed = line_to(broker)
    changes: dict[str, Any] = {}
    for _ in range(REQUESTS):
        if rng.random() < 0.3:  # like the one before, most of the time
            changes = {
                "isolation_level": rng.randrange(2),
                "min_bytes": rng.choice((0, 1, 1, 1, 500, 10**6)),
                "max_wait_ms": rng.choice((0, 1, 1, 1)),
                "max_bytes": rng.choice((0, 50, 2000, 50 << 20, 2**31 - 1)),
                "partition_max_bytes": rng.choice((0, 50, 2000, 1 << 20)),
                "current_leader_epoch": rng.choice((-1, -1, 0, 0, 1)),
                "last_fetched_epoch": rng.choice((-1, -1, -1, 0)),
                "rack_id": rng.choice(("", "", "", "r")),
            }
        offset = rng.choice((rng.randrange(RECORDS + 30), 0, -1, 10**6, 5, 5))
        body = a_body(version, topic_id, offset, **changes)
        assert told(routed.call(version, body)) == told(call_alone(broker, version, body))
    routed.socket.close()
    assert bool(taken) == (version >= 15)  # below, a replica could not be told from a consumer


@pytest.mark.parametrize("isolation", [0, 1])
def test_both_ways_give_the_same_answers_in_a_session(
    broker: Broker, isolation: int, taken: list[bool]
) -> None:
    rng = random.Random(seed_for(f"fetch route in a session {isolation}"))
    # What has aborted transactions in it goes the long way, to whom they matter.
    topic_id = filled_topic(broker, with_aborted=isolation == 0)
    routed = line_to(broker)

    def ask(session: int, epoch: int, offset: int, changes: dict[str, Any]) -> bytes:
        changes = {"isolation_level": isolation, "max_wait_ms": 1, **changes}
        return a_body(17, topic_id, offset, session_id=session, session_epoch=epoch, **changes)

    def opened() -> list[int]:
        lines = (routed, line_to(broker))
        sessions = [line.call(17, ask(0, 0, 0, {})).session_id for line in lines]
        lines[1].socket.close()
        return sessions

    sessions, epoch = opened(), 1
    for _ in range(REQUESTS):
        changes: dict[str, Any] = {}
        asked_epoch = epoch
        if rng.random() < 0.15:
            changes = rng.choice(
                (
                    {"topics": []},
                    {"current_leader_epoch": 3},
                    {"partition_max_bytes": 100},
                    {"forgotten_topics_data": [{"topic_id": topic_id, "partitions": [0]}]},
                    {"partition": 9},
                )
            )
            asked_epoch = rng.choice((epoch, epoch, epoch + 1, 10**6))
        offset = rng.choice((rng.randrange(RECORDS + 12), RECORDS // 2, 10**6))
        bodies = [ask(session, asked_epoch, offset, changes) for session in sessions]
        first = routed.call(17, bodies[0])
        second = call_alone(broker, 17, bodies[1])
        assert told(first) == told(second)
        assert (first.session_id == sessions[0]) == (second.session_id == sessions[1])
        if first.error_code == NONE:
            epoch += 1
        if first.session_id != sessions[0]:
            sessions, epoch = opened(), 1
    routed.socket.close()
    assert False in taken


# -- waiting --------------------------------------------------------------------------------------


def a_waiting_line(broker: Broker, topic_id: uuid.UUID, taken: list[bool], is_routed: bool) -> Line:
    """At the end of two records, with a fetch under way that waits; by the short way or not."""
    line = line_to(broker)
    if is_routed:
        for offset in (0, 1):
            assert line.call(17, a_body(17, topic_id, offset, max_wait_ms=600_000)).responses
    taken.clear()
    line.send(17, a_body(17, topic_id, 2, max_wait_ms=600_000))
    return line


@contextmanager
def both_waiting(broker: Broker, topic: str, taken: list[bool]) -> Iterator[tuple[Line, Line]]:
    send_values(broker.bootstrap, topic, [b"0", b"1"])
    topic_id = topic_id_of(broker, topic)
    alone = a_waiting_line(broker, topic_id, taken, False)
    routed = a_waiting_line(broker, topic_id, taken, True)
    with alone.socket, routed.socket:
        wait_until(lambda: taken == [True], SECONDS_MAX, "it has taken the short way, and waits")
        yield alone, routed


def test_both_ways_wait_for_records(broker: Broker, taken: list[bool]) -> None:
    topic = create_topic(broker.bootstrap)
    with both_waiting(broker, topic, taken) as lines:
        send_values(broker.bootstrap, topic, [b"what they wait for"])
        answers = [told(line.receive(17)) for line in lines]
    assert answers[0] == answers[1]
    assert "what they wait for" in answers[0][2]


def test_both_ways_end_with_their_time(broker: Broker, taken: list[bool]) -> None:
    with both_waiting(broker, create_topic(broker.bootstrap), taken) as lines:
        broker.advance(seconds=601)
        answers = [line.receive(17) for line in lines]
    assert told(answers[0]) == told(answers[1])
    [[partition]] = [topic.partitions for topic in answers[0].responses]
    assert (partition.error_code, partition.high_watermark) == (NONE, 2)


def test_both_ways_end_with_their_topic(broker: Broker, taken: list[bool]) -> None:
    topic = create_topic(broker.bootstrap)
    with both_waiting(broker, topic, taken) as lines:
        topic_id = topic_id_of(broker, topic)
        result_of(admin_client(broker.bootstrap).delete_topics([topic]))
        answers = [line.receive(17) for line in lines]
        assert told(answers[0]) == told(answers[1])
        assert answers[0].responses[0].partitions[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
        # To whoever asks again by the same bytes it is an id like any other.
        for line in lines:
            again = line.call(17, a_body(17, topic_id, 2, max_wait_ms=600_000))
            assert again.responses[0].partitions[0].error_code == UNKNOWN_TOPIC_ID


def test_the_short_way_sees_deleted_records(broker: Broker, taken: list[bool]) -> None:
    topic = create_topic(broker.bootstrap)
    send_values(broker.bootstrap, topic, [b"0", b"1", b"2"])
    topic_id = topic_id_of(broker, topic)
    line = line_to(broker)
    with line.socket:
        for offset in (0, 1):
            line.call(17, a_body(17, topic_id, offset))
        assert taken == [False]
        deleted = admin_client(broker.bootstrap).delete_records([TopicPartition(topic, 0, 2)])
        result_of(deleted)
        answer = line.call(17, a_body(17, topic_id, 1))
        assert answer.responses[0].partitions[0].error_code == OFFSET_OUT_OF_RANGE
        assert line.call(17, a_body(17, topic_id, 2)).responses[0].partitions[0].records
