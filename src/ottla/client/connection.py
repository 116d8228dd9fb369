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
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.base.errors import MalformedRequest, OttlaError, check
from ottla.base.ports import Buffer
from ottla.client.api_versions import BrokerVersions, versions_of
from ottla.client.errors import ClientError, MalformedAnswerError, error_for
from ottla.client.frames import FrameReader
from ottla.protocol import api_keys, messages
from ottla.protocol.api_keys import FIRST_FLEXIBLE_VERSION, NEVER_FLEXIBLE
from ottla.protocol.error_codes import NONE, UNSUPPORTED_VERSION
from ottla.protocol.headers import read_response_header, request_header

if TYPE_CHECKING:
    from ottla.client.sasl import Conversation

OPENING = "opening"
INTRODUCING = "introducing"
READY = "ready"
CLOSED = "closed"

ConnectionKey = tuple[int, str]
"""(node id, purpose): a coordinator gets a connection of its own, since fetches wait on others."""

Encoder = Callable[[int], Sequence[Buffer]]
Decoder = Callable[[int, Buffer], Any]
Settle = Callable[[Any, Any, OttlaError | None], None]
"""(the request, its answer, or why there is none)"""

_CORRELATION_ID_MAX = 2**31 - 1
_API_VERSIONS_NEWEST = 4


