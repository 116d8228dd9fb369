"""Drives a core with sockets and one background thread, for callers that block.

Owns the sockets, the thread and the lock. The core is only ever touched with the lock held. The
thread waits for sockets and deadlines; a caller's thread may write to a socket itself, so that what
it sends needs no other thread to wake up first. Only the background thread opens connections
(looking up a name blocks) and runs users' callbacks, and it does both without the lock.

Always holds: after `close` there is neither thread nor socket.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.base.errors import InvariantError
from ottla.base.ports import Buffer
from ottla.client.clock import monotonic_ms
from ottla.client.connection import CLOSED, Connection
from ottla.client.core import Core
from ottla.client.errors import ClosedError, TimedOutError
from ottla.client.pending import Cancelled, Pending

T = TypeVar("T")
logger = logging.getLogger("ottla.client")

_BUFFERS_MAX = 512  # of one sendmsg; the kernel takes 1,024
_FOREVER_MS = float("inf")
_READ = selectors.EVENT_READ
_READ_WRITE = selectors.EVENT_READ | selectors.EVENT_WRITE


class _Link:
    """A connection's socket and the bytes that it has not taken yet."""

    __slots__ = ("addresses", "events", "is_open", "sock", "unsent")

    def __init__(self, sock: socket.socket, addresses: list[Any]) -> None:
        self.sock = sock
        self.addresses = addresses  # other addresses of the same name, to be tried
        self.is_open = False
        self.events = 0
        self.unsent: deque[memoryview] = deque()


