"""The cluster of a test: several brokers in the test's process, on one event loop in one thread.

They are real brokers that clients reach over TCP and that copy from each other over TCP; only
ZooKeeper is played, in memory. So a test can do to them what happens to brokers: kill, stop, pause,
cut off, and let time pass.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.broker.config_file import load_broker_config
from ottla.broker.node import Node
from ottla.broker.stores import OpenStore
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.memory_store import MemoryEnsemble, MemoryStore
from ottla.net.held_port import HeldPort
from ottla.runtime.clocks import MovableClock
from ottla.runtime.timers import LoopTimers
from ottla.testing.gated_loop import GatedLoop, Network
from ottla.testing.loop_thread import LoopThread, step_ms, text_of

R = TypeVar("R")

SESSION_TIMEOUT_MS = 9_000
CLIENTS, PEERS = "PLAINTEXT", "REPLICATION"


class LoopPool:
    """Runs what would block elsewhere on the loop: a store in memory never does."""

    def __init__(self, loop: GatedLoop) -> None:
        self._loop = loop

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        answer: Deferred[R] = Deferred()

        def job() -> None:
            try:
                value = work(*arguments)
            except OttlaError as error:
                answer.fail(error)
            else:
                answer.resolve(value)

        self._loop.call_soon(job)
        return answer


class Member:
    """One broker, over its lives."""

    def __init__(self, broker_id: int, data_dir: str) -> None:
        self.broker_id = broker_id
        self.data_dir = data_dir
        # It comes back on the same ports, as a client expects of a broker.
        self.held = {name: HeldPort("127.0.0.1") for name in (CLIENTS, PEERS)}
        self.ports = {name: held.port for name, held in self.held.items()}
        self.node: Node | None = None
        self.gate: GatedLoop | None = None
        self.store: MemoryStore | None = None
        self.is_paused = False


class Cluster:
    """`settings` are those of every broker, under Kafka's names; `racks` the place of each."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        racks: Sequence[str] | None = None,
    ) -> None:
        self._racks = racks
        self._own_data_dir = data_dir is None
        self.data_dir = os.fspath(data_dir or tempfile.mkdtemp(prefix="ottla-test-"))
        self._settings = {**_defaults(brokers), **(settings or {})}
        self._clock = MovableClock()
        self._network = Network()
        timeout_ms = self._settings.get("zookeeper.session.timeout.ms", SESSION_TIMEOUT_MS)
        self._ensemble = MemoryEnsemble(self._clock, int(str(timeout_ms)))
        self._thread = LoopThread("ottla-test-cluster")
        self._timers: LoopTimers | None = None
        self._members = {
            broker_id: Member(broker_id, os.path.join(self.data_dir, f"broker-{broker_id}"))
            for broker_id in range(1, brokers + 1)
        }

    # -- life -------------------------------------------------------------------------------

    def start(self, broker_id: int | None = None) -> Cluster:
        """All brokers, or one that was stopped or killed; ready when it returns."""
        if self._timers is None:
            loop = self._thread.start()
            self._timers = LoopTimers(loop, self._clock)
        wanted = list(self._members) if broker_id is None else [broker_id]
        self._thread.run(self._start_all([self._members[each] for each in wanted]))
        return self

    async def _start_all(self, members: list[Member]) -> None:
        await asyncio.gather(*(self._start_one(member) for member in members))

    async def _start_one(self, member: Member) -> None:
        if member.node is not None:
            raise RuntimeError(f"broker {member.broker_id} is running already")
        gate = GatedLoop(asyncio.get_running_loop(), member.broker_id, self._network)
        member.gate, member.is_paused = gate, False
        member.store = MemoryStore(self._ensemble)
        opened = OpenStore(member.store, LoopPool(gate), is_cluster=True)
        loop = cast(asyncio.AbstractEventLoop, gate)
        node = Node(self._config(member), self._clock, opened, loop)
        await node.start()
        member.node = node
        for port in member.ports.values():
            self._network.own(port, member.broker_id)

    def _config(self, member: Member) -> BrokerConfig:
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in member.ports.items())
        values = {
            "ottla.metrics.listener": "",
            "ottla.look.before.sleep.us": 0,
            **({} if self._racks is None else {"broker.rack": self._racks[member.broker_id - 1]}),
            **self._settings,
            "node.id": member.broker_id,
            "listeners": listeners,
            "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{PEERS}:PLAINTEXT",
            "inter.broker.listener.name": PEERS,
        }
        overrides = [f"{name}={text_of(value)}" for name, value in values.items()]
        return load_broker_config(None, overrides, data_dir=member.data_dir).config

    def stop(self, broker_id: int | None = None) -> None:
        """A clean stop: what others can lead goes to them first. Of all brokers, or of one."""
        wanted = list(self._members) if broker_id is None else [broker_id]
        for each in wanted:
            member = self._members[each]
            if member.is_paused:
                self.resume(each)
            if member.node is not None:
                self._thread.run(member.node.stop())
                member.node = member.gate = None

    def kill(self, broker_id: int) -> None:
        """As by SIGKILL: nothing is written any more, nobody is told; its session ends at once,
        so that a test need not wait for that."""
        member = self._running(broker_id)
        self._thread.call(lambda: self._kill(member))

    def _kill(self, member: Member) -> None:
        assert member.node is not None
        assert member.gate is not None
        member.gate.kill()
        member.node.vanish()
        member.node = member.gate = member.store = None

    def close(self) -> None:
        for member in self._members.values():
            if member.node is not None:
                self.kill(member.broker_id)
        if self._timers is not None:
            self._thread.call(self._timers.close)
            self._timers = None
        self._thread.stop()
        for member in self._members.values():
            for held in member.held.values():
                held.close()
        if self._own_data_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Cluster:
        try:
            return self.start()
        except BaseException:
            self.close()  # nobody else will: there is no end of a `with` that has not begun
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- faults -----------------------------------------------------------------------------

    def pause(self, broker_id: int) -> None:
        """As by SIGSTOP. Its session ends when the others have not heard of it for 9 s, or what
        `zookeeper.session.timeout.ms` says, by the cluster's clock."""
        member = self._running(broker_id)
        self._thread.call(lambda: self._pause(member))

    def _pause(self, member: Member) -> None:
        assert member.gate is not None
        assert member.store is not None
        assert self._timers is not None
        member.is_paused = True
        member.gate.shut()
        store = member.store
        store.cut_off()
        self._timers.call_later(
            self._ensemble.session_timeout_ms,
            lambda: store.expire() if store.is_fenced() else None,
        )

    def resume(self, broker_id: int) -> None:
        member = self._running(broker_id)
        self._thread.call(lambda: self._resume(member))

    def _resume(self, member: Member) -> None:
        assert member.node is not None
        assert member.gate is not None
        assert member.store is not None
        member.is_paused = False
        member.gate.open()
        member.store.heal()
        member.node.timers.poke()

    def cut(self, one: int, other: int) -> None:
        """These two do not hear each other any more; clients hear both, and both are alive."""
        self._thread.call(lambda: self._network.cut(one, other))

    def heal(self) -> None:
        """Everybody hears everybody again."""
        self._thread.call(self._network.heal)

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Move the cluster's clock forward; what has become due has begun when this returns."""
        self._clock.advance(step_ms(days, hours, minutes, seconds, milliseconds))
        self._thread.call(self._poke)

    def _poke(self) -> None:
        if self._timers is not None:
            self._timers.poke()
        for member in self._members.values():
            if member.node is not None and not member.is_paused:
                member.node.timers.poke()

    # -- use --------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`: every broker, running or not."""
        return ",".join(f"127.0.0.1:{self.port(broker_id)}" for broker_id in self._members)

    @property
    def broker_ids(self) -> list[int]:
        return list(self._members)

    def port(self, broker_id: int) -> int:
        """Where clients reach this broker; the same over its lives."""
        return self._members[broker_id].ports[CLIENTS]

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; -1 while nobody does."""
        return self._partition(topic, partition).leader

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return set(self._partition(topic, partition).in_sync)

    def controller(self) -> int:
        """The broker that is the controller; -1 while none is."""
        return self._thread.call(lambda: self._witness().controller_id)

    def _partition(self, topic: str, partition: int) -> PartitionState:
        def look() -> PartitionState:
            state = self._witness().partition(topic, partition)
            if state is None:
                raise KeyError(f"there is no partition {topic}-{partition}")
            return state

        return self._thread.call(look)

    def _witness(self) -> MetadataImage:
        """The image of whoever knows most."""
        images = [
            member.node.parts.metadata.image
            for member in self._members.values()
            if member.node is not None and member.node.parts is not None and not member.is_paused
        ]
        if not images:
            raise RuntimeError("no broker of this cluster is running")
        return max(images, key=lambda image: image.last_change)

    def _running(self, broker_id: int) -> Member:
        member = self._members[broker_id]
        if member.node is None:
            raise RuntimeError(f"broker {broker_id} is not running")
        return member


def _defaults(brokers: int) -> dict[str, object]:
    """What a cluster of this size wants: three replicas if it can have them."""
    factor = min(brokers, 3)
    in_sync_min = max(factor - 1, 1)
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync_min,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync_min,
    }
