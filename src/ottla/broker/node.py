"""One broker: brought up in order, and taken down in reverse.

Order matters. Ports are bound before logs are loaded, so that a port in use is told at once; the
broker is registered, fenced, before it loads what the cluster says of it; nothing is accepted
before every log is recovered; it takes part last of all. When it stops it hands over first, while
it still serves; the clean-shutdown marker is written after everything else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from ottla import __version__
from ottla.base.errors import StorageError
from ottla.base.ports import Clock
from ottla.broker.awaiting import done
from ottla.broker.listening import Listening
from ottla.broker.loop_lag import LoopLag
from ottla.broker.parts import Parts, Surroundings
from ottla.broker.services import BrokerServices
from ottla.broker.sight import Sight
from ottla.broker.stores import OpenStore, check_identity, open_store
from ottla.log.log_dir import LogDir
from ottla.metadata import nodes
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.listeners import address_of
from ottla.metadata.store import StoreRefused
from ottla.runtime.clocks import SystemClock
from ottla.runtime.handler_pool import HandlerPool
from ottla.runtime.posix_files import PosixFiles
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.request_stats import RequestStats
from ottla.runtime.timers import LoopTimers

log = logging.getLogger("ottla.broker")


class Node:
    """`store` and `loop` are given by who runs a cluster inside one process."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        store: OpenStore | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        check_identity(config)
        self._first_config = config
        self.parts: Parts | None = None
        self.broker_id = config.get_int("node.id")
        self.stats = RequestStats()
        self._clock: Clock = clock or SystemClock()
        self._files = PosixFiles()
        self.listening = Listening(lambda: self.config)
        self._opened = store
        self._given_loop = loop
        self.metrics_port: int | None = None
        self._log_dirs: list[LogDir] = []
        self._ready = False
        self._stopping = False
        self.useless = asyncio.Event()
        """Set when every log dir of a broker in a cluster has failed: others do its work, and it
        is to stop. A single node stays, since nobody else could say what has become of it."""

    @property
    def config(self) -> BrokerConfig:
        return self._first_config if self.parts is None else self.parts.config

    @property
    def endpoints(self) -> dict[str, tuple[str, int]]:
        return self.listening.endpoints

    @property
    def services(self) -> BrokerServices:
        assert self.parts is not None
        return self.parts.services

    # -- start ------------------------------------------------------------------------------

    async def start(self, stopping: asyncio.Event | None = None) -> bool:
        """False if it was told to stop while it waited for the cluster to let it take part: that
        can last for as long as there is no controller."""
        self._loop = self._given_loop or asyncio.get_running_loop()
        _raise_descriptor_limit()
        self.timers = LoopTimers(self._loop, self._clock)
        self._pool = HandlerPool(self._loop, self.config.get_int("num.io.threads"))
        try:
            self.listening.bind(self._loop, self._pool, self.timers)
            parts = await self._enter()
            image = parts.metadata.image
            await done(parts.replicas.load(image))
        except BaseException:
            self._release()
            raise
        self._on_each_log_dir(parts, lambda log_dir: _begin(parts, log_dir))
        parts.upkeep.start()
        parts.reserve.start()
        parts.cleaner.start()
        parts.mover.start()
        parts.scrubber.start()
        parts.copying.start()
        parts.groups.start()
        parts.transactions.start()
        parts.metadata.begin(image)
        if parts.is_alone and parts.has_lost_power():
            await done(parts.metadata.begin_epochs())
        self.listening.start()
        if not await _unless(stopping, done(parts.metadata.serve())):
            # As if it were killed: a clean end would hide what it may have lost from its next life.
            self.vanish()
            return False
        # Not before: a broker that may have lost records has to be found out again if it dies
        # before everybody knows.
        self._on_each_log_dir(parts, LogDir.keep_boot_id)
        self.metrics_port = await self._sight.start(self.config.get_str("ottla.metrics.listener"))
        self._ready = True
        return True

    async def _enter(self) -> Parts:
        """Into the cluster: its store, its image, and the parts that stand on it."""
        self._open_log_dirs()
        for log_dir in self._log_dirs:
            # Before it registers: the cluster would count on a broker that never was.
            log_dir.check_node(self.broker_id)
        if self._opened is None:
            directory = self._log_dirs[0].path
            self._opened = await done(
                self._pool.run(open_store, self.config, directory, self._clock, self._pool)
            )
        around = self._surroundings()
        self.parts = parts = Parts(around, self.config, self._opened)
        if self._opened.is_cluster:
            parts.replicas.on_last_dir_failed = self.useless.set
        self._lag = LoopLag(self.timers)
        self._sight = Sight(around, parts, self._lag, lambda: self._ready)
        cluster_id = nodes.encode_uuid(uuid.uuid4())
        image = await done(parts.metadata.open(self._known_cluster_id(), cluster_id))
        self._on_each_log_dir(
            parts, lambda one: one.claim(cluster_id=image.cluster_id, node_id=self.broker_id)
        )
        parts.configure(image)
        return parts

    def _open_log_dirs(self) -> None:
        """A disk that fails costs what is on it. The first has the broker's own files, too: there
        is no broker without it."""
        for path in self.config.get_list("log.dirs"):
            absolute = os.path.abspath(path)
            try:
                log_dir = LogDir.open(self._files, absolute)
            except StorageError as failure:
                if not self._log_dirs:
                    raise
                log_dir = LogDir.offline(self._files, absolute, f"{failure} ({failure.__cause__})")
                log.error("log dir %s is offline: %s", absolute, log_dir.error)
            self._log_dirs.append(log_dir)

    def _on_each_log_dir(self, parts: Parts, step: Callable[[LogDir], None]) -> None:
        for log_dir in self._log_dirs:
            if log_dir.error is not None:
                continue
            try:
                step(log_dir)
            except StorageError as failure:
                if log_dir is self._log_dirs[0]:
                    raise
                parts.replicas.storage_failed(failure)

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            broker_id=self.broker_id,
            files=self._files,
            clock=self._clock,
            timers=self.timers,
            random=SystemRandom(),
            pool=self._pool,
            post=self._post,
            log_dirs=self._log_dirs,
            listening=self.listening,
            stats=self.stats,
            descriptors_max=_descriptor_budget(),
        )

    def _post(self, callback: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _known_cluster_id(self) -> str | None:
        known = {one.cluster_id for one in self._log_dirs if one.cluster_id is not None}
        if len(known) > 1:
            raise StoreRefused(f"the log dirs belong to several clusters: {sorted(known)}")
        return next(iter(known), None)

    # -- stop -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """What others can lead goes to them; everything acknowledged is flushed, then marked
        clean, then let go."""
        if self._stopping or self.parts is None:
            return
        self._stopping = True
        self._ready = False
        await done(self.parts.metadata.leave())
        await self._close_doors()
        await done(self._pool.run(self._close_logs))
        await done(self.parts.metadata.sign_off())
        self._pool.close()
        self._release()

    async def _close_doors(self) -> None:
        parts = self.parts
        assert parts is not None
        self.listening.close()
        parts.copying.close()
        parts.transactions.close()
        parts.groups.close()
        parts.upkeep.stop()
        parts.reserve.stop()
        parts.cleaner.stop()
        parts.mover.stop()
        parts.scrubber.stop()
        self._lag.stop()
        await self._sight.stop()
        # What runs in the pool holds the files that are closed and written next: a sync, a
        # checkpoint, a slice of a cleaning or a scrub, a produce that is unpacked.
        await done(self._pool.when_idle())

    def _close_logs(self) -> None:
        parts = self.parts
        assert parts is not None
        for partition, held in list(parts.replicas.online()):
            try:
                held.close()
            except StorageError as failure:
                log.error("%s-%d did not close: %s", held.topic, held.partition, failure)
                self._loop.call_soon_threadsafe(parts.replicas.storage_failed, failure)
                partition.log = None
        for log_dir in self._log_dirs:
            if log_dir.error is None:
                parts.upkeep.checkpoint_all_now(log_dir)
                log_dir.mark_clean()

    def vanish(self) -> None:
        """As if the process had been killed: nothing is written, nobody is told. Only what the
        kernel would take back is given back."""
        self.listening.close()
        if self.parts is not None:
            self.parts.copying.close()
            for _, held in self.parts.replicas.online():
                held.abandon()
        self._pool.close()
        self._release()

    def _release(self) -> None:
        self.listening.close_ports()
        self.timers.close()
        if self._opened is not None:
            self._opened.store.close()
        for log_dir in self._log_dirs:
            log_dir.release()

    def failures(self) -> str:
        """Which log dirs have failed, and why."""
        failed = [one for one in self._log_dirs if one.error is not None]
        return "; ".join(f"{one.path}: {one.error}" for one in failed)

    def greeting(self) -> str:
        where = ", ".join(address_of(host, port) for host, port in self.listening.bound)
        return f"ottla {__version__} listening on {where} (node {self.broker_id})"


async def _unless(stopping: asyncio.Event | None, waiting: Coroutine[Any, Any, None]) -> bool:
    """Whether it is done; False if `stopping` was first."""
    if stopping is None:
        await waiting
        return True
    work, end = asyncio.ensure_future(waiting), asyncio.ensure_future(stopping.wait())
    await asyncio.wait((work, end), return_when=asyncio.FIRST_COMPLETED)
    end.cancel()
    if not work.done():
        work.cancel()
        return False
    work.result()
    return True


def _begin(parts: Parts, log_dir: LogDir) -> None:
    log_dir.begin(keep_boot_id=False)
    for doomed in log_dir.doomed_directories():
        parts.replicas.delete_tree(doomed)


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _descriptor_budget() -> int:
    """Half of the descriptors for files, the rest for sockets."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(soft // 2, 20_000))
