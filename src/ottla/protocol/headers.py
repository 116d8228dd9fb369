"""Request and response headers: what is read before it is known which message follows.

A frame is what stands after the four-byte size. Header v2 adds tagged fields *after* the client id,
which keeps its two-byte length; response header v1 adds them after the correlation id. ApiVersions
is answered with response header v0 whatever its version, because a client that does not know yet
what the broker speaks must be able to read the answer (KIP-511).

Never looks at the body, and never decides whether a version is served.
"""

from __future__ import annotations

import struct

from ottla.base.errors import MalformedRequest
from ottla.protocol.api_keys import API_VERSIONS, FIRST_FLEXIBLE_VERSION, NEVER_FLEXIBLE
from ottla.protocol.primitives import MALFORMED, legacy_string, skip_tags

# No client sends any. A header is read before anyone has authenticated (CVE-2026-111115).
_HEADER_TAGS_MAX = 32

_read_fixed = struct.Struct(">hhih").unpack_from
_pack_key_version_and_correlation_id = struct.Struct(">hhi").pack
_read_correlation_id = struct.Struct(">i").unpack_from
_pack_correlation_id = struct.Struct(">i").pack
_pack_correlation_id_and_no_tags = struct.Struct(">ix").pack


class RequestHeader:
    __slots__ = ("api_key", "api_version", "body_position", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_position: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_position = body_position

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header of a frame. An unknown API key is read as if it had no tagged fields."""
    try:
        api_key, version, correlation_id, length = _read_fixed(frame)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise MalformedRequest(f"a client id of {length} bytes in a frame of {len(frame)}")
            # A label, in whatever encoding its owner's terminal has; Kafka replaces, too.
            client_id = str(frame[10:position], "utf-8", "replace")
        elif length != -1:
            raise MalformedRequest(f"a client id of {length} bytes")
        if version >= FIRST_FLEXIBLE_VERSION.get(api_key, NEVER_FLEXIBLE):
            if frame[position]:
                position, _ = skip_tags(frame, position, len(frame), _HEADER_TAGS_MAX)
            else:
                position += 1
    except MALFORMED as cause:
        raise MalformedRequest(f"no request header: {cause}") from cause
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    if api_key == API_VERSIONS or version < FIRST_FLEXIBLE_VERSION.get(api_key, NEVER_FLEXIBLE):
        return _pack_correlation_id(correlation_id)
    return _pack_correlation_id_and_no_tags(correlation_id)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """What a client puts before the body: the other side of read_request_header."""
    flexible = version >= FIRST_FLEXIBLE_VERSION.get(api_key, NEVER_FLEXIBLE)
    return (
        _pack_key_version_and_correlation_id(api_key, version, correlation_id)
        + legacy_string(client_id)
        + (b"\0" if flexible else b"")
    )


def read_response_header(api_key: int, version: int, frame: memoryview) -> tuple[int, int]:
    """The correlation id of an answer and the position of its body."""
    try:
        (correlation_id,) = _read_correlation_id(frame)
        if api_key == API_VERSIONS or version < FIRST_FLEXIBLE_VERSION.get(api_key, NEVER_FLEXIBLE):
            return correlation_id, 4
        position, _ = skip_tags(frame, 4, len(frame), _HEADER_TAGS_MAX)
    except MALFORMED as cause:
        raise MalformedRequest(f"no response header: {cause}") from cause
    return correlation_id, position
