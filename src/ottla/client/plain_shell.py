"""Drives a core with sockets and one background thread, for callers that block.

Owns the sockets, the thread and the lock. The core is only ever touched with the lock held. The
thread waits for sockets and deadlines; a caller's thread may write to a socket itself, and while it
waits for an answer it may read from it (`drive`), so that a question and its answer need no other
thread to wake up. Only the background thread opens connections (looking up a name blocks) and runs
users' callbacks, and it does both without the lock.

Always holds: after `close` there is neither thread nor socket; in a forked child, where the thread
is not, every call is refused.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.errors import OttlaError
from ottla.base.ports import Buffer
from ottla.client.callbacks import Callbacks
from ottla.client.clock import monotonic_ms
from ottla.client.connection import CLOSED, Connection
from ottla.client.core import Core
from ottla.client.errors import ClientError, ClosedError, TimedOutError, TlsError
from ottla.client.forks import ForkedLock, HasLock, alive
from ottla.client.pending import Cancelled, Pending, heard
from ottla.client.plain_link import (
    AT_ONCE,
    HOVER_MS,
    PARK_MS,
    PATIENCE_MS,
    UNWATCHED,
    Link,
    after,
)
from ottla.client.settings import ClientSettings

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.client.tls import TlsSocket

T = TypeVar("T")
logger = logging.getLogger("ottla.client")

# It looks up now and then by itself, lest each request with its time-out, the earliest of them all
# when there is no other, had to wake it.
_SLEEP_MS_MAX = 5_000.0


class PlainShell(HasLock):
    def __init__(self, core: Core, name: str) -> None:
        self.core = core
        self.lock = threading.Lock()
        self._name = name
        self._tls = _tls_context(core.settings)
        self._epoll = select.epoll()
        self._watched: dict[int, Connection] = {}
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._epoll.register(self._wake_out.fileno(), select.EPOLLIN)
        self._sleeps_until_ms = 0.0  # 0 while the thread is awake and will look again by itself
        self._callbacks = Callbacks()
        self._parked: set[Connection] = set()  # which callers' threads read by themselves
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._thread_id = self._thread.ident
        alive.add(self)

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
            timer_ms = self.core.timers.next_deadline_ms()
            if (
                nodes.opening
                or self._callbacks.waiting
                or nodes.earliest_sent_ms < self._sleeps_until_ms
                or (timer_ms is not None and timer_ms < self._sleeps_until_ms)
            ):
                self.wake()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_ms: float | None = None) -> T:
        """Runs a flow to its end while this thread waits."""
        try:
            self.check_thread()
            self.enter()
        except OttlaError:
            coroutine.close()
            raise
        try:
            if self.core.closed:
                coroutine.close()
                raise ClosedError("the client is closed")
            flow = self.core.spawn(coroutine)
            flow.when_done(heard)
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

    def drive(self, connection: Connection, is_done: Callable[[], bool], until_ms: float) -> None:
        """With the lock: reads from a connection in this thread until something is done.

        Gives up where the connection ends or another thread reads from it already: then waiting
        in the ordinary way is left. The lock is free while there is nothing to read.
        """
        link: Link | None = connection.transport
        if link is None or not link.is_open or link.is_driven or link.unsent:
            return
        link.is_driven = True
        # How soon it has come back counts, not how long the broker takes.
        self._note_reader(connection, link, monotonic_ms())
        is_plain = link.secure is None
        if not is_plain or connection not in self._parked:
            self._watch(connection, link)
        try:
            while connection.transport is link:
                patience_ms = until_ms - monotonic_ms()
                if is_plain and patience_ms >= PATIENCE_MS:
                    is_news = self._read_once(connection, link, is_patient=True)
                else:
                    is_news = self._poll_and_read(connection, link, patience_ms)
                if is_news:
                    self.carry_out()
                if is_done() or (patience_ms <= 0 and not is_news):
                    return
        finally:
            link.is_driven = False
            if link.is_dropped:
                link.sock.close()
            else:
                link.caller_ms = self.core.now_ms
                if connection.in_flight:
                    self._watch(connection, link)

    def _poll_and_read(self, connection: Connection, link: Link, patience_ms: float) -> bool:
        if self.read(connection):
            return True
        if patience_ms > 0:
            self.lock.release()
            try:
                link.poll.poll(min(patience_ms, _SLEEP_MS_MAX))
            finally:
                self.lock.acquire()
        return connection.transport is link and self.read(connection)

    def pump(self) -> None:
        """With the lock, by a caller that sends a lot: takes the answers that are there already."""
        now_ms = monotonic_ms()
        for connection in list(self.core.nodes.connections.values()):
            link: Link | None = connection.transport
            if link is None or not link.is_open or link.is_driven:
                continue
            if connection.in_flight:
                self._note_reader(connection, link, now_ms)
                self.read(connection)
            elif now_ms - connection.used_ms < HOVER_MS:
                self._note_reader(connection, link, now_ms)

    def _note_reader(self, connection: Connection, link: Link, now_ms: float) -> None:
        """A caller's thread has looked at this socket. One that does so all the time is left alone
        with it: a background thread that wakes up for every answer would only be in its way."""
        if now_ms - link.caller_ms < HOVER_MS and connection not in self._parked:
            if not self._parked:
                self.wake()  # to look after it from now on
            self._parked.add(connection)
            self._watch(connection, link)
        link.caller_ms = now_ms

    def _review_parked(self) -> None:
        """Answers that the caller has not come for are the thread's business again."""
        now_ms = monotonic_ms()
        for connection in list(self._parked):
            link: Link | None = connection.transport
            if link is None:
                self._parked.discard(connection)
            elif not link.is_driven and now_ms - link.caller_ms >= HOVER_MS:
                if connection.in_flight or now_ms - link.caller_ms >= PARK_MS:
                    self._parked.discard(connection)
                    self._watch(connection, link)

    def later(self, callback: Callable[[], None]) -> None:
        """With the lock: lets the background thread call it, without the lock, in this order."""
        self._callbacks.waiting.append(callback)

    def wait_for_callbacks(self, timeout_s: float | None) -> None:
        """Until those given so far have run. One of them waits for nobody, least for itself."""
        have_run = threading.Event()
        with self.lock:
            if self._callbacks.is_done() or self.core.closed or self.is_in_callback():
                return
            self.later(have_run.set)
            self.wake()
        if not have_run.wait(timeout_s):
            raise TimedOutError("flush: callbacks of the application have not come to their end")

    def wake(self) -> None:
        self._sleeps_until_ms = 0.0
        try:
            self._wake_in.send(b"\0")
        except BlockingIOError:
            return  # it is full of wake-ups already
        except OSError:
            if not self._ending:
                raise

    def is_in_callback(self) -> bool:
        return threading.get_ident() == self._thread_id

    def check_thread(self) -> None:
        if threading.get_ident() == self._thread_id:
            raise ClientError(
                "a callback must not wait for the client that calls it: it would wait for itself"
            )

    def close(self) -> None:
        """Ends everything; from a callback, as soon as the callback returns."""
        if isinstance(self.lock, ForkedLock):
            return  # thread and sockets are the parent's
        with self.lock:
            self.core.close()
            self._ending = True
            self.wake()
        if not self.is_in_callback():
            self._thread.join()

    # ------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while not self._ending:
                self._turn()
            self._callbacks.run()
        except Exception:
            # A defect of ours. Nobody may wait for ever because of it: all that is left fails.
            logger.exception("the client %s cannot go on and is closed", self._name)
        finally:
            alive.discard(self)
            with self.lock:
                self._release()
            self._callbacks.run()

    def _turn(self) -> None:
        with self.lock:
            opening, self.core.nodes.opening = self.core.nodes.opening, []
        for connection in opening:
            self._open(connection)
        with self.lock:
            self.core.now_ms = monotonic_ms()
            self.carry_out()
            timeout_s = self._timeout_s()
        events = self._epoll.poll(timeout_s)
        with self.lock:
            self._sleeps_until_ms = 0.0
            if self._parked:
                self._review_parked()
            for fd, mask in events:
                self._on_event(self._watched.get(fd), fd, mask)
            now_ms = monotonic_ms()
            deadline_ms = self.core.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                self.core.on_time(now_ms)
            self.carry_out()
        self._callbacks.run()

    def _timeout_s(self) -> float:
        if self.core.nodes.opening or self._callbacks.waiting or self._ending:
            return 0.0
        deadline_ms = self.core.now_ms + (HOVER_MS if self._parked else _SLEEP_MS_MAX)
        self.core.nodes.earliest_sent_ms = float("inf")
        first_ms = self.core.next_deadline_ms()
        if first_ms is not None and first_ms < deadline_ms:
            deadline_ms = first_ms
        self._sleeps_until_ms = deadline_ms
        # Not a moment too early: a poll that ends before the deadline would spin until it.
        return max(0.0, deadline_ms - self.core.now_ms + 0.1) / 1000.0

    def _on_event(self, connection: Connection | None, fd: int, mask: int) -> None:
        if connection is None:
            if fd == self._wake_out.fileno():
                self._drain_wake_ups()
            return
        link: Link | None = connection.transport
        if link is None or connection.state == CLOSED:
            return  # closed by an event before this one, or by a caller
        if not link.is_open:
            self._on_connect_result(connection, link)
            return
        if mask & select.EPOLLOUT:
            self._write(connection)
            self.core.end_turn()
        if mask & ~select.EPOLLOUT and connection.transport is not None:
            if link.is_driven:
                self._ignore(link)  # whoever reads will see it
            else:
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
        except (OSError, UnicodeError) as error:  # the latter: "a..b" is no name at all
            with self.lock:
                self._on_broken(connection, error)
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
            link = Link(sock, addresses, self._secured(sock, connection))
            connection.transport = link
            self._watch(connection, link)
            if code == 0:
                self._on_connect_result(connection, link)
            return
        if connection.state != CLOSED:
            self.core.on_lost(connection, reason, monotonic_ms())

    def _secured(self, sock: socket.socket, connection: Connection) -> TlsSocket | None:
        if self._tls is None:
            return None
        from ottla.client.tls import TlsSocket  # noqa: PLC0415 - see _tls_context

        return TlsSocket(sock, self._tls, connection.host)

    def _set_buffers(self, sock: socket.socket) -> None:
        settings = self.core.settings
        if settings.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if settings.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)

    def _on_connect_result(self, connection: Connection, link: Link) -> None:
        if not link.is_connected:
            code = link.raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code != 0:
                self._drop_socket(connection)
                self._try_next(connection, link.addresses, f"error {code} from connect")
                return
            link.is_connected = True
        if link.secure is not None:
            try:
                is_over = link.secure.handshake()
            except TlsError as error:
                self.core.on_lost(connection, error, monotonic_ms())
                return
            except OSError as error:
                self._on_broken(connection, error)
                return
            if not is_over:
                self._watch(connection, link)
                return
        link.open()
        self._watch(connection, link)
        self.core.on_open(connection, monotonic_ms())

    def _watch(self, connection: Connection, link: Link) -> None:
        """Lets the thread hear of what it needs to know of this socket now."""
        events = link.wanted_events(is_parked=connection in self._parked)
        if link.events == events:
            return
        if link.events == UNWATCHED:
            self._watched[link.fd] = connection
            self._epoll.register(link.fd, events)
        else:
            self._epoll.modify(link.fd, events)
        link.events = events

    def _ignore(self, link: Link) -> None:
        self._epoll.modify(link.fd, 0)
        link.events = 0

    def _write_and_close(self) -> None:
        nodes = self.core.nodes
        writable, nodes.writable = nodes.writable, []
        for connection in writable:
            self._write(connection)
        closing, nodes.closing = nodes.closing, []
        for connection in closing:
            self._drop_socket(connection)

    def _write(self, connection: Connection) -> None:
        link: Link | None = connection.transport
        if link is None or not link.is_open:
            return
        try:
            if link.secure is not None and not self._flush(connection, link.secure):
                return
            size = connection.outgoing_bytes
            outgoing: list[Buffer] = connection.take_outgoing()
            if outgoing and not link.unsent:
                # What goes out at once, which is nearly always all of it, is never queued.
                try:
                    sent = link.send(outgoing, size)
                except OSError as error:
                    self._on_broken(connection, error)
                    return
                if sent == size:
                    if link.secure is not None or connection not in self._parked:
                        self._watch(connection, link)
                    return
                outgoing = after(outgoing, sent)
            if outgoing or link.unsent or link.secure is not None:
                link.unsent.extend(map(memoryview, outgoing))
                self._write_queued(connection, link)
        except (KeyboardInterrupt, SystemExit):
            self._on_interrupted(connection)
            raise

    def _flush(self, connection: Connection, secure: TlsSocket) -> bool:
        """False if that was its end."""
        try:
            secure.flush()
        except OSError as error:
            self._on_broken(connection, error)
            return False
        return True

    def _on_broken(self, connection: Connection, error: OSError | UnicodeError) -> None:
        self.core.on_lost(connection, str(error), monotonic_ms())

    def _on_interrupted(self, connection: Connection) -> None:
        """Ctrl-C in a caller's thread: whether bytes came or went is not known. What was asked is
        asked again on another connection, as after any other that broke."""
        self.core.on_lost(connection, "interrupted", monotonic_ms())
        self.carry_out()

    def _write_queued(self, connection: Connection, link: Link) -> None:
        unsent = link.unsent
        while unsent:
            try:
                sent = link.sock.send(unsent[0], AT_ONCE)
            except BlockingIOError:
                break
            except OSError as error:
                self._on_broken(connection, error)
                return
            if sent == len(unsent[0]):
                unsent.popleft()
            else:
                unsent[0] = unsent[0][sent:]
        connection.is_congested = bool(unsent)
        self._watch(connection, link)

    def read(self, connection: Connection) -> bool:
        """With the lock: takes what the socket has and gives it to the core; False if nothing."""
        link: Link = connection.transport
        if not self._read_once(connection, link):
            return False
        if link.secure is not None:
            # Its buffer may hold more, of which epoll does not know.
            while connection.transport is link and link.secure.has_more:
                if not self._read_once(connection, link):
                    break
        return True

    def _read_once(self, connection: Connection, link: Link, *, is_patient: bool = False) -> bool:
        try:
            buffer = connection.frames.buffer()
            if is_patient:
                # The lock is free meanwhile: nobody else reads what is driven.
                self.lock.release()
                try:
                    count = link.receive(buffer)
                finally:
                    self.lock.acquire()
            else:
                count = link.sock.recv_into(buffer, 0, AT_ONCE)
            if connection.transport is not link:
                return True  # ended by another thread meanwhile
            if count == 0:
                self.core.on_lost(connection, "the broker closed it", monotonic_ms())
            else:
                self.core.on_received(connection, count, monotonic_ms())
        except BlockingIOError:
            return False
        except OSError as error:
            self._on_broken(connection, error)
        except (KeyboardInterrupt, SystemExit):
            self._on_interrupted(connection)
            raise
        return True

    def _drop_socket(self, connection: Connection) -> None:
        link: Link | None = connection.transport
        if link is None:
            return
        connection.transport = None
        self._parked.discard(connection)
        if link.events != UNWATCHED:
            del self._watched[link.fd]
            self._epoll.unregister(link.fd)
            link.events = UNWATCHED
        if link.is_driven:
            # Somebody waits on it without the lock: wakes up by this, and closes it.
            link.is_dropped = True
            with suppress(OSError):
                link.sock.shutdown(socket.SHUT_RDWR)
        else:
            link.sock.close()

    def _release(self) -> None:
        self.core.close()
        while self.core.nodes.writable or self.core.nodes.closing:
            self._write_and_close()
        self._epoll.close()
        self._wake_in.close()
        self._wake_out.close()


def _tls_context(settings: ClientSettings) -> SSLContext | None:
    if not settings.security_protocol.endswith("SSL"):
        return None
    # Loaded here: OpenSSL takes 10 ms that most can do without.
    from ottla.client.tls import tls_context  # noqa: PLC0415

    return tls_context(settings)
