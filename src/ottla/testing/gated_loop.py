"""The event loop as one broker of a test cluster sees it: the part that is its own.

Several brokers run on one loop. Each goes through a gate of its own, which can be shut: then
nothing happens in that broker, as in a process that was stopped by SIGSTOP, and its sockets fill
up in the kernel. A gate that is closed for ever is a process that was killed. Connections between
two brokers can be shut alone: who reads nothing and hears nothing is cut off.

Has what Ottla's brokers ask of a loop, and nothing more.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any


class Network:
    """Whose connection is whose, and which pairs of brokers are cut off from each other."""

    def __init__(self) -> None:
        self._owner_of_port: dict[int, int] = {}
        self._cut: set[frozenset[int]] = set()
        self._gates: dict[int, GatedLoop] = {}

    def join(self, gate: GatedLoop) -> None:
        self._gates[gate.broker_id] = gate

    def own(self, port: int, broker_id: int) -> None:
        """A local port of this broker: one it listens on, or one it connects from."""
        self._owner_of_port[port] = broker_id

    def cut(self, one: int, other: int) -> None:
        self._cut.add(frozenset((one, other)))
        self._look_again()

    def heal(self) -> None:
        self._cut.clear()
        self._look_again()

    def is_cut(self, broker_id: int, descriptor: int) -> bool:
        """Whether this socket leads to a broker that `broker_id` is cut off from."""
        if not self._cut:
            return False
        other = self._owner_of_port.get(_remote_port(descriptor), broker_id)
        return frozenset((broker_id, other)) in self._cut

    def _look_again(self) -> None:
        for gate in self._gates.values():
            gate.look_again()


class Handle:
    """A callback that can be cancelled, or that a gate holds back."""

    __slots__ = ("_arguments", "_callback", "_gate", "_real")

    def __init__(self, gate: GatedLoop, callback: Callable[..., object], arguments: Any) -> None:
        self._gate = gate
        self._callback: Callable[..., object] | None = callback
        self._arguments = arguments
        self._real: asyncio.Handle | None = None

    def on(self, real: asyncio.Handle) -> Handle:
        self._real = real
        return self

    def cancel(self) -> None:
        self._callback = None
        if self._real is not None:
            self._real.cancel()

    def happen(self) -> None:
        callback = self._callback
        if callback is None or self._gate.holds_back(self):
            return
        self._callback = None
        callback(*self._arguments)


class GatedLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop, broker_id: int, network: Network) -> None:
        self.broker_id = broker_id
        self._loop = loop
        self._network = network
        self._is_shut = False
        self._is_dead = False
        self._held: deque[Handle] = deque()
        self._readers: dict[int, tuple[Callable[..., object], Any]] = {}
        self._writers: dict[int, tuple[Callable[..., object], Any]] = {}
        network.join(self)

    # -- the gate ---------------------------------------------------------------------------

    def shut(self) -> None:
        self._is_shut = True
        self.look_again()

    def open(self) -> None:
        self._is_shut = False
        held, self._held = self._held, deque()
        for handle in held:
            self._loop.call_soon(handle.happen)
        self.look_again()

    def kill(self) -> None:
        """Nothing happens here any more, and whoever is connected is told so by the kernel."""
        self._is_dead = True
        descriptors = {*self._readers, *self._writers}
        for descriptor in list(self._readers):
            self.remove_reader(descriptor)
        for descriptor in list(self._writers):
            self.remove_writer(descriptor)
        for descriptor in descriptors:
            _hang_up(descriptor)
        self._held.clear()

    def holds_back(self, handle: Handle) -> bool:
        if self._is_shut and not self._is_dead:
            self._held.append(handle)
        return self._is_shut or self._is_dead

    def look_again(self) -> None:
        """What may be heard now, and what not, after the gate or a connection was shut."""
        for descriptor, (callback, arguments) in self._readers.items():
            self._loop.remove_reader(descriptor)
            if self._may_hear(descriptor):
                self._loop.add_reader(descriptor, callback, *arguments)
        for descriptor, (callback, arguments) in self._writers.items():
            self._loop.remove_writer(descriptor)
            if self._may_hear(descriptor):
                self._loop.add_writer(descriptor, callback, *arguments)

    def _may_hear(self, descriptor: int) -> bool:
        if self._is_shut or self._is_dead:
            return False
        return not self._network.is_cut(self.broker_id, descriptor)

    # -- what brokers ask of a loop ---------------------------------------------------------

    def add_reader(self, descriptor: int, callback: Callable[..., object], *arguments: Any) -> None:
        if self._is_dead:
            return
        self._readers[descriptor] = (callback, arguments)
        self._note_port(descriptor)
        if self._may_hear(descriptor):
            self._loop.add_reader(descriptor, callback, *arguments)

    def remove_reader(self, descriptor: int) -> bool:
        self._readers.pop(descriptor, None)
        return self._loop.remove_reader(descriptor)

    def add_writer(self, descriptor: int, callback: Callable[..., object], *arguments: Any) -> None:
        if self._is_dead:
            return
        self._writers[descriptor] = (callback, arguments)
        self._note_port(descriptor)
        if self._may_hear(descriptor):
            self._loop.add_writer(descriptor, callback, *arguments)

    def remove_writer(self, descriptor: int) -> bool:
        self._writers.pop(descriptor, None)
        return self._loop.remove_writer(descriptor)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Handle:
        handle = Handle(self, callback, arguments)
        return handle.on(self._loop.call_soon(handle.happen))

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: Any) -> Handle:
        handle = Handle(self, callback, arguments)
        return handle.on(self._loop.call_soon_threadsafe(handle.happen))

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *arguments: Any
    ) -> Handle:
        handle = Handle(self, callback, arguments)
        return handle.on(self._loop.call_later(delay_s, handle.happen))

    def create_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(coroutine)

    async def getaddrinfo(self, *arguments: Any, **options: Any) -> Any:
        return await self._loop.getaddrinfo(*arguments, **options)

    def is_closed(self) -> bool:
        return self._is_dead or self._loop.is_closed()

    def time(self) -> float:
        return self._loop.time()

    def _note_port(self, descriptor: int) -> None:
        """Of a connection that this broker makes: others shall know whose it is.

        On the accepting side the local port is the listener's, which is its own too.
        """
        port = _local_port(descriptor)
        if port:
            self._network.own(port, self.broker_id)


def _local_port(descriptor: int) -> int:
    return _port(descriptor, socket.socket.getsockname)


def _remote_port(descriptor: int) -> int:
    return _port(descriptor, socket.socket.getpeername)


def _port(descriptor: int, ask: Callable[[socket.socket], Any]) -> int:
    """0 for what is no connection, or none any more."""
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return 0
    try:
        return int(ask(borrowed)[1])
    except (OSError, IndexError, TypeError, ValueError):
        return 0
    finally:
        borrowed.detach()


def _hang_up(descriptor: int) -> None:
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return
    try:
        borrowed.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was not connected
    finally:
        borrowed.detach()
