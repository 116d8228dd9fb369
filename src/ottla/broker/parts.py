"""The parts of a broker put together: what each one knows of the others is decided here.

None of them has begun when they are made; `Node` brings them up in order and takes them down.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from ottla.base.deferred import Deferred
from ottla.base.ports import Clock, Random
from ottla.broker.copying import Copying, Foundation
from ottla.broker.listening import Listening
from ottla.broker.services import BrokerServices
from ottla.broker.stores import OpenStore, rack_of
from ottla.log.file_cache import FileCache
from ottla.log.log_dir import LogDir
from ottla.metadata import nodes
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.replication.fetch_sessions import FetchSessions
from ottla.runtime.dispatcher import Dispatcher
from ottla.runtime.flusher import Flusher
from ottla.runtime.group_coordinator import GroupCoordinator
from ottla.runtime.handler_pool import HandlerPool
from ottla.runtime.in_sync_writer import InSyncWriter
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_cleaner import LogCleaner
from ottla.runtime.log_dir_reserve import LogDirReserve
from ottla.runtime.log_scrubber import LogScrubber
from ottla.runtime.log_upkeep import LogUpkeep
from ottla.runtime.marker_writer import MarkerWriter
from ottla.runtime.metadata_driver import MetadataDriver
from ottla.runtime.posix_files import PosixFiles, QuietFile
from ottla.runtime.replica_mover import ReplicaMover
from ottla.runtime.request_stats import RequestStats
from ottla.runtime.timers import LoopTimers
from ottla.runtime.transaction_coordinator import TransactionCoordinator

log = logging.getLogger("ottla.broker")


@dataclass(slots=True)
class Surroundings:
    """What a broker stands on."""

    broker_id: int
    files: PosixFiles
    clock: Clock
    timers: LoopTimers
    random: Random
    pool: HandlerPool
    post: Callable[[Callable[[], None]], None]
    log_dirs: list[LogDir]
    listening: Listening
    stats: RequestStats
    descriptors_max: int


class Parts:
    def __init__(self, around: Surroundings, config: BrokerConfig, opened: OpenStore) -> None:
        self._around = around
        self._opened = opened
        self.config = config
        self.replicas = LocalReplicas(
            broker_id=around.broker_id,
            files=around.files,
            file_cache=FileCache(around.descriptors_max),
            clock=around.clock,
            timers=around.timers,
            pool=around.pool,
            log_dirs=around.log_dirs,
            config=config,
            is_cluster=opened.is_cluster,
        )
        replicas = self.replicas
        self.flusher = Flusher(around.pool, replicas.storage_failed, replicas.on_flushed)
        replicas.on_roll, replicas.flush = self.flusher.on_roll, self.flusher.flush
        self._make_upkeep()
        self._make_metadata()
        self._make_copying()
        self._make_coordinators()
        dispatcher = Dispatcher(self.services, around.stats)
        around.listening.processor.dispatch = dispatcher.dispatch
        around.listening.processor.dispatch_run = dispatcher.dispatch_run

    def _make_upkeep(self) -> None:
        around = self._around
        self.upkeep = LogUpkeep(
            replicas=self.replicas,
            flusher=self.flusher,
            files=around.files,
            clock=around.clock,
            timers=around.timers,
            pool=around.pool,
            config=lambda: self.config,
        )
        self.replicas.forget = self.upkeep.forget
        self.reserve = LogDirReserve(
            replicas=self.replicas,
            timers=around.timers,
            pool=around.pool,
            config=lambda: self.config,
        )
        self.mover = ReplicaMover(
            replicas=self.replicas,
            upkeep=self.upkeep,
            flusher=self.flusher,
            files=around.files,
            clock=around.clock,
            timers=around.timers,
            pool=around.pool,
            config=lambda: self.config,
        )
        self.replicas.moving = self.mover
        self.upkeep.arriving = self.mover.arriving
        self.scrubber = LogScrubber(
            replicas=self.replicas,
            open_file=QuietFile,
            clock=around.clock,
            timers=around.timers,
            pool=around.pool,
            config=lambda: self.config,
        )
        self.cleaner = LogCleaner(
            replicas=self.replicas,
            upkeep=self.upkeep,
            flusher=self.flusher,
            files=around.files,
            clock=around.clock,
            timers=around.timers,
            pool=around.pool,
            config=lambda: self.config,
            suspect=self.scrubber.suspect,
        )

    def _make_metadata(self) -> None:
        around, opened = self._around, self._opened
        self.metadata = MetadataDriver(
            broker_id=around.broker_id,
            config=self.config,
            store=opened.store,
            is_cluster=opened.is_cluster,
            pool=opened.pool,
            timers=around.timers,
            clock=around.clock,
            random=around.random,
            post=around.post,
            registration=self._registration,
            publish=self._publish,
        )
        self.in_sync_writer = InSyncWriter(
            broker_id=around.broker_id,
            source=self.metadata,
            store=opened.store,
            lane=self.metadata.lane,
            post=around.post,
        )

    def _make_copying(self) -> None:
        around = self._around
        self.copying = Copying(
            Foundation(
                broker_id=around.broker_id,
                clock=around.clock,
                timers=around.timers,
                random=around.random,
                post=around.post,
                listening=around.listening,
                replicas=self.replicas,
                upkeep=self.upkeep,
                flusher=self.flusher,
                metadata=self.metadata,
                writer=self.in_sync_writer,
                config=lambda: self.config,
                suspect=self.scrubber.suspect,
            )
        )

    def _make_coordinators(self) -> None:
        around = self._around
        self.services = BrokerServices(
            broker_id=around.broker_id,
            config=self.config,
            clock=around.clock,
            timers=around.timers,
            pool=around.pool,
            partitions=self.replicas,
            controller=self.metadata,
            fetch_sessions=FetchSessions(
                self.config.get_int("max.incremental.fetch.session.cache.slots"),
                lambda: uuid.uuid4().int >> 97,
            ),
            replica_sessions=self.copying.sessions,
            inter_broker_listener=around.listening.inter_broker_name,
            soon=around.listening.processor.call_soon,
            flusher=self.flusher,
            new_uuid=uuid.uuid4,
            suspect=self.scrubber.suspect,
            save_log_starts=self.upkeep.save_log_starts,
        )
        self.groups = GroupCoordinator(self.services)
        self.services.groups = self.groups
        self.transactions = TransactionCoordinator(
            self.services,
            MarkerWriter(self.services, self.groups.host_at),
            self.copying.peers,
        )
        self.services.transactions = self.transactions
        self.copying.doubted.on_resumed = self._look_again

    def _registration(self, is_starting: bool) -> bytes:
        """A single node has nobody who could take over meanwhile: it is never fenced."""
        listening, in_cluster = self._around.listening, self._opened.is_cluster
        return nodes.broker_content(
            listening.endpoints,
            listening.protocols,
            rack_of(self.config, in_cluster=in_cluster),
            self._around.clock.wall_ms(),
            fenced=is_starting and in_cluster,
            unclean=is_starting and in_cluster and self.has_lost_power(),
        )

    @property
    def is_alone(self) -> bool:
        """A single node, of which there can be no other."""
        return not self._opened.is_cluster

    def has_lost_power(self) -> bool:
        """Whether anything that was written may be missing."""
        return any(log_dir.power_lost for log_dir in self._around.log_dirs)

    def _look_again(self) -> None:
        self.groups.follow_again()
        self.transactions.follow_again()

    # -- following the image ----------------------------------------------------------------

    def configure(self, image: MetadataImage) -> None:
        """The settings of the cluster and of this broker, on top of those of the file."""
        dynamic = image.broker_configs
        self.config = self.config.with_dynamic(
            dynamic.get("", {}), dynamic.get(str(self._around.broker_id), {})
        )
        for refusal in self.config.ignored:
            log.warning("a setting of the broker counts as not set: %s", refusal)
        self.services.config = self.config
        self.replicas.configure(self.config, image)
        self.copying.configure(self.config, image)
        self._around.pool.resize(self.config.get_int("num.io.threads"))
        self.groups.on_config(self.config)
        self.transactions.on_config(self.config)

    def _publish(self, old: MetadataImage, new: MetadataImage) -> Deferred[None]:
        if new.broker_configs is not old.broker_configs:
            self.configure(new)
        applied = self.replicas.apply(old, new)
        applied.when_done(lambda done: self.copying.on_image(old, new))
        applied.when_done(lambda done: self.groups.on_image(new))
        applied.when_done(lambda done: self.transactions.on_image(new))
        return applied
