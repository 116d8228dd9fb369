"""Goal: headers are read and written as kio's header schemas say, and nothing odd gets through.
Method: kio's headers of every version of every API, then each refusal.
"""

from __future__ import annotations

from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from ottla.base.errors import MalformedRequest
from ottla.protocol import api_keys
from ottla.protocol.headers import (
    read_request_header,
    read_response_header,
    request_header,
    response_header,
)
from tests.unit.protocol.kio_messages import written

KEYS_AND_VERSIONS = [
    (key, version) for key, name in api_key_map.items() for version in schema_name_map[name]
]


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ż" * 100])
def test_request_headers_are_kios(client_id: str | None) -> None:
    for api_key, version in KEYS_AND_VERSIONS:
        schema: Any = load_request_schema(api_key, version).__header_schema__
        header = written(
            schema(
                request_api_key=api_key,
                request_api_version=version,
                correlation_id=-7,
                client_id=client_id,
            )
        )
        assert request_header(api_key, version, -7, client_id) == header
        read = read_request_header(memoryview(header + b"body"))
        assert (read.api_key, read.api_version, read.correlation_id, read.client_id) == (
            api_key,
            version,
            -7,
            client_id,
        )
        assert read.body_position == len(header)


def test_response_headers_are_kios() -> None:
    for api_key, version in KEYS_AND_VERSIONS:
        schema: Any = load_response_schema(api_key, version).__header_schema__
        header = written(schema(correlation_id=123456))
        assert response_header(api_key, version, 123456) == header
        assert read_response_header(api_key, version, memoryview(header + b"x")) == (
            123456,
            len(header),
        )


def test_api_versions_is_answered_with_header_v0_in_any_version() -> None:
    for version in (0, 3, 4, 99):
        assert response_header(api_keys.API_VERSIONS, version, 1) == b"\0\0\0\1"


def test_a_version_of_the_future_is_taken_for_flexible_and_an_unknown_key_is_not() -> None:
    frame = memoryview(b"\0\x12\0\x63\0\0\0\1\xff\xff\0")
    assert read_request_header(frame).body_position == 11
    frame = memoryview(b"\x7f\xff\0\x63\0\0\0\1\xff\xff\0")
    assert read_request_header(frame).body_position == 10


FIXED = b"\0\3\0\x0c\0\0\0\1"  # Metadata v12


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = memoryview(FIXED + b"\0\1a\2\0\0\5\3abc" + b"body")
    header = read_request_header(frame)
    assert bytes(frame[header.body_position :]) == b"body"


def test_a_client_id_that_is_no_utf8_is_taken_as_kafka_does() -> None:
    header = read_request_header(memoryview(FIXED + b"\0\6M\xfcller\0" + b"body"))
    assert header.client_id == "M\ufffdller"
    assert header.body_position == len(FIXED) + 9


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        FIXED,
        FIXED + b"\xff\xfe\0",  # a length of -2
        FIXED + b"\x80\0\0",
        FIXED + b"\0\5abc\0",  # longer than the frame
        FIXED + b"\x7f\xff\0",
        FIXED + b"\0\1a",  # no tagged section
        FIXED + b"\0\1a\1",
        FIXED + b"\0\1a\1\0\5ab",
        FIXED + b"\0\1a\x21" + b"\0\0" * 33,  # more tags than any client sends
        FIXED + b"\0\1a\xff\xff\xff\xff\x07",
    ],
)
def test_what_is_no_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_request_header(memoryview(frame))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1"])
def test_what_is_no_response_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_response_header(api_keys.METADATA, 12, memoryview(frame))


def test_a_header_shows_itself_without_its_frame() -> None:
    header = read_request_header(memoryview(FIXED + b"\0\1a\0"))
    assert repr(header) == (
        "RequestHeader(api_key=3, api_version=12, correlation_id=1, client_id='a')"
    )