class PlainShell:
    def __init__(self, core: Core, name: str) -> None:
        self.core = core
        self.lock = threading.Lock()
        self._name = name
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, _READ, None)
        self._sleeps_until_ms = 0.0  # 0 while the thread is awake and will look again by itself
        self._callbacks: deque[Callable[[], None]] = deque()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------- for callers' threads

    def enter(self) -> None:
        """Takes the lock and tells the core the time."""
        self.lock.acquire()
        self.core.now_ms = monotonic_ms()

    def leave(self) -> None:
        """Lets the core go on, carries out what it wants, gives the lock back."""
        try:
            self.core.end_turn()
            self.carry_out()
        finally:
            self.lock.release()

    def turn(self) -> None:
        """With the lock, after a change: the same as `leave`, but the lock stays."""
        self.core.now_ms = monotonic_ms()
        self.core.end_turn()
        self.carry_out()

    def carry_out(self) -> None:
        """With the lock: writes and closes; wakes the thread for what only it does."""
        nodes = self.core.nodes
        while nodes.writable or nodes.closing:
            self._write_and_close()
        if self._sleeps_until_ms:
            deadline_ms = self.core.next_deadline_ms()
            if (
                nodes.opening
                or self._callbacks
                or (deadline_ms is not None and deadline_ms < self._sleeps_until_ms)
            ):
                self.wake()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_ms: float | None = None) -> T:
        """Runs a flow to its end while this thread waits."""
        self.check_thread()
        self.enter()
        try:
            if self.core.closed:
                coroutine.close()
                raise ClosedError("the client is closed")
            flow = self.core.spawn(coroutine)
        finally:
            self.leave()
        try:
            return self.wait(flow, timeout_ms)
        except BaseException:
            self.enter()
            flow.cancel()
            self.leave()
            raise

    def wait(self, pending: Pending[T], timeout_ms: float | None = None) -> T:
        """The value of something that was begun with the lock held."""
        if not pending.done:
            self.check_thread()
            signal = threading.Lock()
            signal.acquire()
            with self.lock:
                pending.when_done(lambda _: signal.release())
            if not signal.acquire(timeout=-1 if timeout_ms is None else max(timeout_ms, 0) / 1e3):
                raise TimedOutError(f"nothing within {timeout_ms:g} ms")
        try:
            return pending.result()
        except Cancelled as cancelled:
            raise ClosedError("the client was closed meanwhile") from cancelled

    def later(self, callback: Callable[[], None]) -> None:
        """With the lock: lets the background thread call it, without the lock, in this order."""
        self._callbacks.append(callback)

    def wake(self) -> None:
        self._sleeps_until_ms = 0.0
        try:
            self._wake_in.send(b"\0")
        except BlockingIOError:
            return  # it is full of wake-ups already
        except OSError:
            if not self._ending:
                raise

    def check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise InvariantError(
                "a callback must not wait for the client that calls it: it would wait for itself"
            )

    def close(self) -> None:
        """Ends everything; from a callback, as soon as the callback returns."""
        with self.lock:
            self.core.close()
            self._ending = True
            self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while not self._ending:
                self._turn()
            self._run_callbacks()
        finally:
            with self.lock:
                self._release()

    def _turn(self) -> None:
        with self.lock:
            opening, self.core.nodes.opening = self.core.nodes.opening, []
        for connection in opening:
            self._open(connection)
        with self.lock:
            self.core.now_ms = monotonic_ms()
            self.carry_out()
            timeout_s = self._timeout_s()
        events = self._selector.select(timeout_s)
        with self.lock:
            self._sleeps_until_ms = 0.0
            for key, mask in events:
                self._on_event(key.data, mask)
            now_ms = monotonic_ms()
            deadline_ms = self.core.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                self.core.on_time(now_ms)
            self.carry_out()
        self._run_callbacks()

    def _timeout_s(self) -> float | None:
        if self.core.nodes.opening or self._callbacks or self._ending:
            return 0.0
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is None:
            self._sleeps_until_ms = _FOREVER_MS
            return None
        self._sleeps_until_ms = deadline_ms
        # Not a moment too early: a poll that ends before the deadline would spin until it.
        return max(0.0, deadline_ms - self.core.now_ms + 0.1) / 1000.0

    def _run_callbacks(self) -> None:
        callbacks = self._callbacks
        while callbacks:
            callback = callbacks.popleft()
            try:
                callback()
            except Exception:
                logger.exception("a callback of the application failed")

    def _on_event(self, connection: Connection | None, mask: int) -> None:
        if connection is None:
            self._drain_wake_ups()
            return
        link: _Link | None = connection.transport
        if link is None or connection.state == CLOSED:
            return  # closed by an event before this one, or by a caller
        if not link.is_open:
            self._on_connect_result(connection, link)
            return
        if mask & selectors.EVENT_WRITE:
            self._write(connection)
            self.core.end_turn()
        if mask & _READ and connection.transport is not None:
            self.read(connection)

    def _drain_wake_ups(self) -> None:
        try:
            while len(self._wake_out.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            return

    # ------------------------------------------------------------------------------- sockets

    def _open(self, connection: Connection) -> None:
        """Without the lock until the address is known."""
        try:
            addresses = socket.getaddrinfo(
                connection.host, connection.port, type=socket.SOCK_STREAM
            )
        except OSError as error:
            with self.lock:
                self.core.on_lost(connection, str(error), monotonic_ms())
            return
        with self.lock:
            self._try_next(connection, addresses, "no address")

    def _try_next(self, connection: Connection, addresses: list[Any], reason: str) -> None:
        while addresses and connection.state != CLOSED:
            family, kind, protocol, _, address = addresses.pop(0)
            try:
                sock = socket.socket(family, kind, protocol)
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._set_buffers(sock)
            except OSError as error:
                reason = str(error)
                continue
            code = sock.connect_ex(address)
            link = _Link(sock, addresses)
            connection.transport = link
            self._watch(connection, link, _READ_WRITE)
            if code == 0:
                self._on_connect_result(connection, link)
            return
        if connection.state != CLOSED:
            self.core.on_lost(connection, reason, monotonic_ms())

    def _set_buffers(self, sock: socket.socket) -> None:
        settings = self.core.settings
        if settings.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if settings.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)

    def _on_connect_result(self, connection: Connection, link: _Link) -> None:
        code = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code != 0:
            self._drop_socket(connection)
            self._try_next(connection, link.addresses, f"error {code} from connect")
            return
        link.is_open = True
        self._watch(connection, link, _READ)
        self.core.on_open(connection, monotonic_ms())

    def _watch(self, connection: Connection, link: _Link, events: int) -> None:
        if link.events == 0:
            self._selector.register(link.sock, events, connection)
        elif link.events != events:
            self._selector.modify(link.sock, events, connection)
        link.events = events

    def _write_and_close(self) -> None:
        nodes = self.core.nodes
        writable, nodes.writable = nodes.writable, []
        for connection in writable:
            self._write(connection)
        closing, nodes.closing = nodes.closing, []
        for connection in closing:
            self._drop_socket(connection)

    def _write(self, connection: Connection) -> None:
        link: _Link | None = connection.transport
        if link is None or not link.is_open:
            return
        outgoing: list[Buffer] = connection.take_outgoing()
        if outgoing and not link.unsent:
            # What goes out at once, which is nearly always all of it, is never queued.
            try:
                sent = link.sock.sendmsg(outgoing[:_BUFFERS_MAX])
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.core.on_lost(connection, str(error), monotonic_ms())
                return
            outgoing = _after(outgoing, sent)
        if outgoing or link.unsent:
            link.unsent.extend(map(memoryview, outgoing))
            self._write_queued(connection, link)

    def _write_queued(self, connection: Connection, link: _Link) -> None:
        unsent = link.unsent
        while unsent:
            try:
                sent = link.sock.send(unsent[0])
            except BlockingIOError:
                break
            except OSError as error:
                self.core.on_lost(connection, str(error), monotonic_ms())
                return
            if sent == len(unsent[0]):
                unsent.popleft()
            else:
                unsent[0] = unsent[0][sent:]
        connection.is_congested = bool(unsent)
        self._watch(connection, link, _READ_WRITE if unsent else _READ)

    def read(self, connection: Connection) -> None:
        """With the lock: takes what the socket has and gives it to the core."""
        link: _Link = connection.transport
        try:
            count = link.sock.recv_into(connection.frames.buffer())
        except BlockingIOError:
            return
        except OSError as error:
            self.core.on_lost(connection, str(error), monotonic_ms())
            return
        if count == 0:
            self.core.on_lost(connection, "the broker closed it", monotonic_ms())
        else:
            self.core.on_received(connection, count, monotonic_ms())

    def _drop_socket(self, connection: Connection) -> None:
        link: _Link | None = connection.transport
        if link is None:
            return
        connection.transport = None
        if link.events:
            self._selector.unregister(link.sock)
        link.sock.close()

    def _release(self) -> None:
        self.core.close()
        while self.core.nodes.writable or self.core.nodes.closing:
            self._write_and_close()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()


def _after(buffers: list[Buffer], sent: int) -> list[Buffer]:
    """What is left of `buffers` behind the first `sent` bytes."""
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []
