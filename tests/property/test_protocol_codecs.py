"""Goal: for any bytes, and for any values, not only for those that someone thought of.
Method: hypothesis makes up bodies, headers, and produce and fetch messages; what we write we read
again, what is noise is a message or MalformedRequest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import MalformedRequest
from ottla.protocol import api_keys, headers, messages, primitives
from ottla.protocol.fetch import FetchedPartition, fetch_response_parts, read_fetch_request
from ottla.protocol.produce import pack_produce_response, read_produce_request

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(max_size=40)
uuids = st.builds(lambda value: uuid.UUID(int=value), st.integers(1, (1 << 128) - 1))

KEYS = sorted(set(api_keys.FIRST_FLEXIBLE_VERSION))


@st.composite
def keys_and_versions(draw: st.DrawFn) -> tuple[int, int]:
    api_key = draw(st.sampled_from(KEYS))
    low, high = messages.supported_versions(api_key)
    return api_key, draw(st.integers(low, high))


# Small numbers make noise that gets further: they are counts and lengths that fit.
noise = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 255]), max_size=200).map(bytes),
)


def taken(read: Callable[..., Any], *arguments: Any) -> Any:
    """What was read, or None if it was refused in the one way that is allowed."""
    try:
        return read(*arguments)
    except MalformedRequest:
        return None


@given(keys_and_versions(), noise)
def test_noise_is_a_request_or_malformed(key: tuple[int, int], body: bytes) -> None:
    api_key, version = key
    decoded = taken(messages.decode_request, api_key, version, body)
    if decoded is not None:
        # By their bytes, because a float that is no number is not equal to itself.
        encoded = messages.encode_request(api_key, version, decoded)
        again = messages.decode_request(api_key, version, encoded)
        assert messages.encode_request(api_key, version, again) == encoded


@given(keys_and_versions(), noise)
def test_noise_is_a_response_or_malformed(key: tuple[int, int], body: bytes) -> None:
    api_key, version = key
    decoded = taken(messages.decode_response, api_key, version, body)
    if decoded is not None:
        # By their bytes, because a float that is no number is not equal to itself.
        encoded = messages.encode_response(api_key, version, decoded)
        again = messages.decode_response(api_key, version, encoded)
        assert messages.encode_response(api_key, version, again) == encoded


@given(st.integers(3, 13), noise)
def test_both_readers_of_a_produce_request_agree(version: int, body: bytes) -> None:
    generic = taken(messages.decode_request, api_keys.PRODUCE, version, body)
    hand = taken(read_produce_request, version, memoryview(body))
    assert (generic is None) == (hand is None)
    if generic is not None and hand is not None:
        assert (generic.acks, generic.timeout_ms) == (hand.acks, hand.timeout_ms)
        assert [
            [(one.index, one.records) for one in topic.partition_data]
            for topic in generic.topic_data
        ] == [partitions for _, _, partitions in hand.topics]


@given(st.integers(4, 18), noise)
def test_both_readers_of_a_fetch_request_agree(version: int, body: bytes) -> None:
    generic = taken(messages.decode_request, api_keys.FETCH, version, body)
    hand = taken(read_fetch_request, version, memoryview(body))
    assert (generic is None) == (hand is None)
    if generic is not None and hand is not None:
        assert (generic.max_wait_ms, generic.rack_id) == (hand.max_wait_ms, hand.rack_id)
        assert [
            [(one.partition, one.fetch_offset) for one in topic.partitions]
            for topic in generic.topics
        ] == [[(one.partition, one.fetch_offset) for one in row] for _, _, row in hand.topics]


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=3))
def test_varints_round_trip(value: int, rest: bytes) -> None:
    encoded = primitives.uvarint(value)
    assert primitives.read_uvarint(encoded + rest, 0) == (value, len(encoded))


@given(int16, int16, int32, st.none() | text, st.binary(max_size=8))
def test_request_headers_round_trip(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> None:
    header = headers.request_header(api_key, version, correlation_id, client_id)
    read = headers.read_request_header(memoryview(header + body))
    assert (read.api_key, read.api_version) == (api_key, version)
    assert (read.correlation_id, read.client_id) == (correlation_id, client_id)
    assert read.body_position == len(header)


@given(st.binary(max_size=60))
def test_noise_is_a_header_or_malformed(frame: bytes) -> None:
    header = taken(headers.read_request_header, memoryview(frame))
    assert header is None or 10 <= header.body_position <= len(frame)


pairs = st.tuples(int32, int32)
produced = st.tuples(
    int32,
    int16,
    int64,
    int64,
    int64,
    st.lists(st.tuples(int32, st.none() | text), max_size=2),
    st.none() | text,
    st.none() | pairs,
)
endpoints = st.lists(st.tuples(int32, text, int32, st.none() | text), max_size=2)


@given(
    st.integers(3, 13),
    st.lists(st.tuples(text, uuids, st.lists(produced, max_size=2)), max_size=2),
    int32,
    endpoints,
)
def test_produce_responses_are_those_of_the_generic_codec(
    version: int, topics: list[Any], throttle_time_ms: int, nodes: list[Any]
) -> None:
    packed = pack_produce_response(version, topics, throttle_time_ms, nodes)
    decoded = messages.decode_response(api_keys.PRODUCE, version, packed)
    assert messages.encode_response(api_keys.PRODUCE, version, decoded) == packed
    assert [len(topic.partition_responses) for topic in decoded.responses] == [
        len(partitions) for _, _, partitions in topics
    ]


class Records:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)


fetched = st.builds(
    FetchedPartition,
    int32,
    int16,
    int64,
    int64,
    int64,
    st.none() | st.lists(st.tuples(int64, int64), max_size=2),
    int32,
    st.none() | st.binary(max_size=300).map(Records),
    st.none() | st.tuples(int32, int64),
    st.none() | pairs,
    st.none() | st.tuples(int64, int32),
)


@given(
    st.integers(4, 18),
    int32,
    int16,
    int32,
    st.lists(st.tuples(text, uuids, st.lists(fetched, max_size=3)), max_size=2),
    endpoints,
)
def test_fetch_responses_are_those_of_the_generic_codec(
    version: int,
    throttle_time_ms: int,
    error_code: int,
    session_id: int,
    topics: list[Any],
    nodes: list[Any],
) -> None:
    parts, size = fetch_response_parts(
        version, throttle_time_ms, error_code, session_id, topics, nodes
    )
    body = b"".join(part.content if isinstance(part, Records) else part for part in parts)
    assert size == len(body)
    decoded = messages.decode_response(api_keys.FETCH, version, body)
    assert messages.encode_response(api_keys.FETCH, version, decoded) == body
    contents = [
        b"" if one.records is None else one.records.content for _, _, row in topics for one in row
    ]
    assert [one.records for topic in decoded.responses for one in topic.partitions] == contents
