"""One connection to a broker as a byte machine: requests in, bytes out; bytes in, answers out.

Owns the order on the wire: requests get their correlation id and version when they are written, and
answers belong to the oldest request that waits, because a broker answers in order. An answer with
another id, a size out of bounds or bytes that do not decode end the connection: after that nothing
on it can be trusted. Begins with ApiVersions (and SASL, where it is set); requests given before the
broker has introduced itself wait.

Never touches a socket and knows no clock; a shell reads `take_outgoing` and feeds `frames`.
What always holds: every request given to `send` is answered, failed or still in `in_flight` or
`waiting`, exactly one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ottla import __version__
from ottla.base.errors import MalformedRequest, OttlaError, check
from ottla.base.ports import Buffer
from ottla.client.api_versions import BrokerVersions, versions_of
from ottla.client.errors import ClientError, MalformedAnswerError, error_for
from ottla.client.frames import FrameReader
from ottla.protocol import api_keys, messages
from ottla.protocol.error_codes import NONE, UNSUPPORTED_VERSION
from ottla.protocol.headers import read_response_header, request_header

OPENING = "opening"
INTRODUCING = "introducing"
READY = "ready"
CLOSED = "closed"

ConnectionKey = tuple[int, str]
"""(node id, purpose): a coordinator gets a connection of its own, since fetches wait on others."""

Encoder = Callable[[int], Sequence[Buffer]]
Decoder = Callable[[int, Buffer], Any]

_CORRELATION_ID_MAX = 2**31 - 1
_API_VERSIONS_NEWEST = 4


class Request:
    """Something to ask a broker. `settle(request, answer, error)` is called once."""

    __slots__ = (
        "api_key",
        "correlation_id",
        "deadline_ms",
        "decode",
        "encode",
        "has_answer",
        "settle",
        "version",
        "version_max",
        "version_min",
    )

    def __init__(
        self,
        api_key: int,
        encode: Encoder,
        settle: Callable[[Request, Any, OttlaError | None], None],
        deadline_ms: float,
        *,
        decode: Decoder | None = None,
        version_min: int | None = None,
        version_max: int | None = None,
        has_answer: bool = True,
    ) -> None:
        self.api_key = api_key
        self.encode = encode
        self.decode = decode
        self.settle = settle
        self.deadline_ms = deadline_ms
        self.version_min = version_min
        self.version_max = version_max
        self.has_answer = has_answer
        self.version = -1
        self.correlation_id = -1


class Connection:
    __slots__ = (
        "_authentication",
        "_client_id",
        "_next_correlation_id",
        "_outgoing",
        "frames",
        "host",
        "in_flight",
        "is_congested",
        "key",
        "muted_until_ms",
        "opened_ms",
        "port",
        "setup_deadline_ms",
        "state",
        "transport",
        "used_ms",
        "versions",
        "waiting",
    )

    def __init__(
        self, key: ConnectionKey, host: str, port: int, client_id: str, setup_deadline_ms: float
    ) -> None:
        self.key = key
        self.host = host
        self.port = port
        self.state = OPENING
        self.setup_deadline_ms = setup_deadline_ms
        self.frames = FrameReader()
        self.versions: BrokerVersions | None = None
        self.in_flight: deque[Request] = deque()
        self.waiting: deque[Request] = deque()
        self.muted_until_ms = 0.0  # a broker that throttles is given time (KIP-219)
        self.is_congested = False  # the shell has bytes that the socket does not take yet
        self.used_ms = 0.0
        self.opened_ms = 0.0
        self.transport: Any = None  # the shell's own
        self._client_id = client_id
        self._next_correlation_id = 0
        self._outgoing: list[Buffer] = []
        self._authentication: Any = None

    # ------------------------------------------------------------------------------- out

    def send(self, request: Request) -> None:
        check(self.state != CLOSED, "a request on a closed connection")
        if self.state == READY:
            self._write(request)
        else:
            self.waiting.append(request)

    def take_outgoing(self) -> list[Buffer]:
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    def _write(self, request: Request) -> None:
        """Fails the request itself where the broker speaks no version that can say it."""
        check(self.versions is not None, "versions are known when requests are written")
        try:
            version = self.versions.choose(  # type: ignore[union-attr]
                request.api_key, request.version_min, request.version_max
            )
            self._write_as(request, version)
        except OttlaError as error:
            request.settle(request, None, error)

    def _write_as(self, request: Request, version: int) -> None:
        request.version = version
        body = request.encode(version)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        request.correlation_id = correlation_id
        header = request_header(request.api_key, version, correlation_id, self._client_id)
        size = len(header) + sum(map(len, body))
        outgoing = self._outgoing
        outgoing.append(size.to_bytes(4, "big") + header)
        outgoing += body
        if request.has_answer:
            self.in_flight.append(request)
        else:
            request.settle(request, None, None)

    # -------------------------------------------------------------------------------- in

    def on_open(self) -> None:
        """The socket is connected: the broker is asked what it speaks."""
        check(self.state == OPENING, "a connection opens once")
        self.state = INTRODUCING
        self._introduce(_API_VERSIONS_NEWEST)

    def _introduce(self, version: int) -> None:
        fields = {"client_software_name": "ottla", "client_software_version": __version__}
        request = Request(
            api_keys.API_VERSIONS,
            lambda version: (messages.encode_request(api_keys.API_VERSIONS, version, fields),),
            self._on_versions,
            self.setup_deadline_ms,
            decode=_decode_versions,
        )
        self._write_as(request, version)

    def _on_versions(self, request: Request, answer: Any, error: OttlaError | None) -> None:
        if error is not None:
            return  # the connection ends with it
        if answer.error_code == UNSUPPORTED_VERSION and request.version > 0:
            own = [one.max_version for one in answer.api_keys if one.api_key == request.api_key]
            self._introduce(min(own[0] if own else 0, request.version - 1))
            return
        if answer.error_code != NONE:
            raise error_for(answer.error_code, "ApiVersions")
        self.versions = versions_of(answer)
        self._become_ready()

    def _become_ready(self) -> None:
        self.state = READY
        waiting, self.waiting = self.waiting, deque()
        for request in waiting:
            self._write(request)

    def on_received(self, count: int) -> None:
        """`count` bytes were put into `frames.buffer()`. Raises what ends the connection."""
        for frame in self.frames.received(count):
            self.on_frame(frame)
            if self.state == CLOSED:
                return

    def on_frame(self, frame: bytes | bytearray) -> None:
        if not self.in_flight:
            raise MalformedAnswerError("an answer that nobody asked for")
        request = self.in_flight[0]
        view = memoryview(frame)
        try:
            correlation_id, position = read_response_header(request.api_key, request.version, view)
            if correlation_id != request.correlation_id:
                raise MalformedAnswerError(
                    f"an answer to {correlation_id} where {request.correlation_id} was next"
                )
            if request.decode is not None:
                answer = request.decode(request.version, view[position:])
            else:
                answer = messages.decode_response(request.api_key, request.version, view[position:])
        except MalformedRequest as cause:
            raise MalformedAnswerError(str(cause)) from cause
        self.in_flight.popleft()
        request.settle(request, answer, None)

    def on_closed(self, error: ClientError) -> None:
        """Fails everything that waits, in the order in which it was asked."""
        self.state = CLOSED
        unanswered = [*self.in_flight, *self.waiting]
        self.in_flight.clear()
        self.waiting.clear()
        self._outgoing.clear()
        for request in unanswered:
            request.settle(request, None, error)

    def next_deadline_ms(self) -> float | None:
        """When the first of the requests that wait has waited too long."""
        deadlines = [request.deadline_ms for request in self.in_flight]
        deadlines += [request.deadline_ms for request in self.waiting]
        if self.state in (OPENING, INTRODUCING):
            deadlines.append(self.setup_deadline_ms)
        return min(deadlines, default=None)


def _decode_versions(version: int, body: Buffer) -> Any:
    """A broker that does not speak this version answers in version 0 (KIP-511)."""
    if version > 0 and len(body) >= 2 and int.from_bytes(body[:2], "big") == UNSUPPORTED_VERSION:
        return messages.decode_response(api_keys.API_VERSIONS, 0, body)
    return messages.decode_response(api_keys.API_VERSIONS, version, body)
