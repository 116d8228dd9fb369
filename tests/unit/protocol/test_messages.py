"""Goal: our codec says the same bytes as Kafka's schemas do, in every version of every message, and
takes nothing else.
Method: random messages written by kio are decoded, compared field by field, encoded again and read
by kio; then directed cases for each rule of the mapping and each refusal.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from ottla.base.errors import InvariantError, MalformedRequest
from ottla.base.limits import REQUEST_OBJECTS_MAX
from ottla.protocol import absent_fields, api_keys, messages
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.struct_classes import Message
from tests.unit.protocol.kio_messages import (
    all_versions,
    expected,
    random_message,
    read,
    schema_of,
    written,
)
from tests.unit.protocol.make_absent_fields import table_from_kio

SAMPLES = 12
DIRECTIONS = [True, False]


def decode(api_key: int, version: int, is_request: bool, body: bytes) -> Any:
    decoder = messages.decode_request if is_request else messages.decode_response
    return decoder(api_key, version, body)


def encode(api_key: int, version: int, is_request: bool, fields: Any) -> bytes:
    encoder = messages.encode_request if is_request else messages.encode_response
    return encoder(api_key, version, fields)


def same(decoded: Any, wanted: Any) -> bool:
    """Whether a decoded value has all that is wanted; a version's class may have more fields."""
    if isinstance(wanted, dict):
        return all(same(getattr(decoded, name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return len(decoded) == len(wanted) and all(map(same, decoded, wanted))
    return type(decoded) is type(wanted) and bool(decoded == wanted)


@pytest.mark.parametrize("is_request", DIRECTIONS, ids=["requests", "responses"])
def test_every_version_of_every_message_is_what_kio_says(is_request: bool) -> None:
    rng = random.Random(20)
    for api_key, version in all_versions():
        schema = schema_of(api_key, version, is_request)
        for _ in range(SAMPLES):
            message = random_message(schema, rng)
            body = written(message)
            where = f"{schema.__name__} v{version} {body!r}"
            decoded = decode(api_key, version, is_request, body)
            assert same(decoded, expected(message)), where
            assert encode(api_key, version, is_request, decoded) == body, where
            assert encode(api_key, version, is_request, expected(message)) == body, where
            assert read(schema, body) == message, where


def test_the_table_of_absent_fields_is_what_kio_says() -> None:
    assert table_from_kio(is_request=True) == absent_fields.REQUESTS
    assert table_from_kio(is_request=False) == absent_fields.RESPONSES


def test_one_class_serves_all_versions_of_a_struct() -> None:
    old = messages.decode_request(api_keys.METADATA, 1, b"\xff\xff\xff\xff")
    new = messages.decode_request(api_keys.METADATA, 12, bytes.fromhex("00 01 00 00"))
    assert type(old) is type(new)
    assert isinstance(new, Message)
    assert (old.topics, old.allow_auto_topic_creation) == (None, True)
    assert old.include_topic_authorized_operations is False


def test_what_a_version_lacks_has_the_default_of_the_schema() -> None:
    body = messages.encode_response(
        api_keys.FETCH, 4, {"responses": [{"topic": "t", "partitions": [a_fetched_partition()]}]}
    )
    (partition,) = messages.decode_response(api_keys.FETCH, 4, body).responses[0].partitions
    assert partition.log_start_offset == -1
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (-1, -1)
    assert (partition.diverging_epoch.epoch, partition.snapshot_id.end_offset) == (-1, -1)


def a_fetched_partition() -> dict[str, Any]:
    return {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "aborted_transactions": None,
        "records": b"",
    }


def test_an_absent_array_is_a_list_of_its_own() -> None:
    first, second = (
        messages.decode_request(api_keys.LEAVE_GROUP, 0, b"\0\1g\0\1m") for _ in range(2)
    )
    first.members.append(1)
    assert second.members == []


def test_the_null_uuid_is_a_uuid_and_may_be_given_as_none() -> None:
    fields: dict[str, Any] = {"topics": [{"topic_id": None, "name": "t"}]}
    body = messages.encode_request(api_keys.METADATA, 12, dict(fields, **a_metadata_request()))
    (topic,) = messages.decode_request(api_keys.METADATA, 12, body).topics
    assert topic.topic_id == NULL_UUID == uuid.UUID(int=0)


def a_metadata_request() -> dict[str, Any]:
    return {"include_topic_authorized_operations": False}


def test_an_encoder_leaves_out_what_its_version_does_not_have() -> None:
    fields = {"error_code": 27, "throttle_time_ms": 4, "of_the_future": object()}
    assert messages.encode_response(api_keys.HEARTBEAT, 0, fields).hex(" ") == "00 1b"
    assert (
        messages.encode_response(api_keys.HEARTBEAT, 4, fields).hex(" ") == "00 00 00 04 00 1b 00"
    )


def test_throttle_time_is_zero_unless_it_is_given() -> None:
    assert messages.encode_response(api_keys.HEARTBEAT, 1, {"error_code": 0}) == bytes(6)


@pytest.mark.parametrize(
    "fields",
    [
        {},  # a field without a default is missing
        {"error_code": None},
        {"error_code": "27"},
        {"error_code": 1 << 15},
        {"error_code": 0, "throttle_time_ms": 1.5},
        [],
        None,
    ],
)
def test_what_cannot_be_encoded_is_our_own_fault(fields: Any) -> None:
    with pytest.raises(InvariantError):
        messages.encode_response(api_keys.HEARTBEAT, 4, fields)


@pytest.mark.parametrize(
    "change",
    [
        {"topics": None},
        {"brokers": [{"node_id": 1, "host": None, "port": 9092}]},
        {"brokers": [{"node_id": 1, "host": "\ud800", "port": 9092}]},
        {"brokers": [{"node_id": 1, "host": b"h", "port": 9092}]},
        {"brokers": [None]},
        {"cluster_id": b"bytes"},
    ],
)
def test_null_and_wrong_types_are_refused_where_the_version_has_no_null(change: Any) -> None:
    fields: dict[str, Any] = {"brokers": [], "topics": [], "controller_id": 1}
    assert messages.encode_response(api_keys.METADATA, 9, fields)
    with pytest.raises(InvariantError):
        messages.encode_response(api_keys.METADATA, 9, {**fields, **change})


def test_null_goes_only_where_the_version_allows_it() -> None:
    topic: dict[str, Any] = {"name": None, "topic_id": None, "error_code": 100, "partitions": []}
    fields = {"brokers": [], "topics": [topic], "controller_id": 1}
    assert messages.encode_response(api_keys.METADATA, 12, fields)
    with pytest.raises(InvariantError):
        messages.encode_response(api_keys.METADATA, 11, fields)


@pytest.mark.parametrize("version", [3, 4])
def test_a_string_has_at_most_32767_bytes_both_ways(version: int) -> None:
    fields = {"group_id": "g" * 32_767, "generation_id": 1, "member_id": "m"}
    body = messages.encode_request(api_keys.HEARTBEAT, version, fields)
    assert len(messages.decode_request(api_keys.HEARTBEAT, version, body).group_id) == 32_767
    with pytest.raises(InvariantError):
        messages.encode_request(api_keys.HEARTBEAT, version, {**fields, "group_id": "g" * 32_768})


def test_a_longer_string_is_malformed_even_if_all_of_it_is_there() -> None:
    body = b"\x81\x80\2" + b"g" * 32_768 + HEARTBEAT_V4[2:]
    with pytest.raises(MalformedRequest, match="32768"):
        messages.decode_request(api_keys.HEARTBEAT, 4, body)


def test_unknown_keys_and_versions_have_no_codec() -> None:
    with pytest.raises(MalformedRequest, match="no Metadata v99 request"):
        messages.decode_request(api_keys.METADATA, 99, b"")
    with pytest.raises(MalformedRequest):
        messages.decode_response(4000, 0, b"")
    with pytest.raises(InvariantError):
        messages.encode_request(api_keys.METADATA, 99, {})
    with pytest.raises(InvariantError):
        messages.encode_response(4, 0, {})


def test_the_range_of_versions_comes_from_the_schemas() -> None:
    assert messages.supported_versions(api_keys.FETCH) == (4, 18)
    assert messages.supported_versions(api_keys.METADATA) == (0, 13)
    with pytest.raises(InvariantError):
        messages.supported_versions(4000)


HEARTBEAT_V4 = bytes.fromhex("02 67 00 00 00 01 02 6d 00 00")


def test_any_buffer_will_do() -> None:
    for buffer in (HEARTBEAT_V4, bytearray(HEARTBEAT_V4), memoryview(HEARTBEAT_V4)):
        assert messages.decode_request(api_keys.HEARTBEAT, 4, buffer).member_id == "m"


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("a byte too few", HEARTBEAT_V4[:-1]),
        ("nothing", b""),
        ("null for a string", b"\0" + HEARTBEAT_V4[2:]),
        ("no UTF-8", HEARTBEAT_V4.replace(b"g", b"\xff")),
        ("a surrogate", b"\x04\xed\xa0\x80" + HEARTBEAT_V4[2:]),
        ("a varint of six bytes", b"\x82\x80\x80\x80\x80\0" + HEARTBEAT_V4[1:]),
        ("a varint of 35 bits", b"\x82\x80\x80\x80\x70" + HEARTBEAT_V4[1:]),
        ("a tag that says more than is there", HEARTBEAT_V4[:-1] + b"\1\5\2a"),
        ("more tags than bytes", HEARTBEAT_V4[:-1] + b"\x7f\0\0"),
    ],
)
def test_malformed_requests_are_refused_as_such(what: str, body: bytes) -> None:
    assert what
    with pytest.raises(MalformedRequest):
        messages.decode_request(api_keys.HEARTBEAT, 4, body)


def test_what_follows_a_request_is_ignored_as_kafka_does() -> None:
    decoded = messages.decode_request(api_keys.HEARTBEAT, 4, HEARTBEAT_V4 + b"\0\0\0")
    assert decoded == messages.decode_request(api_keys.HEARTBEAT, 4, HEARTBEAT_V4)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, b"\xff\xff\xff\xff"),  # null where v0 has none
        (0, b"\xff\xff\xff\xfe"),
        (1, b"\xff\xff\xff\xfe"),  # v1 has null, and that is -1 only
        (9, b"\2\0\0\1\0\0\0"),  # a topic's name is null
    ],
)
def test_null_is_refused_where_the_version_has_none(version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequest, match=r"array of -\d|length of -1"):
        messages.decode_request(api_keys.METADATA, version, body)


