"""A Kafka client of a few lines: blocking, one request at a time, whole frames.

For set-up, and for the loads whose own client must cost next to nothing on a machine of two cores.
Frames are made once and sent again and again; an answer is only taken apart where it is needed.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from bench.errors import BenchError
from ottla.protocol import messages
from ottla.protocol.api_keys import API_VERSIONS
from ottla.protocol.headers import read_response_header, request_header

CLIENT_ID = "bench"
TIMEOUT_S = 60.0
_SIZE = struct.Struct(">i")


class AnswerError(BenchError):
    """The broker answered with an error code, or closed the connection."""


def address_of(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def frame(api_key: int, version: int, fields: Mapping[str, Any], correlation_id: int = 1) -> bytes:
    """A whole request, its size in front."""
    body = request_header(api_key, version, correlation_id, CLIENT_ID)
    body += messages.encode_request(api_key, version, fields)
    return _SIZE.pack(len(body)) + body


def answer_of(api_key: int, version: int, response: bytes | bytearray) -> Any:
    view = memoryview(response)
    _, position = read_response_header(api_key, version, view)
    return messages.decode_response(api_key, version, view[position:])


class Connection:
    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection(address_of(bootstrap), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def exchange(self, request: bytes) -> bytes:
        """Sends a whole request, returns the answer without its size."""
        self.socket.sendall(request)
        return self.receive()

    def receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._take(_SIZE.size))
        return self._take(size)

    def call(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """One request and its answer taken apart; error codes inside are the caller's affair."""
        return answer_of(api_key, version, self.exchange(frame(api_key, version, fields)))

    def _take(self, size: int) -> bytes:
        got = self.socket.recv(size, socket.MSG_WAITALL)
        while len(got) < size:
            more = self.socket.recv(size - len(got), socket.MSG_WAITALL)
            if not more:
                raise AnswerError("the broker closed the connection")
            got += more
        return got


def advertised(bootstrap: str) -> dict[int, tuple[int, int]]:
    """API keys that the broker offers, each with its first and last version."""
    with Connection(bootstrap) as connection:
        answer = connection.call(
            API_VERSIONS, 3, {"client_software_name": CLIENT_ID, "client_software_version": "1"}
        )
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
