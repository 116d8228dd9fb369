"""Goal: who fetches by a topic id hears of the topic's end as from Kafka.
Method: readers in a session and without one, of a topic that is deleted and made anew.

An id that a session, or a fetch that waits, has known keeps its name: the topic of that name is
unknown (3), or is another one (103). To everybody else the id itself is unknown (100).
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from tests.compat.confluent import admin_client, create_topic, result_of, topic_exists
from tests.compat.nodes import wait_until
from tests.compat.wire import Wire
from tests.patience import SECONDS_MAX

UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN_TOPIC_ID = 100
INCONSISTENT_TOPIC_ID = 103
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)


def topic_id_of(wire: Wire, topic: str) -> uuid.UUID:
    schema: Any = import_module("kio.schema.metadata.v12.request")
    wanted = schema.MetadataRequestTopic(topic_id=None, name=topic)
    request = schema.MetadataRequest(
        topics=(wanted,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    (told,) = wire.call(request).topics
    assert int(told.error_code) == 0
    found: uuid.UUID = told.topic_id
    return found


def request_of(
    topic_id: uuid.UUID | None, session: tuple[int, int], *, version: int = 17, wait_ms: int = 0
) -> Any:
    schema: Any = import_module(f"kio.schema.fetch.v{version}.request")
    part = schema.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = schema.FetchTopic(topic_id=topic_id, partitions=(part,))
    return schema.FetchRequest(
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=session[0],
        session_epoch=session[1],
        topics=() if topic_id is None else (topic,),
        forgotten_topics_data=(),
        rack_id="",
    )


def codes(answer: Any) -> list[int]:
    assert int(answer.error_code) == 0
    return [int(part.error_code) for topic in answer.responses for part in topic.partitions]


def delete(bootstrap: str, topic: str) -> None:
    result_of(admin_client(bootstrap).delete_topics([topic]))
    wait_until(lambda: not topic_exists(bootstrap, topic), SECONDS_MAX, f"{topic} is gone")


@pytest.mark.parametrize("version", [13, 17])
def test_a_session_knows_what_the_topic_was_called(bootstrap: str, version: int) -> None:
    topic = create_topic(bootstrap)
    with Wire(bootstrap) as wire:
        topic_id = topic_id_of(wire, topic)

        def told(topic_id: uuid.UUID | None, session: tuple[int, int]) -> list[int]:
            return codes(wire.call(request_of(topic_id, session, version=version)))

        session = wire.call(request_of(topic_id, NEW_SESSION, version=version)).session_id
        assert session > 0
        delete(bootstrap, topic)
        gone = [UNKNOWN_TOPIC_OR_PARTITION]
        wait_until(lambda: told(topic_id, NO_SESSION) != [0], SECONDS_MAX, "it is not served")
        assert [told(None, (session, 1)), told(topic_id, (session, 2))] == [gone, gone]
        assert [told(topic_id, NO_SESSION), told(topic_id, NEW_SESSION)] == [[UNKNOWN_TOPIC_ID]] * 2
        create_topic(bootstrap, name=topic)
        other = [INCONSISTENT_TOPIC_ID]
        assert [told(None, (session, 3)), told(topic_id, (session, 4))] == [other, other]
        assert [told(topic_id, NO_SESSION), told(topic_id, NEW_SESSION)] == [[UNKNOWN_TOPIC_ID]] * 2


@pytest.mark.parametrize("fetches_before", [0, 2])
def test_who_waits_when_the_topic_ends(bootstrap: str, fetches_before: int) -> None:
    """The requests of a reader of one partition go a shorter way after the first."""
    topic = create_topic(bootstrap)
    with Wire(bootstrap) as wire:
        topic_id = topic_id_of(wire, topic)
        for _ in range(fetches_before):
            assert codes(wire.call(request_of(topic_id, NO_SESSION, wait_ms=20))) == [0]
        waiting = request_of(topic_id, NO_SESSION, wait_ms=20_000)
        correlation_id = wire.send(waiting)
        delete(bootstrap, topic)
        assert codes(wire.receive(waiting, correlation_id)) == [UNKNOWN_TOPIC_OR_PARTITION]
