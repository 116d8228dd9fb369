"""Connections to brokers: which there are, when a new one may be tried, what has waited too long.

Owns the connections of a client, one per node and purpose, and the patience with each address:
exponential backoff between attempts, a longer set-up time-out after each failed one (KIP-601).
Makes no decision about what is asked. Effects for the shell: `opening`, `writable`, `closing`.

What always holds: a connection is in `connections` from its opening until it is closed, and every
connection that leaves has failed its requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.client.backoff import backoff_ms
from ottla.client.connection import CLOSED, OPENING, READY, Connection, ConnectionKey, Request
from ottla.client.errors import (
    ClientError,
    ConnectionLostError,
    MalformedAnswerError,
    NoBrokerError,
    TimedOutError,
)
from ottla.client.settings import ClientSettings
from ottla.protocol import api_keys

if TYPE_CHECKING:
    from ottla.client.sasl import Conversation

logger = logging.getLogger("ottla.client")

DATA = ""
COORDINATOR = "coordinator"


class _Patience:
    """How often an address has failed since it last worked, and when it may be tried again."""

    __slots__ = ("failures", "not_before_ms", "why")

    def __init__(self) -> None:
        self.failures = 0
        self.not_before_ms = 0.0
        self.why = ""


class Nodes:
    def __init__(self, settings: ClientSettings, chance: Callable[[], float]) -> None:
        self._settings = settings
        self._chance = chance
        self._patience: dict[ConnectionKey, _Patience] = {}
        self.connections: dict[ConnectionKey, Connection] = {}
        self.opening: list[Connection] = []
        self.writable: list[Connection] = []
        self.closing: list[Connection] = []
        self.on_lost: Callable[[Connection, ClientError], None] = lambda connection, error: None
        self.on_ready: Callable[[Connection], None] = lambda connection: None
        self.requests_sent = 0
        # The first deadline among requests since a shell last asked for the next one of all.
        self.earliest_sent_ms = float("inf")
        self.connections_opened = 0

    # --------------------------------------------------------------------------- questions

    def is_ready(self, key: ConnectionKey, now_ms: float) -> bool:
        connection = self.connections.get(key)
        return (
            connection is not None
            and connection.state == READY
            and connection.muted_until_ms <= now_ms
        )

    def may_open_ms(self, key: ConnectionKey) -> float:
        """From when on an attempt is allowed."""
        patience = self._patience.get(key)
        return 0.0 if patience is None else patience.not_before_ms

    def failures(self, key: ConnectionKey) -> int:
        """Since it last worked."""
        patience = self._patience.get(key)
        return 0 if patience is None else patience.failures

    def next_deadline_ms(self) -> float | None:
        deadlines = [
            deadline
            for connection in self.connections.values()
            if (deadline := connection.next_deadline_ms()) is not None
        ]
        return min(deadlines, default=None)

    # ----------------------------------------------------------------------------- actions

    def connection_to(self, key: ConnectionKey, host: str, port: int, now_ms: float) -> Connection:
        """The one there is, or a new one that opens. Raises NoBrokerError while it is too early."""
        connection = self.connections.get(key)
        if connection is not None:
            if (connection.host, connection.port) == (host, port):
                return connection
            self.close(connection, ConnectionLostError(f"{connection.host} is elsewhere now"))
        patience = self._patience.setdefault(key, _Patience())
        if now_ms < patience.not_before_ms:
            # Said again: who gives up now would not learn what was wrong.
            raise NoBrokerError(f"too early to try {host}:{port} again, since {patience.why}")
        setup_ms = backoff_ms(
            self._settings.socket_connection_setup_timeout_ms,
            self._settings.socket_connection_setup_timeout_max_ms,
            patience.failures + 1,
            0.5,
        )
        connection = Connection(
            key, host, port, self._settings.client_id, now_ms + setup_ms, self._conversation()
        )
        connection.opened_ms = connection.used_ms = now_ms
        self.connections[key] = connection
        self.opening.append(connection)
        self.connections_opened += 1
        return connection

    def _conversation(self) -> Conversation | None:
        settings = self._settings
        if not settings.security_protocol.startswith("SASL"):
            return None
        # Loaded here: hashes and their kin take milliseconds that most can do without.
        from ottla.client.sasl import conversation  # noqa: PLC0415

        username, password = settings.sasl_username, settings.sasl_password
        assert username is not None and password is not None  # `validate` saw to that
        return conversation(settings.sasl_mechanism, username, password.reveal())

    def send(self, connection: Connection, request: Request, now_ms: float) -> None:
        connection.used_ms = now_ms
        connection.send(request)
        self.requests_sent += 1
        self.earliest_sent_ms = min(self.earliest_sent_ms, request.deadline_ms)
        if connection.outgoing:
            self.writable.append(connection)

    def close(self, connection: Connection, error: ClientError) -> None:
        """Ends it; its requests fail with `error`. No reason to wait before the next attempt."""
        if connection.state == CLOSED:
            return
        del self.connections[connection.key]
        connection.on_closed(error)
        self.closing.append(connection)

    # ------------------------------------------------------------------ events of the shell

    def on_open(self, connection: Connection, now_ms: float) -> None:
        if connection.state != OPENING:
            return
        connection.on_open()
        self.writable.append(connection)

    def on_received(self, connection: Connection, count: int, now_ms: float) -> None:
        was_ready = connection.state == READY
        try:
            connection.on_received(count)
        except MalformedAnswerError as error:
            logger.warning("%s:%d answered nonsense: %s", connection.host, connection.port, error)
            self._lose(connection, error, now_ms)
            return
        except ClientError as error:
            self._lose(connection, error, now_ms)
            return
        if not was_ready and connection.state == READY:
            self._patience.pop(connection.key, None)
            self.on_ready(connection)
        if connection.outgoing:
            self.writable.append(connection)

    def on_lost_socket(
        self, connection: Connection, reason: str | ClientError, now_ms: float
    ) -> None:
        """The shell says that the socket is gone or never came to be."""
        where = f"{connection.host}:{connection.port}"
        if isinstance(reason, ClientError):
            error = reason
        elif connection.state == OPENING:
            error = NoBrokerError(f"{where} cannot be reached: {reason}")
        else:
            error = ConnectionLostError(f"the connection to {where} ended: {reason}")
        self._lose(connection, error, now_ms)

    def on_time(self, now_ms: float) -> None:
        """Ends connections whose oldest request has waited too long, and idle ones."""
        idle_ms = self._settings.connections_max_idle_ms
        for connection in list(self.connections.values()):
            deadline_ms = connection.next_deadline_ms()
            if deadline_ms is not None:
                if deadline_ms <= now_ms:
                    self._time_out(connection, now_ms)
            elif 0 <= idle_ms < now_ms - connection.used_ms:
                self.close(connection, ConnectionLostError("idle"))

    def _time_out(self, connection: Connection, now_ms: float) -> None:
        where = f"{connection.host}:{connection.port}"
        if connection.state != READY and now_ms >= connection.setup_deadline_ms:
            self._lose(connection, NoBrokerError(f"no connection to {where} in time"), now_ms)
            return
        # Requests that still wait for the connection can be failed alone. One that was written
        # cannot: its answer may still come, before those to later ones.
        late = [request for request in connection.waiting if request.deadline_ms <= now_ms]
        for request in late:
            connection.waiting.remove(request)
            request.settle(request, None, TimedOutError(f"no connection to {where} in time"))
        if any(request.deadline_ms <= now_ms for request in connection.in_flight):
            name = api_keys.name_of(connection.in_flight[0].api_key)
            self._lose(connection, TimedOutError(f"{where} did not answer {name} in time"), now_ms)

    def _lose(self, connection: Connection, error: ClientError, now_ms: float) -> None:
        if connection.state == CLOSED:
            return
        patience = self._patience.setdefault(connection.key, _Patience())
        patience.failures += 1
        patience.why = str(error)
        patience.not_before_ms = now_ms + backoff_ms(
            self._settings.reconnect_backoff_ms,
            self._settings.reconnect_backoff_max_ms,
            patience.failures,
            self._chance(),
        )
        logger.debug("lost %s:%d: %s", connection.host, connection.port, error)
        self.close(connection, error)
        self.on_lost(connection, error)
