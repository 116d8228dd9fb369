"""Drives a core on an asyncio event loop (the standard one or uvloop).

Owns the transports and one timer. Everything runs on the loop's thread, so there is no lock; a
caller enters, changes something and leaves without awaiting in between.

Always holds: after `close` there is neither transport, timer nor task.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from ottla.client.clock import monotonic_ms
from ottla.client.connection import CLOSED, Connection
from ottla.client.core import Core
from ottla.client.errors import ClosedError
from ottla.client.pending import Cancelled, Pending, heard
from ottla.client.tls import tls_context, tls_error

T = TypeVar("T")
logger = logging.getLogger("ottla.client")


class AioShell:
    def __init__(self, core: Core) -> None:
        self.core = core
        self._loop = asyncio.get_running_loop()
        self._tls = tls_context(core.settings)
        self._timer: asyncio.Handle | None = None
        self._timer_ms = 0.0
        self._opening: set[asyncio.Task[None]] = set()
        self._closing: list[asyncio.Future[None]] = []

    # ------------------------------------------------------------------------------- callers

    def enter(self) -> None:
        self.core.now_ms = monotonic_ms()

    def leave(self) -> None:
        self.core.end_turn()
        self.carry_out()

    def turn(self) -> None:
        """After a change that no event of the shell brought."""
        self.core.now_ms = monotonic_ms()
        self.core.end_turn()
        self.carry_out()

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a flow to its end; a cancelled caller cancels it."""
        if self.core.closed:
            coroutine.close()
            raise ClosedError("the client is closed")
        self.enter()
        flow = self.core.spawn(coroutine)
        flow.when_done(heard)
        self.leave()
        try:
            return await self.wait(flow)
        finally:
            if not flow.done:
                self.enter()
                flow.cancel()
                self.leave()

    async def wait(self, pending: Pending[T]) -> T:
        if not pending.done:
            future: asyncio.Future[None] = self._loop.create_future()

            def settle(_: object) -> None:
                if not future.done():
                    future.set_result(None)

            pending.when_done(settle)
            await future
        try:
            return pending.result()
        except Cancelled as cancelled:
            raise ClosedError("the client was closed meanwhile") from cancelled

    def later(self, callback: Callable[[], None]) -> None:
        """Called on the loop, in this order, when the present turn is over."""
        self._loop.call_soon(_run_callback, callback)

    async def close(self) -> None:
        self.core.close()
        self.carry_out()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        opening = list(self._opening)
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        await asyncio.gather(*self._closing)

    # ------------------------------------------------------------------------------- effects

    def carry_out(self) -> None:
        nodes = self.core.nodes
        while nodes.opening or nodes.writable or nodes.closing:
            opening, nodes.opening = nodes.opening, []
            for connection in opening:
                task = self._loop.create_task(self._open(connection))
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)
            writable, nodes.writable = nodes.writable, []
            for connection in writable:
                link: _Link | None = connection.transport
                if link is not None:
                    link.write(connection.take_outgoing())
            closing, nodes.closing = nodes.closing, []
            for connection in closing:
                self._drop(connection)
        self._set_timer()

    def _drop(self, connection: Connection) -> None:
        link: _Link | None = connection.transport
        if link is not None:
            connection.transport = None
            self._closing.append(link.closed)
            link.closed.add_done_callback(self._closing.remove)
            link.transport.abort()

    def _set_timer(self) -> None:
        deadline_ms = None if self.core.closed else self.core.next_deadline_ms()
        if deadline_ms is None:
            return
        if self._timer is not None:
            # One that fires earlier finds nothing due and sets itself anew.
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_s = max(0.0, deadline_ms - monotonic_ms()) / 1000.0
        self._timer = self._loop.call_later(delay_s, self._on_time)
        self._timer_ms = deadline_ms

    def _on_time(self) -> None:
        self._timer = None
        now_ms = monotonic_ms()
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms + 0.5:
            self.core.on_time(max(now_ms, deadline_ms))
        self.carry_out()

    async def _open(self, connection: Connection) -> None:
        try:
            await self._loop.create_connection(
                lambda: _Link(self, connection), connection.host, connection.port, ssl=self._tls
            )
        except ssl.SSLEOFError as error:
            self.core.on_lost(connection, str(error), monotonic_ms())
            self.carry_out()
        except ssl.SSLError as error:
            self.core.on_lost(connection, tls_error(error), monotonic_ms())
            self.carry_out()
        except (OSError, UnicodeError) as error:  # the latter: "a..b" is no name at all
            self.core.on_lost(connection, str(error), monotonic_ms())
            self.carry_out()


def _run_callback(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("a callback of the application failed")


class _Link(asyncio.BufferedProtocol):
    """A connection's transport; reads straight into the memory of the frame that comes."""

    transport: asyncio.Transport

    def __init__(self, shell: AioShell, connection: Connection) -> None:
        self._shell = shell
        self._connection = connection
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one, but not by class
        if self._connection.state == CLOSED:  # timed out while it was opening
            self.transport.abort()
            return
        self._connection.transport = self
        self._shell.core.on_open(self._connection, monotonic_ms())
        self._shell.carry_out()

    def write(self, buffers: list[Any]) -> None:
        self.transport.writelines(buffers)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._connection.state == CLOSED:
            return
        self._shell.core.on_received(self._connection, nbytes, monotonic_ms())
        self._shell.carry_out()

    def pause_writing(self) -> None:
        self._connection.is_congested = True

    def resume_writing(self) -> None:
        self._connection.is_congested = False
        self._shell.core.end_turn()
        self._shell.carry_out()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        if self._connection.state != CLOSED:
            self._connection.transport = None
            reason = str(error) if error is not None else "the broker closed it"
            self._shell.core.on_lost(self._connection, reason, monotonic_ms())
            self._shell.carry_out()
