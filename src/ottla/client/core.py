"""The client's core: everything that a client knows and decides, without a socket, thread or clock.

A shell (`plain_shell`, `aio_shell`) owns sockets and time. It tells the core what happened
(`on_open`, `on_received`, `on_lost`, `on_time`), each with the time, and then carries out what the
core wants: `nodes.opening`, `nodes.writable`, `nodes.closing`, and to be called again at
`next_deadline_ms`. Producer, consumer and admin are built of `request`, flows (`spawn`) and timers.

Never does IO, and is never entered by two threads at once. Always holds: every request ends with
its answer or an error, within its time-out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine
from typing import Any, TypeVar

from ottla.base.errors import OttlaError
from ottla.client.backoff import backoff_ms
from ottla.client.cluster import Broker, Cluster
from ottla.client.connection import READY, Connection, Decoder, Encoder, Request
from ottla.client.errors import ClientError, ClosedError, NoBrokerError, TimedOutError
from ottla.client.metadata_updates import PINNED, MetadataUpdates
from ottla.client.nodes import DATA, Nodes
from ottla.client.pending import Flow, Pending, Scheduler
from ottla.client.settings import ClientSettings
from ottla.client.timers import Timers
from ottla.protocol import messages

T = TypeVar("T")


class Core:
    def __init__(
        self,
        settings: ClientSettings,
        chance: Callable[[], float],
        *,
        auto_create: bool = True,
        topic_idle_ms: float = PINNED,
    ) -> None:
        self.settings = settings
        self.chance = chance
        self.now_ms = 0.0
        self.closed = False
        self.scheduler = Scheduler()
        self.timers = Timers()
        self.cluster = Cluster()
        self.nodes = Nodes(settings, chance)
        self.nodes.on_lost = self._on_lost_connection
        self.metadata = MetadataUpdates(self, auto_create=auto_create, topic_idle_ms=topic_idle_ms)
        self.last_network_error: ClientError | None = None
        # Run at the end of every turn, when each flow waits again: a producer sends what it can.
        self.turn_ends: list[Callable[[], None]] = []
        # Run when the core is closed, however that came: whoever waits is to hear of it.
        self.on_close: list[Callable[[], None]] = []
        self._bootstrap = {
            -1 - index: Broker(-1 - index, host, port)
            for index, (host, port) in enumerate(settings.bootstrap_servers)
        }

    # --------------------------------------------------------------------- events of a shell

    def on_open(self, connection: Connection, now_ms: float) -> None:
        self.now_ms = now_ms
        self.nodes.on_open(connection, now_ms)
        self.end_turn()

    def on_received(self, connection: Connection, count: int, now_ms: float) -> None:
        self.now_ms = now_ms
        self.nodes.on_received(connection, count, now_ms)
        self.end_turn()

    def on_lost(self, connection: Connection, reason: str | ClientError, now_ms: float) -> None:
        self.now_ms = now_ms
        self.nodes.on_lost_socket(connection, reason, now_ms)
        self.end_turn()

    def on_time(self, now_ms: float) -> None:
        self.now_ms = now_ms
        self.timers.run_due(now_ms)
        self.nodes.on_time(now_ms)
        self.end_turn()

    def end_turn(self) -> None:
        """Whoever did something here lets everything go on that can."""
        ready = self.scheduler.ready
        while True:
            if ready:
                self.scheduler.run()
            for turn_end in self.turn_ends:
                turn_end()
            if not ready:
                return

    def next_deadline_ms(self) -> float | None:
        ours, theirs = self.timers.next_deadline_ms(), self.nodes.next_deadline_ms()
        if ours is None or theirs is None:
            return theirs if ours is None else ours
        return min(ours, theirs)

    # ------------------------------------------------------------------------------ requests

    def request(
        self,
        node_id: int,
        api_key: int,
        fields: Any = None,
        *,
        purpose: str = DATA,
        timeout_ms: float | None = None,
        encode: Encoder | None = None,
        decode: Decoder | None = None,
        version_min: int | None = None,
        version_max: int | None = None,
    ) -> Pending[Any]:
        """Asks one broker. `fields` is a superset of all versions, or `encode` makes the body.

        `timeout_ms` (else `request.timeout.ms`) is for brokers that hang: it costs the connection.
        For the patience of a caller there is `within`.
        """
        pending: Pending[Any] = Pending()

        def settle(request: Request, answer: Any, error: OttlaError | None) -> None:
            if error is not None:
                pending.fail(error)
                return
            throttle_ms = getattr(answer, "throttle_time_ms", 0)
            if throttle_ms > 0:
                self.mute(node_id, purpose, throttle_ms)
            pending.resolve(answer)

        patience_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        request = Request(
            api_key,
            encode or (lambda version: (messages.encode_request(api_key, version, fields),)),
            settle,
            self.now_ms + patience_ms,
            decode=decode,
            version_min=version_min,
            version_max=version_max,
        )
        try:
            connection = self.connection(node_id, purpose)
        except ClientError as error:
            pending.fail(error)
        else:
            self.nodes.send(connection, request, self.now_ms)
        return pending

    def send(self, node_id: int, request: Request, purpose: str = DATA) -> None:
        """The hot path: a request made by hand, to a node of which `is_ready` was true."""
        self.nodes.send(self.nodes.connections[node_id, purpose], request, self.now_ms)

    def is_ready(self, node_id: int, purpose: str = DATA) -> bool:
        """Whether a request would go out at once; if not, a connection is on its way."""
        if self.nodes.is_ready((node_id, purpose), self.now_ms):
            return True
        key = (node_id, purpose)
        if key not in self.nodes.connections:
            may_open_ms = self.nodes.may_open_ms(key)
            if may_open_ms > self.now_ms:
                return False
            if node_id in self.cluster.brokers:
                self.connection(node_id, purpose)
        return False

    def connection(self, node_id: int, purpose: str = DATA) -> Connection:
        if self.closed:
            raise ClosedError("the client is closed")
        broker = self.cluster.brokers.get(node_id) or self._bootstrap.get(node_id)
        if broker is None:
            raise NoBrokerError(f"the cluster has no broker {node_id} (any more)")
        return self.nodes.connection_to((node_id, purpose), broker.host, broker.port, self.now_ms)

    def least_loaded(self, rather_not: Container[int] = ()) -> int:
        """Whom to ask what anybody can answer: the idlest that is connected, else one to try; of
        those to be rather not asked only if there is nobody else."""
        best, best_load = None, None
        # A broker that starts again takes connections before the others tell of it: nobody can be
        # asked who is not in the newest metadata.
        connected = {
            node_id: connection
            for (node_id, purpose), connection in self.nodes.connections.items()
            if purpose == DATA
            and (node_id in self.cluster.brokers or node_id in self._bootstrap)
            and node_id not in rather_not
        }
        for node_id, connection in connected.items():
            if connection.state == READY:
                load = len(connection.in_flight)
                if best_load is None or load < best_load:
                    best, best_load = node_id, load
        if best is not None:
            return best
        if connected:
            return next(iter(connected))
        known = list(self.cluster.brokers)
        first = int(self.chance() * len(known))
        candidates = known[first:] + known[:first]
        if not known or self.settings.metadata_recovery_strategy == "rebootstrap":
            candidates += self._bootstrap
        return min(candidates, key=lambda one: (one in rather_not, *self._reluctance(one)))

    def _reluctance(self, node_id: int) -> tuple[float, int]:
        """Rather one that may be tried now, and of those one that has failed less often."""
        key = (node_id, DATA)
        return max(0.0, self.nodes.may_open_ms(key) - self.now_ms), self.nodes.failures(key)

    def finalized_feature(self, name: str) -> int:
        """Its level, by the newest that any connected broker has said; 0 where it is not."""
        newest = max(
            (one.versions for one in self.nodes.connections.values() if one.versions is not None),
            key=lambda versions: versions.features_epoch,
            default=None,
        )
        return 0 if newest is None else newest.features.get(name, 0)

    def rebootstrap(self) -> None:
        """Forgets the brokers it knows; the next metadata comes from the bootstrap addresses."""
        if self.settings.metadata_recovery_strategy == "rebootstrap":
            self.cluster.brokers = {}

    def mute(self, node_id: int, purpose: str, throttle_ms: float) -> None:
        """A broker that throttles this client is left alone for so long (KIP-219)."""
        connection = self.nodes.connections.get((node_id, purpose))
        if connection is not None:
            connection.muted_until_ms = self.now_ms + throttle_ms
            self.timers.call_at(connection.muted_until_ms, lambda: None)

    def connection_error(self) -> ClientError | None:
        """Why no broker can be reached; None while one is, and until an attempt has failed."""
        connections = self.nodes.connections.values()
        if any(connection.state == READY for connection in connections):
            return None
        last = self.last_network_error
        return last if isinstance(last, NoBrokerError) else None

    def _on_lost_connection(self, connection: Connection, error: ClientError) -> None:
        self.last_network_error = error
        if connection.key[0] >= 0:
            self.metadata.request_update()

    # --------------------------------------------------------------------------------- flows

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Flow[T]:
        """Runs at the end of this turn, and whenever what it awaits is there."""
        return self.scheduler.spawn(coroutine)

    async def sleep_until(self, deadline_ms: float) -> None:
        if deadline_ms <= self.now_ms:
            return
        pending: Pending[None] = Pending()
        timer = self.timers.call_at(deadline_ms, lambda: pending.resolve(None))
        try:
            await pending
        finally:
            timer.cancel()

    async def within(self, pending: Pending[T], deadline_ms: float, what: str) -> T:
        """Waits until then at most; afterwards nobody waits for it."""
        if pending.done:
            return pending.result()
        race: Pending[bool] = Pending()

        def end(settled: bool) -> None:
            if not race.done:
                race.resolve(settled)

        timer = self.timers.call_at(deadline_ms, lambda: end(False))
        pending.when_done(lambda _: end(True))
        try:
            in_time = await race
        finally:
            timer.cancel()
        if not in_time:
            raise self.timed_out(what)
        return pending.result()

    def timed_out(self, what: str) -> TimedOutError:
        last = self.last_network_error
        why = f"; the last thing that failed: {last}" if last is not None else ""
        error = TimedOutError(f"{what}: not in time{why}")
        error.__cause__ = last
        return error

    async def retry(
        self,
        attempt: Callable[[], Coroutine[Any, Any, T]],
        deadline_ms: float,
        what: str,
        *,
        first_pause_ms: float | None = None,
    ) -> T:
        """Until it works, cannot work, or the deadline; a growing pause before each new attempt."""
        failures = 0
        while True:
            flow = self.spawn(attempt())
            try:
                return await self.within(flow, deadline_ms, what)
            except ClientError as error:
                if not flow.done or not error.retriable or isinstance(error, ClosedError):
                    raise
                failures += 1
                pause_ms = backoff_ms(
                    self.settings.retry_backoff_ms if first_pause_ms is None else first_pause_ms,
                    self.settings.retry_backoff_max_ms,
                    failures,
                    self.chance(),
                )
                if self.now_ms + pause_ms >= deadline_ms:
                    raise TimedOutError(f"{what}: not in time; at last: {error}") from error
            finally:
                # Out of time or cancelled. What it has not asked yet may be wrong by the time it
                # would: the next call may have done it, and its epoch be another one.
                flow.cancel()
            await self.sleep_until(self.now_ms + pause_ms)

    def close(self) -> None:
        """Ends every flow and connection. What waits is failed with ClosedError."""
        if self.closed:
            return
        self.closed = True
        self.turn_ends.clear()
        self.scheduler.cancel_all()
        for connection in list(self.nodes.connections.values()):
            self.nodes.close(connection, ClosedError("the client was closed"))
        self.scheduler.run()
        for on_close in self.on_close:
            on_close()
