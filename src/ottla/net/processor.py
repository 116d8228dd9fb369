"""The processor: every connection of one event loop, their shared buffer and their bounds.

Kafka's processor thread, as one part of a single loop: it moves bytes between sockets and the
dispatcher, sweeps connections that stall or idle, and says once a minute why a peer was refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.errors import MalformedRequest
from ottla.base.limits import READ_BYTES_MAX
from ottla.base.ports import Pool, Timer, Timers
from ottla.net.connection import Answer, Connection
from ottla.net.incoming import FrameMemory, Incoming
from ottla.net.lookout import Lookout
from ottla.net.patience import Patience
from ottla.net.turn import Turn

log = logging.getLogger("ottla.net")

SWEEP_INTERVAL_MS = 5_000
COMPLAINT_INTERVAL_MS = 60_000
COMPLAINING_PEERS_MAX = 1_000

Dispatch = Callable[[Connection, memoryview], Answer | Deferred[Answer]]
DispatchRun = Callable[[Connection, list[memoryview]], list[bytes]]
"""The answers of the first of these requests, as many as can be handled together; perhaps none."""


class Processor:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        pool: Pool,
        timers: Timers,
        memory: FrameMemory,
        idle_ms_max: Callable[[], int],
        lookout: Lookout | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.loop = loop
        # Set before the first connection is taken: ports are bound before there is a dispatcher.
        self.dispatch: Dispatch = _refuse_all
        self.dispatch_run: DispatchRun = _run_nothing
        self.pool = pool
        self.memory = memory
        memory.make_room = self._make_room
        self.scratch = bytearray(READ_BYTES_MAX)
        self.call_soon = loop.call_soon
        self.lookout = lookout
        self.patience = patience
        self.turn = Turn(loop.call_soon)
        self._timers = timers
        self._idle_ms_max = idle_ms_max
        self._connections: dict[int, Connection] = {}
        self._per_address: dict[str, int] = {}
        self._opened_total = 0
        self._complaints: dict[str, int] = {}
        self._sweeping: Timer | None = None

    def now_ms(self) -> int:
        """Real time on purpose: a test that moves the broker's clock must keep its connections."""
        return time.monotonic_ns() // 1_000_000

    def open(self, connected: socket.socket, listener_name: str) -> None:
        self._opened_total += 1
        try:
            connection = Connection(self, connected, listener_name, self._opened_total)
        except OSError:
            connected.close()  # gone before it was accepted
            return
        self._connections[connection.connection_id] = connection
        address = connection.client_address
        self._per_address[address] = self._per_address.get(address, 0) + 1
        if self._sweeping is None:
            self._sweeping = self._timers.call_later(SWEEP_INTERVAL_MS, self._sweep)

    def forget(self, connection: Connection) -> None:
        if self._connections.pop(connection.connection_id, None) is None:
            return
        address = connection.client_address
        left = self._per_address[address] - 1
        if left:
            self._per_address[address] = left
        else:
            del self._per_address[address]

    def count(self) -> int:
        return len(self._connections)

    def count_of(self, address: str) -> int:
        return self._per_address.get(address, 0)

    def opened_total(self) -> int:
        return self._opened_total

    def complain(self, address: str, reason: str) -> None:
        """One line per peer per minute: a flood of nonsense must not become a flood of lines."""
        now_ms = self.now_ms()
        last_ms = self._complaints.get(address)
        if last_ms is not None and now_ms - last_ms < COMPLAINT_INTERVAL_MS:
            return
        if len(self._complaints) >= COMPLAINING_PEERS_MAX:
            self._complaints.clear()
        self._complaints[address] = now_ms
        log.warning("closed a connection of %s: %s", address, json.dumps(reason))

    def _make_room(self, asking: Incoming) -> bool:
        """Large requests that come piece by piece have taken all there is for them. Whose began
        first is closed: who is honest gets it sent, and who sends nothing but pieces goes."""
        holding = [one for one in self._connections.values() if one.incoming.holds_memory()]
        oldest = min(holding, key=lambda one: one.incoming.began_ms, default=None)
        if oldest is None or oldest.incoming is asking:
            return False
        self.complain(oldest.client_address, "others need the memory of its unfinished request")
        oldest.close()
        return True

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._connections.values()):
            connection.close()

    def _sweep(self) -> None:
        now_ms = self.now_ms()
        idle_ms_max = self._idle_ms_max()
        for connection in list(self._connections.values()):
            reason = connection.overdue(now_ms, idle_ms_max)
            if reason is not None:
                if reason != "idle":
                    self.complain(connection.client_address, reason)
                connection.close()
        self._sweeping = None
        if self._connections:
            self._sweeping = self._timers.call_later(SWEEP_INTERVAL_MS, self._sweep)


def _refuse_all(connection: Connection, frame: memoryview) -> Answer:
    raise MalformedRequest("nothing is served yet")


def _run_nothing(connection: Connection, frames: list[memoryview]) -> list[bytes]:
    return []
