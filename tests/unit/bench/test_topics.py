"""Goal: a topic is ready when all its partitions are led, and a refusal is never overlooked.
Method: a server in this process that answers in the real formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bench.topics import create_topic, delete_topics, end_offset
from bench.wire import AnswerError
from ottla.protocol import api_keys, messages
from ottla.protocol.error_codes import TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.headers import read_request_header, response_header
from tests.unit.bench.servers import serving

Answers = Mapping[int, Callable[[], Mapping[str, Any]]]


def broker(answers: Answers) -> Callable[[bytes], bytes]:
    """Answers each API key by its function."""

    def answer(request: bytes) -> bytes:
        header = read_request_header(memoryview(request))
        key, version = header.api_key, header.api_version
        body = messages.encode_response(key, version, answers[key]())
        return response_header(key, version, header.correlation_id) + body

    return answer


def created(error_code: int = 0) -> dict[str, Any]:
    topic = {
        "name": "orders",
        "error_code": error_code,
        "error_message": None,
        "topic_config_error_code": 0,
        "num_partitions": 2,
        "replication_factor": 1,
        "configs": [],
    }
    return {"throttle_time_ms": 0, "topics": [topic]}


def described(leaders: list[int]) -> dict[str, Any]:
    partitions = [
        {
            "error_code": 0,
            "partition_index": index,
            "leader_id": leader,
            "replica_nodes": [1],
            "isr_nodes": [1],
            "offline_replicas": [],
        }
        for index, leader in enumerate(leaders)
    ]
    topic = {"error_code": 0, "name": "orders", "is_internal": False, "partitions": partitions}
    return {"brokers": [], "cluster_id": None, "controller_id": 1, "topics": [topic]}


def test_creating_waits_for_every_leader() -> None:
    states = [[], [1], [1, -1], [1, 1]]
    answers = {
        api_keys.CREATE_TOPICS: created,
        api_keys.METADATA: lambda: described(states.pop(0)),
    }
    with serving(broker(answers)) as bootstrap:
        create_topic(bootstrap, "orders", 2)
    assert states == []


def test_a_refusal_is_an_error() -> None:
    deleted = {"name": "orders", "error_code": UNKNOWN_TOPIC_OR_PARTITION}
    answers = {
        api_keys.CREATE_TOPICS: lambda: created(TOPIC_ALREADY_EXISTS),
        api_keys.DELETE_TOPICS: lambda: {"throttle_time_ms": 0, "responses": [deleted]},
    }
    with serving(broker(answers)) as bootstrap:
        with pytest.raises(AnswerError, match="create topic orders: TOPIC_ALREADY_EXISTS"):
            create_topic(bootstrap, "orders")
        with pytest.raises(AnswerError, match="delete topic orders: UNKNOWN_TOPIC_OR_PARTITION"):
            delete_topics(bootstrap, "orders")


def test_the_end_of_a_partition() -> None:
    found = {
        "partition_index": 0,
        "error_code": 0,
        "timestamp": -1,
        "offset": 4711,
        "leader_epoch": 0,
    }
    topics = [{"name": "orders", "partitions": [found]}]
    answers = {api_keys.LIST_OFFSETS: lambda: {"throttle_time_ms": 0, "topics": topics}}
    with serving(broker(answers)) as bootstrap:
        assert end_offset(bootstrap, "orders") == 4711
