"""One broker: its parts put together, brought up in order, and taken down in reverse.

Order matters. Ports are bound before logs are loaded, so that a port in use is told at once;
nothing is accepted before every log is recovered; the clean-shutdown marker is written last of all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import uuid
from collections.abc import Iterable

from ottla import __version__
from ottla.base.deferred import Deferred
from ottla.base.errors import ConfigError, StorageError
from ottla.base.limits import REQUEST_MEMORY_BYTES_MAX
from ottla.base.ports import Clock
from ottla.broker import metrics
from ottla.broker.http_endpoint import HttpEndpoint
from ottla.broker.loop_lag import LoopLag
from ottla.broker.services import BrokerServices
from ottla.log.file_cache import FileCache
from ottla.log.log_dir import LogDir
from ottla.log.partition_log import PartitionLog
from ottla.metadata import nodes, paths
from ottla.metadata.bootstrap import decide_cluster_id
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.configs.broker_config import BrokerConfig, connections_per_ip_overrides
from ottla.metadata.configs.listeners import ListenerSpec, parse_listeners
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import MetadataStore, StoreRefused
from ottla.net.acceptor import Acceptor, ConnectionLimits
from ottla.net.incoming import FrameMemory
from ottla.net.processor import Processor
from ottla.replication.fetch_sessions import FetchSessions
from ottla.runtime.clocks import SystemClock
from ottla.runtime.controller_driver import ControllerDriver
from ottla.runtime.dispatcher import Dispatcher
from ottla.runtime.embedded_store import EmbeddedStore
from ottla.runtime.flusher import Flusher
from ottla.runtime.group_coordinator import GroupCoordinator
from ottla.runtime.handler_pool import HandlerPool
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_cleaner import LogCleaner
from ottla.runtime.log_upkeep import LogUpkeep
from ottla.runtime.marker_writer import MarkerWriter
from ottla.runtime.posix_files import PosixFiles
from ottla.runtime.request_stats import RequestStats
from ottla.runtime.timers import LoopTimers
from ottla.runtime.transaction_coordinator import TransactionCoordinator

log = logging.getLogger("ottla.broker")

# The loop accepts between other work, so it is behind more often than a thread that does nothing
# else: with Kafka's 50, a burst of 1,000 connections stalled for a second, five times.
BACKLOG_MIN = 1024


class Node:
    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.broker_id = config.get_int("node.id")
        self.stats = RequestStats()
        self._clock: Clock = clock or SystemClock()
        self._files = PosixFiles()
        self._listeners = parse_listeners(config)
        self._acceptors: list[tuple[Acceptor, ListenerSpec]] = []
        self._bound: list[tuple[str, int]] = []
        self.endpoints: dict[str, tuple[str, int]] = {}
        """What clients are told to connect to, by listener."""
        self.metrics_port: int | None = None
        self._log_dirs: list[LogDir] = []
        self._ready = False
        self._stopping = False

    # -- start ------------------------------------------------------------------------------

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        _raise_descriptor_limit()
        self.timers = LoopTimers(self._loop, self._clock)
        self._pool = HandlerPool(self._loop, self.config.get_int("num.io.threads"))
        self._bind_listeners()
        try:
            store, image = self._open_store()
            self._wire(store, image)
            self._lag = LoopLag(self.timers)
            await _done(self._replicas.load(image))
        except BaseException:
            self._release()
            raise
        for log_dir in self._log_dirs:
            log_dir.begin()
            for doomed in log_dir.doomed_directories():
                self._replicas.delete_tree(doomed)
        self._upkeep.start()
        self._cleaner.start()
        self._groups.start()
        self._transactions.start()
        for acceptor, _ in self._acceptors:
            acceptor.start()
        await self._start_http()
        self._ready = True

    def _bind_listeners(self) -> None:
        setting = self.config.get_int
        limits = ConnectionLimits(
            lambda: self.config.get_int("max.connections"),
            self._connections_per_address_max,
            lambda: self.config.get_int("max.connection.creation.rate"),
        )
        self._processor = Processor(
            loop=self._loop,
            pool=self._pool,
            timers=self.timers,
            memory=FrameMemory(
                max(REQUEST_MEMORY_BYTES_MAX, 2 * setting("socket.request.max.bytes")),
                setting("socket.request.max.bytes"),
                setting("ottla.max.request.bytes"),
            ),
            idle_ms_max=lambda: self.config.get_int("connections.max.idle.ms"),
        )
        for spec in self._listeners.listening:
            acceptor = Acceptor(
                name=spec.name,
                loop=self._loop,
                timers=self.timers,
                processor=self._processor,
                limits=limits,
            )
            try:
                port = acceptor.bind(
                    spec.host,
                    spec.port,
                    max(setting("socket.listen.backlog.size"), BACKLOG_MIN),
                    (
                        self._buffer_bytes("socket.send.buffer.bytes"),
                        self._buffer_bytes("socket.receive.buffer.bytes"),
                    ),
                )
            except OSError as refused:
                raise ConfigError(
                    f"cannot listen on {spec.host}:{spec.port}: {refused.strerror}"
                ) from refused
            self._acceptors.append((acceptor, spec))
            self._bound.append((spec.host, port))
            self._advertise(spec, port)

    def _connections_per_address_max(self, address: str) -> int:
        overrides = connections_per_ip_overrides(self.config)
        return overrides.get(address, self.config.get_int("max.connections.per.ip"))

    def _buffer_bytes(self, name: str) -> int:
        """-1 leaves the size to the kernel, which finds a better one than Kafka's 100 KiB; what
        somebody has set is kept to."""
        return self.config.get_int(name) if self.config.is_set(name) else -1

    def _advertise(self, spec: ListenerSpec, port: int) -> None:
        for advertised in self._listeners.advertised:
            if advertised.name == spec.name:
                self.endpoints[spec.name] = (advertised.host, advertised.port or port)

    def _open_store(self) -> tuple[MetadataStore, MetadataImage]:
        paths = self.config.get_list("log.dirs")
        for path in paths:
            self._log_dirs.append(LogDir.open(self._files, os.path.abspath(path)))
        store = EmbeddedStore(self._log_dirs[0].path)
        self._store = store
        self._found_cluster(store)
        store.register(self.broker_id, self._registration())
        store.campaign(self.broker_id)
        image = image_from_snapshot(store.load())
        for log_dir in self._log_dirs:
            log_dir.claim(cluster_id=image.cluster_id, node_id=self.broker_id)
        return store, image

    def _found_cluster(self, store: MetadataStore) -> None:
        """The first start gives the cluster its id; data of another cluster are refused."""
        known = {one.cluster_id for one in self._log_dirs if one.cluster_id is not None}
        if len(known) > 1:
            raise StoreRefused(f"the log dirs belong to several clusters: {sorted(known)}")
        operations = decide_cluster_id(
            store.load().nodes.get(paths.CLUSTER_ID),
            next(iter(known), None),
            nodes.encode_uuid(uuid.uuid4()),
        )
        if operations:
            store.commit(operations)

    def _registration(self) -> bytes:
        protocols = {spec.name: spec.protocol for spec in self._listeners.listening}
        rack = self.config.get_optional_str("broker.rack")
        return nodes.broker_content(self.endpoints, protocols, rack)

    def _wire(self, store: MetadataStore, image: MetadataImage) -> None:
        self._configure_from(image)
        self._replicas = LocalReplicas(
            broker_id=self.broker_id,
            files=self._files,
            file_cache=FileCache(_descriptor_budget()),
            clock=self._clock,
            timers=self.timers,
            pool=self._pool,
            log_dirs=self._log_dirs,
            config=self.config,
        )
        self._flusher = Flusher(self._pool, self._replicas.storage_failed)
        self._replicas.on_roll = self._flusher.on_roll
        self._upkeep = LogUpkeep(
            replicas=self._replicas,
            flusher=self._flusher,
            files=self._files,
            clock=self._clock,
            timers=self.timers,
            pool=self._pool,
            config=lambda: self.config,
        )
        self._replicas.forget = self._upkeep.forget
        self._cleaner = LogCleaner(
            replicas=self._replicas,
            upkeep=self._upkeep,
            flusher=self._flusher,
            files=self._files,
            clock=self._clock,
            timers=self.timers,
            pool=self._pool,
            config=lambda: self.config,
        )
        self._controller = ControllerDriver(store, self._pool, image, self._publish)
        self.services = BrokerServices(
            broker_id=self.broker_id,
            config=self.config,
            clock=self._clock,
            timers=self.timers,
            pool=self._pool,
            partitions=self._replicas,
            controller=self._controller,
            fetch_sessions=FetchSessions(
                self.config.get_int("max.incremental.fetch.session.cache.slots"),
                lambda: uuid.uuid4().int >> 97,
            ),
            flusher=self._flusher,
            new_uuid=uuid.uuid4,
        )
        self._groups = GroupCoordinator(self.services)
        self.services.groups = self._groups
        self._transactions = TransactionCoordinator(
            self.services, MarkerWriter(self.services, self._groups.host_at)
        )
        self.services.transactions = self._transactions
        self._processor.dispatch = Dispatcher(self.services, self.stats).dispatch

    # -- following the image ----------------------------------------------------------------

    def _publish(self, old: MetadataImage, new: MetadataImage) -> Deferred[None]:
        if new.broker_configs is not old.broker_configs:
            self._configure_from(new)
            self.services.config = self.config
            self._replicas.configure(self.config, new)
            self._pool.resize(self.config.get_int("num.io.threads"))
            self._groups.on_config(self.config)
            self._transactions.on_config(self.config)
        applied = self._replicas.apply(old, new)
        applied.when_done(lambda done: self._groups.on_image(new))
        applied.when_done(lambda done: self._transactions.on_image(new))
        return applied

    def _configure_from(self, image: MetadataImage) -> None:
        dynamic = image.broker_configs
        self.config = self.config.with_dynamic(
            dynamic.get("", {}), dynamic.get(str(self.broker_id), {})
        )

    # -- stop -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Everything acknowledged is flushed, then marked clean, then let go."""
        if self._stopping:
            return
        self._stopping = True
        self._ready = False
        for acceptor, _ in self._acceptors:
            acceptor.close()
        self._processor.close()
        self._transactions.close()
        self._groups.close()
        self._upkeep.stop()
        self._cleaner.stop()
        self._lag.stop()
        if self._http is not None:
            await self._http.stop()
        # What runs in the pool holds the files that are closed and written next: a sync, a
        # checkpoint, a slice of a cleaning, a produce that is unpacked.
        await _done(self._pool.when_idle())
        await _done(self._pool.run(self._close_logs))
        self._pool.close()
        self._release()

    def _close_logs(self) -> None:
        for partition, held in list(self._replicas.online()):
            try:
                held.close()
            except StorageError as failure:
                log.error("%s-%d did not close: %s", held.topic, held.partition, failure)
                self._loop.call_soon_threadsafe(self._replicas.storage_failed, failure)
                partition.log = None
        for log_dir in self._log_dirs:
            if log_dir.error is None:
                self._upkeep.checkpoint_all_now(log_dir)
                log_dir.mark_clean()
        try:
            self._store.unregister(self.broker_id)
        except StorageError as failure:
            log.warning("this broker could not sign off: %s", failure)

    def _release(self) -> None:
        for acceptor, _ in self._acceptors:
            acceptor.close()
        self.timers.close()
        store = getattr(self, "_store", None)
        if store is not None:
            store.close()
        for log_dir in self._log_dirs:
            log_dir.release()

    # -- sight ------------------------------------------------------------------------------

    async def _start_http(self) -> None:
        self._http: HttpEndpoint | None = None
        where = self.config.get_str("ottla.metrics.listener")
        if not where:
            return
        host, _, port = where.rpartition(":")
        endpoint = HttpEndpoint(
            {
                "/metrics": lambda: (200, metrics.exposition(self)),
                "/healthz": self._health,
                "/readyz": self._readiness,
            }
        )
        try:
            self.metrics_port = await endpoint.start(host, int(port))
        except OSError as taken:
            # Two brokers on one machine is a normal day; metrics are not worth a refusal.
            self.metrics_port = await endpoint.start(host, 0)
            log.warning("%s is taken (%s): metrics are on port %d", where, taken, self.metrics_port)
        self._http = endpoint

    def _health(self) -> tuple[int, str]:
        failed = [f"{one.path}: {one.error}" for one in self._log_dirs if one.error is not None]
        if failed and len(failed) == len(self._log_dirs):
            return 503, "every log dir is offline\n" + "\n".join(failed) + "\n"
        return 200, "\n".join(["ok", *failed]) + "\n"

    def _readiness(self) -> tuple[int, str]:
        return (200, "ready\n") if self._ready else (503, "not ready\n")

    def greeting(self) -> str:
        where = ", ".join(f"{host}:{port}" for host, port in self._bound)
        return f"ottla {__version__} listening on {where} (node {self.broker_id})"

    def connections(self) -> tuple[int, int]:
        return self._processor.count(), self._processor.opened_total()

    def logs(self) -> Iterable[tuple[PartitionLog, int]]:
        return ((held, partition.high_watermark) for partition, held in self._replicas.online())

    def offline_partitions(self) -> int:
        return sum(partition.log is None for partition in self._replicas.all())

    def loop_lag_seconds(self) -> float:
        return self._lag.seconds

    def pool_threads(self) -> int:
        return self._pool.size

    def fetch_sessions(self) -> int:
        return len(self.services.fetch_sessions)

    def topics(self) -> int:
        return len(self._controller.image.topics)


async def _done(deferred: Deferred[None]) -> None:
    """Wait for a Deferred in a coroutine; only the life cycle does this."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(outcome: Deferred[None]) -> None:
        try:
            outcome.result()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    deferred.when_done(tell)
    await future


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _descriptor_budget() -> int:
    """Half of the descriptors for files, the rest for sockets."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(soft // 2, 20_000))
