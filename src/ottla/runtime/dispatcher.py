"""From a frame to its answer: header, version check, decoding, handler, encoding.

The one place that knows both the wire and the handlers. A request that is no request raises
MalformedRequest, and the connection closes it; what a handler refuses is in its answer.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any, Protocol

from ottla.base.deferred import Deferred
from ottla.base.errors import MalformedRequest
from ottla.base.limits import RESPONSE_BYTES_MAX
from ottla.handlers import registry
from ottla.handlers.context import Context, Route, Services
from ottla.handlers.produce_route import ProduceRoute
from ottla.handlers.reply import (
    CloseConnection,
    OrderedDeferred,
    ParkedDeferred,
    Part,
    Reply,
)
from ottla.protocol import api_keys
from ottla.protocol.headers import RequestHeader, read_request_header, response_header
from ottla.protocol.messages import decode_request, encode_response
from ottla.runtime.request_stats import ApiStats, RequestStats

SIZE = struct.Struct(">i")
FIXED_HEADER = struct.Struct(">hhih").unpack_from
FIXED_HEADER_SIZE = 10
LAST_RAW_KEY = max(registry.RAW_BODY_KEYS)
Answer = bytes | list[Part] | None


class Peer(Protocol):
    """What the dispatcher wants to know of a connection."""

    listener_name: str
    connection_id: int
    client_address: str
    last_context: Context | None


class Dispatcher:
    def __init__(self, services: Services, stats: RequestStats) -> None:
        self._services = services
        self._stats = stats

    def dispatch(self, peer: Peer, frame: memoryview) -> Answer | Deferred[Answer]:
        started_ns = time.perf_counter_ns()
        context = peer.last_context
        if context is not None and context.route is not None:
            request = _routed(context, context.route, frame)
            answer = None if request is None else context.route.answer(context, *request)
            if answer is not None:
                self._stats.bytes_in += len(frame) + SIZE.size
                stats = self._stats.of(context.route.api_key)
                if isinstance(answer, Deferred):
                    answer.when_done(lambda done: self._on_routed(done, stats, started_ns))
                    return answer
                self._stats.bytes_out += len(answer) if type(answer) is bytes else _size_of(answer)
                stats.observe(time.perf_counter_ns() - started_ns)
                return answer
        header = read_request_header(frame)
        key, version = header.api_key, header.api_version
        self._stats.bytes_in += len(frame) + SIZE.size
        if not registry.is_served(key, version):
            return self._unserved(key, version, header.correlation_id)
        context = self._context(peer, header)
        body = frame[header.body_position :]
        handler = registry.handler_of(key)
        try:
            if key > LAST_RAW_KEY:
                outcome = handler(context, decode_request(key, version, body))
            else:
                outcome = handler(context, body)
        except MalformedRequest as refused:
            name = f"{api_keys.name_of(key)} v{version}"
            raise MalformedRequest(f"{name}: {refused}") from refused
        prefix = response_header(key, version, header.correlation_id)
        stats = self._stats.of(key)
        if isinstance(outcome, Deferred):
            return self._later(outcome, key, version, prefix, stats, started_ns)
        parts = self._answer(outcome, key, version, prefix)
        stats.observe(time.perf_counter_ns() - started_ns)
        return parts

    def dispatch_run(self, peer: Peer, frames: list[memoryview]) -> list[bytes]:
        """The answers of the first of these requests, as many as can be handled together."""
        started_ns = time.perf_counter_ns()
        context = peer.last_context
        route = None if context is None else context.route
        if context is None or not isinstance(route, ProduceRoute):
            return []
        requests = []
        for frame in frames:
            request = _routed(context, route, frame)
            if request is None:
                break
            requests.append(request)
        answers = route.answer_run(context, requests)
        if answers:
            count = len(answers)
            self._stats.bytes_in += sum(map(len, frames[:count])) + SIZE.size * count
            self._stats.bytes_out += sum(map(len, answers))
            elapsed_ns = time.perf_counter_ns() - started_ns
            self._stats.of(route.api_key).observe_run(elapsed_ns, count)
        return answers

    def _on_routed(
        self, done: Deferred[bytes | list[Part]], stats: ApiStats, started_ns: int
    ) -> None:
        self._stats.bytes_out += _size_of(done.result())
        stats.observe(time.perf_counter_ns() - started_ns)

    def _context(self, peer: Peer, header: RequestHeader) -> Context:
        """Made once for a run of requests alike, which is what a busy connection sends."""
        context = peer.last_context
        if (
            context is None
            or context.api_version != header.api_version
            or context.client_id != header.client_id
        ):
            context = peer.last_context = Context(
                self._services,
                header.api_version,
                header.client_id,
                peer.listener_name,
                peer.connection_id,
                peer.client_address,
            )
        return context

    def _later(
        self,
        outcome: Deferred[Any],
        key: int,
        version: int,
        prefix: bytes,
        stats: ApiStats,
        started_ns: int,
    ) -> Deferred[Answer]:
        answer = _of_the_same_kind(outcome)

        def finished(done: Deferred[Any]) -> None:
            try:
                parts = self._answer(done.result(), key, version, prefix)
            except Exception as error:  # the connection logs it and closes
                answer.fail(error)
                return
            stats.observe(time.perf_counter_ns() - started_ns)
            answer.resolve(parts)

        outcome.when_done(finished)
        return answer

    def _answer(
        self, outcome: Reply | Mapping[str, Any] | None, key: int, version: int, prefix: bytes
    ) -> Answer:
        if outcome is None:
            return None
        if isinstance(outcome, Reply):
            parts = outcome.parts
            size = len(prefix) + outcome.size
            start = SIZE.pack(size) + prefix
            self._stats.bytes_out += size + SIZE.size
            first = parts[0]
            if isinstance(first, bytes):
                parts[0] = start + first
                return parts
            return [start, *parts]
        body = encode_response(key, version, outcome)
        if len(body) > RESPONSE_BYTES_MAX:
            name = f"{api_keys.name_of(key)} v{version}"
            raise CloseConnection(f"{name}: it asked for an answer of {len(body):,} bytes")
        self._stats.bytes_out += len(prefix) + len(body) + SIZE.size
        return SIZE.pack(len(prefix) + len(body)) + prefix + body

    def _unserved(self, key: int, version: int, correlation_id: int) -> Answer:
        """Too new an ApiVersions is answered in the oldest form; anything else closes."""
        if key != api_keys.API_VERSIONS:
            raise MalformedRequest(f"API key {key} version {version} is not served")
        from ottla.handlers.api_18_api_versions import unsupported_version_response

        body = encode_response(key, 0, unsupported_version_response())
        prefix = response_header(key, 0, correlation_id)
        return SIZE.pack(len(prefix) + len(body)) + prefix + body


def _size_of(answer: bytes | list[Part]) -> int:
    if isinstance(answer, bytes):
        return len(answer)
    return sum([len(part) if isinstance(part, bytes) else part.size for part in answer])


def _routed(context: Context, route: Route, frame: memoryview) -> tuple[memoryview, int] | None:
    """Body and correlation id of a request that may fit the connection's route."""
    if len(frame) < FIXED_HEADER_SIZE:
        return None
    key, version, correlation_id, client_id_size = FIXED_HEADER(frame)
    if key != route.api_key or version != context.api_version or client_id_size < 0:
        return None
    body = frame[FIXED_HEADER_SIZE + client_id_size :]
    # Behind the client id: a zero, since nobody sends tags here.
    if not body or body[0]:
        return None
    return body[1:], correlation_id


def _of_the_same_kind(outcome: Deferred[Any]) -> Deferred[Any]:
    if isinstance(outcome, OrderedDeferred):
        return OrderedDeferred()
    if isinstance(outcome, ParkedDeferred):
        return ParkedDeferred(outcome.abandon)
    return Deferred()
