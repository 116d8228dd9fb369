"""Where a broker listens: its ports, bound before anything else, and its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from ottla.base.errors import ConfigError
from ottla.base.limits import REQUEST_MEMORY_BYTES_MAX
from ottla.metadata.configs.broker_config import BrokerConfig, connections_per_ip_overrides
from ottla.metadata.configs.listeners import ListenerSpec, address_of, parse_listeners
from ottla.net.acceptor import Acceptor, ConnectionLimits
from ottla.net.incoming import FrameMemory
from ottla.net.lookout import Lookout
from ottla.net.patience import Patience
from ottla.net.processor import Processor
from ottla.runtime.handler_pool import HandlerPool
from ottla.runtime.timers import LoopTimers

# The loop accepts between other work, so it is behind more often than a thread that does nothing
# else: with Kafka's 50, a burst of 1,000 connections stalled for a second, five times.
BACKLOG_MIN = 1024
UNLIMITED = 2**31 - 1
LEFT_TO_THE_KERNEL = -1
# What a client nearby takes to hear an answer and ask again, with some to spare.
LOOK_ALONE_US = 200
# Half of the usual answer: a reader with a narrow window is sent the rest by the kernel, and one
# with a wide window keeps up. Measured in docs/internals/performance.md.
SEND_BUFFER_BYTES = 512 * 1024
SEND_BUFFER_LIMIT = Path("/proc/sys/net/core/wmem_max")


class Listening:
    """`config` is the newest one at any time."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._listeners = parse_listeners(config())
        self._acceptors: list[Acceptor] = []
        self.processor: Processor
        self.inter_broker_name = self._listeners.inter_broker_name
        self.bound: list[tuple[str, int]] = []
        self.endpoints: dict[str, tuple[str, int]] = {}
        """What clients and other brokers are told to connect to, by listener."""
        self.protocols = {spec.name: spec.protocol for spec in self._listeners.listening}

    def bind(self, loop: asyncio.AbstractEventLoop, pool: HandlerPool, timers: LoopTimers) -> None:
        """A port that is taken is a ConfigError. Nothing is accepted yet."""
        setting = self._config().get_int
        limits = ConnectionLimits(
            lambda: self._config().get_int("max.connections"),
            self._connections_per_address_max,
            lambda: self._config().get_int("max.connection.creation.rate"),
        )
        self.processor = Processor(
            loop=loop,
            pool=pool,
            timers=timers,
            memory=FrameMemory(
                max(REQUEST_MEMORY_BYTES_MAX, 2 * setting("socket.request.max.bytes")),
                setting("socket.request.max.bytes"),
                setting("ottla.max.request.bytes"),
            ),
            idle_ms_max=lambda: self._config().get_int("connections.max.idle.ms"),
            lookout=self._lookout(loop),
            patience=self._patience(loop),
        )
        for spec in self._listeners.listening:
            acceptor = Acceptor(
                name=spec.name,
                loop=loop,
                timers=timers,
                processor=self.processor,
                limits=self._among_brokers(limits) if self._is_for_brokers(spec) else limits,
            )
            port = self._bind_one(acceptor, spec)
            self._acceptors.append(acceptor)
            self.bound.append((spec.host, port))
            self._advertise(spec, port)

    def _lookout(self, loop: asyncio.AbstractEventLoop) -> Lookout | None:
        microseconds = self._config().get_int("ottla.look.before.sleep.us")
        if microseconds < 0:
            # Brokers of one machine would take the cores from each other.
            is_alone = not self._config().get_optional_str("zookeeper.connect")
            microseconds = LOOK_ALONE_US if is_alone else 0
        return Lookout(loop.call_soon, microseconds / 1e6) if microseconds else None

    def _patience(self, loop: asyncio.AbstractEventLoop) -> Patience | None:
        tick_ms = self._config().get_int("ottla.gather.requests.ms")
        return Patience(loop.call_later, tick_ms / 1000) if tick_ms else None

    def _is_for_brokers(self, spec: ListenerSpec) -> bool:
        return spec.name == self.inter_broker_name and len(self._listeners.listening) > 1

    def _among_brokers(self, limits: ConnectionLimits) -> ConnectionLimits:
        """However many clients there are, from wherever: replication gets through, as in Kafka."""
        return ConnectionLimits(lambda: UNLIMITED, lambda _: UNLIMITED, limits.per_second_max)

    def _bind_one(self, acceptor: Acceptor, spec: ListenerSpec) -> int:
        backlog = max(self._config().get_int("socket.listen.backlog.size"), BACKLOG_MIN)
        buffers = (
            self._buffer_bytes("socket.send.buffer.bytes", _send_buffer_bytes()),
            self._buffer_bytes("socket.receive.buffer.bytes", LEFT_TO_THE_KERNEL),
        )
        try:
            return acceptor.bind(spec.host, spec.port, backlog, buffers)
        except OSError as refused:
            raise ConfigError(
                f"cannot listen on {address_of(spec.host, spec.port)}: {refused.strerror}"
            ) from refused

    def _connections_per_address_max(self, address: str) -> int:
        overrides = connections_per_ip_overrides(self._config())
        return overrides.get(address, self._config().get_int("max.connections.per.ip"))

    def _buffer_bytes(self, name: str, otherwise: int) -> int:
        """There are better sizes than Kafka's 100 KiB; what somebody has set is kept to."""
        config = self._config()
        return config.get_int(name) if config.is_set(name) else otherwise

    def _advertise(self, spec: ListenerSpec, port: int) -> None:
        for advertised in self._listeners.advertised:
            if advertised.name == spec.name:
                self.endpoints[spec.name] = (advertised.host, advertised.port or port)

    def start(self) -> None:
        for acceptor in self._acceptors:
            acceptor.start()

    def close_ports(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()

    def close(self) -> None:
        self.close_ports()
        self.processor.close()


def _send_buffer_bytes() -> int:
    """A smaller one than asked for is all that we get above the limit, and worse than what the
    kernel finds by itself, which may be larger than that."""
    try:
        limit = int(SEND_BUFFER_LIMIT.read_text())
    except (OSError, ValueError):
        return LEFT_TO_THE_KERNEL
    return SEND_BUFFER_BYTES if limit >= SEND_BUFFER_BYTES else LEFT_TO_THE_KERNEL
