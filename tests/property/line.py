"""A connection that sends requests of one API, whatever their bytes, and decodes the answers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

from ottla.protocol.messages import decode_response
from tests.patience import SECONDS_MAX

CORRELATION_ID = 7


class Line:
    def __init__(self, port: int, api_key: int, first_flexible_version: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        self._api_key = api_key
        self._first_flexible_version = first_flexible_version

    def call(self, version: int, body: bytes) -> Any:
        self.send(version, body)
        return self.receive(version)

    def call_at_once(self, version: int, bodies: Sequence[bytes]) -> list[Any]:
        """All of them in one piece, before the first answer."""
        self.socket.sendall(b"".join(self._framed(version, body) for body in bodies))
        return [self.receive(version) for _ in bodies]

    def send(self, version: int, body: bytes) -> None:
        self.socket.sendall(self._framed(version, body))

    def _framed(self, version: int, body: bytes) -> bytes:
        flexible = b"\0" if version >= self._first_flexible_version else b""
        header = struct.pack(">hhih", self._api_key, version, CORRELATION_ID, 4) + b"test"
        frame = header + flexible + body
        return struct.pack(">i", len(frame)) + frame

    def receive(self, version: int) -> Any:
        size = struct.unpack(">i", self._exactly(4))[0]
        answer = self._exactly(size)
        assert answer[:4] == struct.pack(">i", CORRELATION_ID)
        start = 5 if version >= self._first_flexible_version else 4
        return decode_response(self._api_key, version, answer[start:])

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            assert part, "the broker closed the connection"
            received += part
        return received