def test_null_for_an_array_that_has_none_is_refused_in_flexible_versions() -> None:
    good = b"\1\0\0\0\1\0\0"  # CreateTopics v5: no topics, a time-out, no validation
    assert messages.decode_request(api_keys.CREATE_TOPICS, 5, good).topics == []
    with pytest.raises(MalformedRequest, match="array of -1"):
        messages.decode_request(api_keys.CREATE_TOPICS, 5, b"\0" + good[1:])


def test_unknown_tags_are_skipped() -> None:
    body = HEARTBEAT_V4[:-1] + b"\2\5\2ab\x81\1\0"
    decoded = messages.decode_request(api_keys.HEARTBEAT, 4, body)
    assert decoded == messages.decode_request(api_keys.HEARTBEAT, 4, HEARTBEAT_V4)


def test_a_known_tag_must_have_the_length_that_it_declares() -> None:
    good = bytes.fromhex("00 00  01 00 00 00 00  01 01 08 00 00 00 00 00 00 00 07")
    decoded = messages.decode_response(api_keys.API_VERSIONS, 3, good)
    assert decoded.finalized_features_epoch == 7
    for size in (7, 9):
        bad = good.replace(b"\1\1\x08", bytes((1, 1, size))) + bytes(max(size - 8, 0))
        with pytest.raises(MalformedRequest):
            messages.decode_response(api_keys.API_VERSIONS, 3, bad)


