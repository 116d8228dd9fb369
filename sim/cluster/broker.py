"""One broker over its lives: the real parts, put together as `broker.parts` and `broker.node` do.

What is played here is only what they stand on: process, disk, network and the session with the
store. No coordinators: groups and transactions have worlds of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, StorageError
from ottla.broker.copying import Copying, Foundation
from ottla.handlers import api_00_produce, api_01_fetch
from ottla.handlers.context import Context
from ottla.handlers.reply import Reply
from ottla.log.file_cache import FileCache
from ottla.log.log_dir import LogDir
from ottla.metadata import nodes
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.protocol.replica_fetch import VERSION as FETCH_VERSION
from ottla.replication.partition import Partition
from ottla.runtime.flusher import Flusher
from ottla.runtime.in_sync_writer import InSyncWriter
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_upkeep import LogUpkeep
from ottla.runtime.metadata_driver import MetadataDriver
from sim.cluster.disk import Disk
from sim.cluster.network import Network
from sim.cluster.process import Pool, Process
from sim.cluster.store import Session

if TYPE_CHECKING:
    from sim.cluster.world import World

PEERS, CLIENTS = "PEERS", "CLIENTS"
CLUSTER_ID = "9B0Gb9fHTdyps9xXL8uT-Q"
DATA = "/data"
PRODUCE_VERSION = 8
FILES_MS = 1.0
START_AGAIN_MS = 700


class SimulatedCopying(Copying):
    """Over the played network."""

    def __init__(self, on: Foundation, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        super().__init__(on)

    def _connect(self, address: tuple[str, int], purpose: str) -> Any:
        return self._network.connect(self._process, address[1])


class Life:
    """The parts of one broker process, from its start to its end."""

    def __init__(self, world: World, broker_id: int, process: Process, disk: Disk) -> None:
        self._world = world
        self.broker_id = broker_id
        self.process = process
        self.files = disk.files
        self.config: BrokerConfig = world.configs[broker_id]
        self.log_dir = LogDir.open(self.files, DATA)
        self.pool = Pool(process, lambda: FILES_MS)
        self._store_pool = Pool(process, lambda: world.trouble.delay_ms)
        self.store = Session(
            world.ensemble,
            process,
            world.heap,
            world.trouble,
            Random(world.draw_store()),
            is_blind=world.plan.is_fence_blind,
        )
        self.is_serving = False
        self._make_replicas()
        self._make_metadata()
        self.copying = SimulatedCopying(self._foundation(), world.network, process)
        self.services = Services(self)
        contexts = (
            Context(cast(Any, self.services), PRODUCE_VERSION, "sim", CLIENTS, 1),
            Context(cast(Any, self.services), FETCH_VERSION, "sim", PEERS, 1),
        )
        self.clients, self.peers = contexts

    def _make_replicas(self) -> None:
        process = self.process
        self.replicas = LocalReplicas(
            broker_id=self.broker_id,
            files=self.files,
            file_cache=FileCache(),
            clock=process,
            timers=process,
            pool=self.pool,
            log_dirs=[self.log_dir],
            config=self.config,
            is_cluster=True,
        )
        replicas = self.replicas
        self.flusher = Flusher(self.pool, replicas.storage_failed, replicas.on_flushed)
        replicas.on_roll, replicas.flush = self.flusher.on_roll, self.flusher.flush
        self.upkeep = LogUpkeep(
            replicas=self.replicas,
            flusher=self.flusher,
            files=self.files,
            clock=process,
            timers=process,
            pool=self.pool,
            config=lambda: self.config,
        )
        self.replicas.forget = self.upkeep.forget

    def _make_metadata(self) -> None:
        process = self.process
        self.metadata = MetadataDriver(
            broker_id=self.broker_id,
            config=self.config,
            store=self.store,
            is_cluster=True,
            pool=self._store_pool,
            timers=process,
            clock=process,
            random=process,
            post=process.post,
            registration=self._registration,
            publish=self._publish,
        )
        self.writer = InSyncWriter(
            broker_id=self.broker_id,
            source=self.metadata,
            store=self.store,
            lane=self.metadata.lane,
            post=process.post,
        )

    def _foundation(self) -> Foundation:
        return Foundation(
            broker_id=self.broker_id,
            clock=self.process,
            timers=cast(Any, self.process),
            random=self.process,
            post=self.process.post,
            listening=cast(Any, SimpleNamespace(inter_broker_name=PEERS)),
            replicas=self.replicas,
            upkeep=self.upkeep,
            flusher=self.flusher,
            metadata=self.metadata,
            writer=self.writer,
            config=lambda: self.config,
        )

    def _registration(self, is_starting: bool) -> bytes:
        return nodes.broker_content(
            {PEERS: ("sim", self.broker_id)},
            {},
            None,
            self.process.wall_ms(),
            fenced=is_starting,
            unclean=is_starting and self.log_dir.power_lost,
        )

    # -- start ------------------------------------------------------------------------------

    def start(self, failed: Callable[[OttlaError], None]) -> None:
        def entered(outcome: Deferred[MetadataImage]) -> None:
            error = outcome.error()
            if error is not None:
                failed(cast(OttlaError, error))
                return
            image = outcome.result()
            self.log_dir.claim(cluster_id=image.cluster_id, node_id=self.broker_id)
            self.configure(image)
            image = self.metadata.image
            self.replicas.load(image).when_done(lambda _: self._loaded(image))

        self.metadata.open(self.log_dir.cluster_id, CLUSTER_ID).when_done(entered)

    def _loaded(self, image: MetadataImage) -> None:
        self.log_dir.begin(keep_boot_id=False)
        for doomed in self.log_dir.doomed_directories():
            self.replicas.delete_tree(doomed)
        self.upkeep.start()
        self.copying.start()
        self.metadata.begin(image)
        self._world.brokers[self.broker_id].is_listening = True
        self.metadata.serve().when_done(self._served)

    def _served(self, _: Deferred[None]) -> None:
        self.log_dir.keep_boot_id()
        self.is_serving = True

    # -- stop -------------------------------------------------------------------------------

    def stop(self, stopped: Callable[[], None]) -> None:
        def left(_: Deferred[None]) -> None:
            self._world.brokers[self.broker_id].is_listening = False
            self.copying.close()
            self.upkeep.stop()
            self.pool.when_idle(lambda: self.pool.run(self._close_logs).when_done(closed))

        def closed(_: Deferred[None]) -> None:
            self.metadata.sign_off().when_done(lambda _: stopped())

        self.metadata.leave().when_done(left)

    def _close_logs(self) -> None:
        for _, held in list(self.replicas.online()):
            held.close()
        if self.log_dir.error is None:
            self.upkeep.checkpoint_all_now(self.log_dir)
            self.log_dir.mark_clean()

    # -- following the image ----------------------------------------------------------------

    def configure(self, image: MetadataImage) -> None:
        dynamic = image.broker_configs
        self.config = self._world.config_with(
            self.broker_id, dynamic.get("", {}), dynamic.get(str(self.broker_id), {})
        )
        self.replicas.configure(self.config, image)
        self.copying.configure(self.config, image)

    def _publish(self, old: MetadataImage, new: MetadataImage) -> Deferred[None]:
        if new.broker_configs is not old.broker_configs:
            self.configure(new)
        applied = self.replicas.apply(old, new)
        applied.when_done(lambda done: self.copying.on_image(old, new))
        return applied


class Services:
    """What the two handlers ask of a broker."""

    inter_broker_listener = PEERS

    def __init__(self, life: Life) -> None:
        self._life = life
        self.broker_id = life.broker_id
        self.clock = self.timers = life.process
        self.pool = life.pool
        self.partitions = life.replicas
        self.replica_sessions = life.copying.sessions
        self.storage_failed: Callable[[StorageError], None] = life.replicas.storage_failed
        self.soon = life.process.post

    @property
    def config(self) -> BrokerConfig:
        return self._life.config

    @property
    def image(self) -> MetadataImage:
        return self._life.metadata.image

    def request_flush(self, partition: Partition) -> Deferred[None]:
        assert partition.log is not None
        return self._life.flusher.flush(partition.log)


class Broker:
    """A machine with a disk, on which one process runs at a time."""

    def __init__(self, world: World, broker_id: int) -> None:
        self._world = world
        self.broker_id = broker_id
        self.disk = Disk(broker_id, records=world.plan.has_power_cuts)
        self.process: Process | None = None
        self.life: Life | None = None
        self.is_listening = False
        self.is_stopping = False
        self.lives = 0

    # -- life -------------------------------------------------------------------------------

    def start(self) -> None:
        if self.process is not None:
            return
        world = self._world
        self.lives += 1
        chance = Random(world.draw_process())
        self.process = Process(world.heap, self.broker_id, chance, world.plan.rates[self.broker_id])
        self.is_stopping = False
        if self.life is not None:
            # As the real store does: whoever starts on the same data ends what was before.
            self.life.store.end()
        self.life = life = Life(world, self.broker_id, self.process, self.disk)
        life.start(lambda error: self._not_started(life))

    def _not_started(self, life: Life) -> None:
        if self.life is life:
            self.kill()
            self._world.heap.push(START_AGAIN_MS, self.start)

    def kill(self, power: Random | None = None) -> None:
        """`power`: the machine loses its power too, and what was not synced in part."""
        if self.process is None or self.life is None:
            return
        self.process.die()
        self.process = None
        self.is_listening = False
        store = self.life.store
        store.cut_off()
        self._world.heap.push(self._world.ensemble.session_timeout_ms, store.end)
        if power is None:
            self.disk.kill()
        else:
            self.disk.cut_power(power)

    def stop(self) -> None:
        life = self.life
        if self.process is None or life is None or self.is_stopping or not life.is_serving:
            return
        self.is_stopping = True
        life.stop(lambda: self._stopped(life))

    def _stopped(self, life: Life) -> None:
        if self.life is life and self.process is not None:
            self.kill()
            life.store.end()

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.is_listening and self.process.waiting is None

    # -- requests ---------------------------------------------------------------------------

    def serve_fetch(self, body: bytes, source: int, answered: Callable[[bytes], None]) -> None:
        assert self.life is not None
        _tell(api_01_fetch.handle(self.life.peers, memoryview(body)), answered)

    def serve_produce(self, body: bytes, answered: Callable[[bytes], None]) -> None:
        assert self.life is not None
        _tell(api_00_produce.handle(self.life.clients, memoryview(body)), answered)


def _tell(reply: Any, answered: Callable[[bytes], None]) -> None:
    if isinstance(reply, Deferred):
        reply.when_done(lambda outcome: answered(_bytes_of(outcome.result())))
    else:
        answered(_bytes_of(reply))


def _bytes_of(reply: Reply) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else part.file.read_at(part.position, part.size)
        for part in reply.parts
    )
