"""Goal: Produce by hand reads and says what kio does, in every version.
Method: random requests written by kio are read and compared; random responses are packed and
compared with kio's bytes; then the fast path, and each refusal.
(The lies in counts and lengths are in test_hostile_requests.py.)
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from ottla.base.errors import InvariantError, MalformedRequest
from ottla.base.limits import REQUEST_OBJECTS_MAX
from ottla.protocol import api_keys, messages
from ottla.protocol.produce import (
    NodeEndpoint,
    PartitionProduced,
    TopicProduced,
    pack_produce_response,
    read_produce_request,
)
from tests.unit.protocol.kio_messages import expected, random_message, schema_of, written

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    schema = schema_of(api_keys.PRODUCE, version, True)
    for _ in range(60):
        message = random_message(schema, rng)
        request = read_produce_request(version, memoryview(written(message)))
        wanted = expected(message)
        assert request.transactional_id == wanted["transactional_id"]
        assert (request.acks, request.timeout_ms) == (wanted["acks"], wanted["timeout_ms"])
        topics = [
            (
                topic.get("name"),
                topic.get("topic_id"),
                [(one["index"], one["records"]) for one in topic["partition_data"]],
            )
            for topic in wanted["topic_data"]
        ]
        assert request.topics == topics


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_packed_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    schema = schema_of(api_keys.PRODUCE, version, False)
    for _ in range(60):
        message = random_message(schema, rng)
        topics, throttle_time_ms, endpoints = arguments_of(expected(message))
        packed = pack_produce_response(version, topics, throttle_time_ms, endpoints)
        assert packed == written(message)


def arguments_of(
    response: dict[str, Any],
) -> tuple[list[TopicProduced], int, list[NodeEndpoint]]:
    topics: list[TopicProduced] = [
        (
            topic.get("name"),
            topic.get("topic_id"),
            [produced_of(partition) for partition in topic["partition_responses"]],
        )
        for topic in response["responses"]
    ]
    endpoints = [
        (node["node_id"], node["host"], node["port"], node["rack"])
        for node in response.get("node_endpoints", [])
    ]
    return topics, response["throttle_time_ms"], endpoints


def produced_of(partition: dict[str, Any]) -> PartitionProduced:
    leader = partition.get("current_leader")
    return (
        partition["index"],
        partition["error_code"],
        partition["base_offset"],
        partition["log_append_time_ms"],
        partition.get("log_start_offset", -1),
        [
            (error["batch_index"], error["batch_index_error_message"])
            for error in partition.get("record_errors", [])
        ],
        partition.get("error_message"),
        None if leader is None else (leader["leader_id"], leader["leader_epoch"]),
    )


TOPIC_ID = uuid.UUID(int=99)
DONE: PartitionProduced = (3, 0, 1234, -1, 7, (), None, None)
REFUSED: PartitionProduced = (4, 87, -1, -1, 7, [(2, "no key"), (3, None)], "keys!", None)
MOVED: PartitionProduced = (5, 6, -1, -1, -1, (), None, (2, 9))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions", [[DONE], [REFUSED], [MOVED], [DONE, DONE], []])
def test_a_packed_response_says_what_was_meant(
    version: int, partitions: list[PartitionProduced]
) -> None:
    body = pack_produce_response(version, [("orders", TOPIC_ID, partitions)], 5)
    decoded = messages.decode_response(api_keys.PRODUCE, version, body)
    (topic,) = decoded.responses
    assert (topic.topic_id == TOPIC_ID) == (version >= 13)
    assert (topic.name == "orders") == (version < 13)
    assert decoded.throttle_time_ms == 5
    for one, wanted in zip(topic.partition_responses, partitions, strict=True):
        assert (one.index, one.error_code, one.base_offset) == wanted[:3]
        if version >= 8:
            errors = [(e.batch_index, e.batch_index_error_message) for e in one.record_errors]
            assert (errors, one.error_message) == (list(wanted[5]), wanted[6])
        if version >= 10:
            leader = one.current_leader
            assert (leader.leader_id, leader.leader_epoch) == (wanted[7] or (-1, -1))


def test_leader_hints_begin_with_version_10() -> None:
    nodes = [(2, "there", 9092, None)]
    for version in VERSIONS:
        body = pack_produce_response(version, [("orders", TOPIC_ID, [MOVED])], 0, nodes)
        decoded = messages.decode_response(api_keys.PRODUCE, version, body)
        assert len(decoded.node_endpoints) == (1 if version >= 10 else 0)


def test_records_are_a_view_of_the_frame() -> None:
    frame = bytearray(a_request(9, b"abc"))
    request = read_produce_request(9, memoryview(frame))
    ((index, records),) = request.topics[0][2]
    assert (index, bytes(records or b"")) == (0, b"abc")
    frame[frame.index(b"abc")] = ord("x")
    assert bytes(records or b"") == b"xbc"


def a_request(version: int, records: bytes | None) -> bytes:
    topic = {
        "name": "orders",
        "topic_id": TOPIC_ID,
        "partition_data": [{"index": 0, "records": records}],
    }
    fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}
    return messages.encode_request(api_keys.PRODUCE, version, fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_null_records_are_not_empty_records(version: int) -> None:
    for records in (None, b""):
        request = read_produce_request(version, memoryview(a_request(version, records)))
        assert request.topics[0][2] == [(0, records)]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_prefix_is_malformed_and_what_follows_is_ignored(version: int) -> None:
    body = a_request(version, b"some records")
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            read_produce_request(version, memoryview(body)[:end])
    read_produce_request(version, memoryview(body + b"\0"))


@pytest.mark.parametrize("version", [8, 9, 12])
def test_a_topic_must_have_a_name(version: int) -> None:
    body = a_request(version, b"r")
    name = b"\0\6orders" if version < 9 else b"\7orders"
    null = b"\xff\xff" if version < 9 else b"\0"
    with pytest.raises(MalformedRequest, match="name"):
        read_produce_request(version, memoryview(body.replace(name, null)))
    with pytest.raises(InvariantError):
        pack_produce_response(version, [(None, TOPIC_ID, [DONE])])


@pytest.mark.parametrize("version", [8, 12])
def test_names_must_be_utf8(version: int) -> None:
    body = a_request(version, b"r").replace(b"orders", b"order\xff")
    with pytest.raises(MalformedRequest):
        read_produce_request(version, memoryview(body))


def test_tagged_fields_are_skipped_everywhere() -> None:
    # Each of the three structs ends with two unknown tags.
    tags = b"\2\7\3abc\x09\0"
    body = b"\0\xff\xff\0\0\0\1\2\2t\2\0\0\0\5\3ab" + tags + tags + tags
    request = read_produce_request(9, memoryview(body))
    assert request.topics == [("t", None, [(5, memoryview(b"ab"))])]
    assert (request.acks, request.timeout_ms) == (-1, 1)


def test_tagged_fields_of_several_topics_add_up() -> None:
    def body(tags: int) -> memoryview:
        varint = bytes((tags & 127 | 128, tags >> 7 & 127 | 128, tags >> 14))
        topic = b"\2t\1" + varint + b"\x63\0" * tags
        return memoryview(b"\0\xff\xff\0\0\0\1\3" + topic + topic + b"\0")

    read_produce_request(9, body(REQUEST_OBJECTS_MAX // 2 - 10))
    with pytest.raises(MalformedRequest, match="tagged fields"):
        read_produce_request(9, body(REQUEST_OBJECTS_MAX // 2))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_topics_and_partitions_are_bounded(version: int) -> None:
    def body(count: int) -> memoryview:
        partitions = [{"index": 0, "records": None}] * count
        topic = {"name": "t", "topic_id": TOPIC_ID, "partition_data": partitions}
        fields = {"acks": 1, "timeout_ms": 1, "topic_data": [topic]}
        return memoryview(messages.encode_request(api_keys.PRODUCE, version, fields))

    request = read_produce_request(version, body(REQUEST_OBJECTS_MAX - 1))
    assert len(request.topics[0][2]) == REQUEST_OBJECTS_MAX - 1
    with pytest.raises(MalformedRequest, match="more than"):
        read_produce_request(version, body(REQUEST_OBJECTS_MAX))


@pytest.mark.parametrize("version", [-1, 0, 2, 14])
def test_other_versions_are_not_spoken(version: int) -> None:
    with pytest.raises(MalformedRequest, match="not spoken"):
        read_produce_request(version, memoryview(b""))
    with pytest.raises(InvariantError):
        pack_produce_response(version, [])