class Request:
    """Something to ask a broker. `settle(request, answer, error)` is called once."""

    __slots__ = (
        "api_key",
        "correlation",
        "deadline_ms",
        "decode",
        "encode",
        "has_answer",
        "has_tagged_answer",
        "settle",
        "version",
        "version_max",
        "version_min",
    )

    def __init__(
        self,
        api_key: int,
        encode: Encoder,
        settle: Settle,
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
        self.correlation = b""  # its id on the wire
        self.has_tagged_answer = False

    def read_usual(self, frame: bytes | bytearray) -> bool:
        """Whether this is the answer that nearly always comes, and was taken note of: then it is
        settled with None. For requests that are too frequent for the codec."""
        return False


class Connection:
    __slots__ = (
        "_client_id",
        "_conversation",
        "_headers",
        "_next_correlation_id",
        "frames",
        "host",
        "in_flight",
        "is_congested",
        "key",
        "muted_until_ms",
        "opened_ms",
        "outgoing",
        "outgoing_bytes",
        "port",
        "setup_deadline_ms",
        "state",
        "transport",
        "used_ms",
        "versions",
        "waiting",
    )

    def __init__(
        self,
        key: ConnectionKey,
        host: str,
        port: int,
        client_id: str,
        setup_deadline_ms: float,
        conversation: Conversation | None = None,
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
        self._headers: dict[tuple[int, int], tuple[bytes, bytes, bool]] = {}
        self._next_correlation_id = 0
        self.outgoing: list[Buffer] = []
        self.outgoing_bytes = 0
        self._conversation = conversation

    # ------------------------------------------------------------------------------- out

    def send(self, request: Request) -> None:
        """Fails the request itself where the broker speaks no version that can say it."""
        if self.state != READY:
            check(self.state != CLOSED, "a request on a closed connection")
            self.waiting.append(request)
            return
        versions = self.versions
        assert versions is not None
        try:
            version = versions.choose(request.api_key, request.version_min, request.version_max)
            self._write_as(request, version)
        except OttlaError as error:
            request.settle(request, None, error)

    def take_outgoing(self) -> list[Buffer]:
        outgoing, self.outgoing = self.outgoing, []
        self.outgoing_bytes = 0
        return outgoing

    def _write_as(self, request: Request, version: int) -> None:
        request.version = version
        body = request.encode(version)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        request.correlation = correlation = correlation_id.to_bytes(4, "big")
        parts = self._headers.get((request.api_key, version))
        if parts is None:
            parts = self._header_parts(request.api_key, version)
        before, after, request.has_tagged_answer = parts
        size = len(before) + 4 + len(after) + len(body[0])
        outgoing = self.outgoing
        if len(body) > 1:
            size += sum(map(len, body[1:]))
        outgoing.append(b"".join((size.to_bytes(4, "big"), before, correlation, after, body[0])))
        if len(body) > 1:
            outgoing += body[1:]
        self.outgoing_bytes += size + 4
        if request.has_answer:
            self.in_flight.append(request)
        else:
            request.settle(request, None, None)

    def _header_parts(self, api_key: int, version: int) -> tuple[bytes, bytes, bool]:
        """What stands in a request's header before and behind its correlation id, and whether the
        header of its answer has tags."""
        header = request_header(api_key, version, 0, self._client_id)
        flexible = version >= FIRST_FLEXIBLE_VERSION.get(api_key, NEVER_FLEXIBLE)
        is_tagged = flexible and api_key != api_keys.API_VERSIONS
        parts = self._headers[api_key, version] = header[:4], header[8:], is_tagged
        return parts

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
        if self._conversation is None:
            self._become_ready()
        else:
            mechanism = {"mechanism": self._conversation.mechanism}
            self._ask(api_keys.SASL_HANDSHAKE, mechanism, self._on_mechanism)

    def _ask(self, api_key: int, fields: dict[str, Any], settle: Settle) -> None:
        """In version 1 or newer: before it, credentials would go out without a header."""
        assert self.versions is not None
        request = Request(
            api_key,
            lambda version: (messages.encode_request(api_key, version, fields),),
            settle,
            self.setup_deadline_ms,
        )
        low = 1 if api_key == api_keys.SASL_HANDSHAKE else None
        self._write_as(request, self.versions.choose(api_key, low))

    def _on_mechanism(self, request: Request, answer: Any, error: OttlaError | None) -> None:
        if error is not None:
            return  # the connection ends with it
        conversation = self._conversation
        assert conversation is not None
        if answer.error_code != NONE:
            offered = ", ".join(answer.mechanisms) or "none"
            what = f"sasl.mechanism={conversation.mechanism}; the broker offers {offered}"
            raise error_for(answer.error_code, what)
        self._authenticate(conversation.first())

    def _authenticate(self, message: bytes) -> None:
        self._ask(api_keys.SASL_AUTHENTICATE, {"auth_bytes": message}, self._on_authenticated)

    def _on_authenticated(self, request: Request, answer: Any, error: OttlaError | None) -> None:
        if error is not None:
            return
        conversation = self._conversation
        assert conversation is not None
        if answer.error_code != NONE:
            raise error_for(answer.error_code, "SASL", answer.error_message)
        message = conversation.reply(bytes(answer.auth_bytes))
        if conversation.is_done:
            self._become_ready()
        else:
            self._authenticate(message)

    def _become_ready(self) -> None:
        self.state = READY
        waiting, self.waiting = self.waiting, deque()
        for request in waiting:
            self.send(request)

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
        if frame[:4] != request.correlation:
            raise MalformedAnswerError(
                f"an answer to {frame[:4].hex()} where {request.correlation.hex()} was next"
            )
        answer = None if request.read_usual(frame) else self._decode(request, frame)
        self.in_flight.popleft()
        request.settle(request, answer, None)

    def _decode(self, request: Request, frame: bytes | bytearray) -> Any:
        view = memoryview(frame)
        try:
            if request.has_tagged_answer and len(frame) > 4 and frame[4] == 0:
                position = 5  # room for tags, and none
            else:
                _, position = read_response_header(request.api_key, request.version, view)
            if request.decode is not None:
                return request.decode(request.version, view[position:])
            return messages.decode_response(request.api_key, request.version, view[position:])
        except MalformedRequest as cause:
            raise MalformedAnswerError(str(cause)) from cause

    def on_closed(self, error: ClientError) -> None:
        """Fails everything that waits, in the order in which it was asked."""
        self.state = CLOSED
        unanswered = [*self.in_flight, *self.waiting]
        self.in_flight.clear()
        self.waiting.clear()
        self.outgoing.clear()
        for request in unanswered:
            request.settle(request, None, error)

    def next_deadline_ms(self) -> float | None:
        """When the first of the requests that wait has waited too long."""
        if self.state == READY:
            if len(self.in_flight) < 2:
                return self.in_flight[0].deadline_ms if self.in_flight else None
            return min(request.deadline_ms for request in self.in_flight)
        deadlines = [request.deadline_ms for request in self.waiting]
        return min([self.setup_deadline_ms, *deadlines])


def _decode_versions(version: int, body: Buffer) -> Any:
    """A broker that does not speak this version answers in version 0 (KIP-511)."""
    if version > 0 and len(body) >= 2 and int.from_bytes(body[:2], "big") == UNSUPPORTED_VERSION:
        return messages.decode_response(api_keys.API_VERSIONS, 0, body)
    return messages.decode_response(api_keys.API_VERSIONS, version, body)