def many_topics(count: int) -> bytes:
    """A Metadata v1 request of `count` empty topic names."""
    return count.to_bytes(4, "big") + bytes(2 * count)


def test_a_request_may_hold_so_many_objects_and_no_more() -> None:
    decoded = messages.decode_request(api_keys.METADATA, 1, many_topics(REQUEST_OBJECTS_MAX))
    assert len(decoded.topics) == REQUEST_OBJECTS_MAX
    with pytest.raises(MalformedRequest, match="more objects"):
        messages.decode_request(api_keys.METADATA, 1, many_topics(REQUEST_OBJECTS_MAX + 1))


def test_tagged_fields_and_numbers_are_in_the_same_budget() -> None:
    count = REQUEST_OBJECTS_MAX + 1
    varint = bytes((count & 127 | 128, count >> 7 & 127 | 128, count >> 14))
    with pytest.raises(MalformedRequest, match="tagged fields"):
        messages.decode_request(
            api_keys.HEARTBEAT, 4, HEARTBEAT_V4[:-1] + varint + b"\x63\0" * count
        )
    numbers = 8 * count
    body = (
        b"\0\0\0\1\0\1t"  # ElectLeaders v0: one topic with its partitions, a time-out
        + numbers.to_bytes(4, "big")
        + bytes(4 * numbers + 4)
    )
    with pytest.raises(MalformedRequest, match="more objects"):
        messages.decode_request(api_keys.ELECT_LEADERS, 0, body)


def test_tagged_fields_of_several_structs_add_up() -> None:
    def metadata_v9(tags: int) -> bytes:
        varint = bytes((tags & 127 | 128, tags >> 7 & 127 | 128, tags >> 14))
        topic = b"\2t" + varint + b"\x63\0" * tags
        return b"\3" + topic + topic + b"\1\0\0\0"

    messages.decode_request(api_keys.METADATA, 9, metadata_v9(REQUEST_OBJECTS_MAX // 2 - 10))
    with pytest.raises(MalformedRequest, match="tagged fields"):
        messages.decode_request(api_keys.METADATA, 9, metadata_v9(REQUEST_OBJECTS_MAX // 2))


def test_a_response_may_be_as_long_as_its_bytes() -> None:
    names = [{"name": "t", "partitions": []}] * (REQUEST_OBJECTS_MAX + 1)
    fields = {"topics": names}
    body = messages.encode_response(api_keys.OFFSET_COMMIT, 3, fields)
    decoded = messages.decode_response(api_keys.OFFSET_COMMIT, 3, body)
    assert len(decoded.topics) == REQUEST_OBJECTS_MAX + 1


def test_a_message_says_what_it_is() -> None:
    decoded = messages.decode_request(api_keys.HEARTBEAT, 4, HEARTBEAT_V4)
    assert repr(decoded) == (
        "HeartbeatRequest(group_id='g', generation_id=1, member_id='m', group_instance_id=None)"
    )
    assert decoded != messages.decode_request(
        api_keys.HEARTBEAT, 4, HEARTBEAT_V4.replace(b"g", b"h")
    )
    assert decoded != HEARTBEAT_V4
