"""Goal: whole frames out, whole answers in, a closed connection noticed.
Method: a server in this process that speaks the real message formats.
"""

from __future__ import annotations

import pytest

from bench.wire import AnswerError, Connection, address_of, advertised, frame
from ottla.protocol import api_keys, messages
from ottla.protocol.headers import read_request_header, response_header
from tests.unit.bench.servers import serving


def as_a_broker(request: bytes) -> bytes:
    header = read_request_header(memoryview(request))
    key, version = header.api_key, header.api_version
    offered = [{"api_key": 0, "min_version": 3, "max_version": 13}]
    body = messages.encode_response(key, version, {"error_code": 0, "api_keys": offered})
    return response_header(key, version, header.correlation_id) + body


def test_a_request_says_its_size_and_can_be_read_by_a_broker() -> None:
    request = frame(api_keys.LIST_GROUPS, 4, {"states_filter": ["Empty"]}, correlation_id=77)
    header = read_request_header(memoryview(request)[4:])
    assert int.from_bytes(request[:4], "big") == len(request) - 4
    assert (header.api_key, header.api_version, header.correlation_id) == (16, 4, 77)
    body = memoryview(request)[4 + header.body_position :]
    assert messages.decode_request(16, 4, body).states_filter == ["Empty"]


def test_what_a_broker_offers() -> None:
    with serving(as_a_broker) as bootstrap:
        assert advertised(bootstrap) == {0: (3, 13)}


def test_a_large_answer_comes_whole() -> None:
    large = bytes(range(256)) * 16384
    with serving(lambda _: large) as bootstrap, Connection(bootstrap) as connection:
        assert connection.exchange(frame(api_keys.LIST_GROUPS, 4, {"states_filter": []})) == large


def test_a_closed_connection_is_an_error() -> None:
    with (
        serving(lambda _: b"") as bootstrap,
        Connection(bootstrap) as connection,
        pytest.raises(AnswerError, match="closed"),
    ):
        connection.exchange(frame(api_keys.LIST_GROUPS, 4, {"states_filter": []}))


def test_addresses() -> None:
    assert address_of("127.0.0.1:9092") == ("127.0.0.1", 9092)
