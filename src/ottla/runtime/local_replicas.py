"""The replicas on this broker's disks: made, opened, configured and removed as the image says.

The driver between the metadata image and the log room. It opens and deletes in the pool and keeps
the table that handlers look partitions up in. A disk that fails takes its log dir offline, and
with it every partition that lives there; the broker goes on with the others.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ottla.base.deferred import Deferred, all_of
from ottla.base.errors import OttlaError, StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock, Files, Pool, Timers
from ottla.handlers.context import LogDirState
from ottla.log.file_cache import FileCache
from ottla.log.log_config import LogConfig
from ottla.log.log_dir import LogDir
from ottla.log.open_log import LoadReport, open_log
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.effective import effective_log_config
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.replication.effects import Assignment
from ottla.replication.partition import Partition

log = logging.getLogger("ottla.runtime")


@dataclass(slots=True)
class OpenOrder:
    """One log to open in the pool, and what came of it."""

    topic: TopicImage
    index: int
    log_dir: LogDir
    config: LogConfig
    fresh: bool
    """Its directory is yet to be made: what a checkpoint says is of another log of that name."""
    opened: PartitionLog | None = None
    failure: OttlaError | None = None


class LocalReplicas:
    def __init__(
        self,
        *,
        broker_id: int,
        files: Files,
        file_cache: FileCache,
        clock: Clock,
        timers: Timers,
        pool: Pool,
        log_dirs: list[LogDir],
        config: BrokerConfig,
    ) -> None:
        self._broker_id = broker_id
        self._files = files
        self._file_cache = file_cache
        self._clock = clock
        self._timers = timers
        self._pool = pool
        self._log_dirs = log_dirs
        self._config = config
        self._partitions: dict[TopicPartition, Partition] = {}
        self.on_roll: Callable[[PartitionLog], None] | None = None
        self.on_log_dir_failed: Callable[[LogDir], None] = lambda failed: None
        self.forget: Callable[[list[TopicPartition]], Deferred[None]] = lambda keys: all_of([])
        """Takes partitions out of the checkpoints on the disk."""

    # -- the table --------------------------------------------------------------------------

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get((topic, partition))

    def all(self) -> Iterable[Partition]:
        return self._partitions.values()

    def online(self) -> Iterator[tuple[Partition, PartitionLog]]:
        for partition in self._partitions.values():
            if partition.log is not None:
                yield partition, partition.log

    def dirs(self) -> list[LogDir]:
        return self._log_dirs

    def log_dirs(self) -> list[LogDirState]:
        return [_state_of(log_dir) for log_dir in self._log_dirs]

    def logs_of(self, log_dir: str) -> Iterable[PartitionLog]:
        return [held for partition, held in self.online() if partition.log_dir == log_dir]

    # -- following the image ----------------------------------------------------------------

    def load(self, image: MetadataImage) -> Deferred[None]:
        """Open every replica of ours that the image knows; at start, before any is served."""
        where: dict[TopicPartition, LogDir] = {}
        for log_dir in self._log_dirs:
            for found in log_dir.partitions():
                topic = image.topics.get(found.topic)
                known = topic is not None and found.partition in topic.partitions
                if topic is not None and known and found.topic_id in (None, topic.topic_id):
                    where[found.topic, found.partition] = log_dir
                else:
                    # Never deleted: somebody may have put it there for a reason.
                    log.warning("%s is of no topic here; it is set aside", found.path)
                    log_dir.set_stray(found)
        orders = [
            self._order(topic, index, where.get((topic.name, index)))
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
            if self._broker_id in state.replicas
        ]
        finished: Deferred[None] = Deferred()

        def opened(_: Deferred[None]) -> None:
            # Not before: until then there is nothing else to put into a checkpoint.
            self.forget(_fresh(orders)).when_done(lambda outcome: finished.resolve(None))

        self._open(orders).when_done(opened)
        return finished

    def apply(self, old: MetadataImage, new: MetadataImage) -> Deferred[None]:
        """Do what the difference between two images asks of this broker."""
        orders: list[OpenOrder] = []
        if new.topics is not old.topics:
            self._remove_gone(old, new)
            for name, topic in new.topics.items():
                if old.topics.get(name) is not topic:
                    orders += self._changed(topic)
        if not _fresh(orders):
            return self._open(orders)
        finished: Deferred[None] = Deferred()

        def forgotten(_: Deferred[None]) -> None:
            # A failure has taken the log dir offline, which is what opening will find.
            self._open(orders).when_done(lambda outcome: finished.resolve(None))

        self.forget(_fresh(orders)).when_done(forgotten)
        return finished

    def configure(self, config: BrokerConfig, image: MetadataImage) -> None:
        """The broker's own settings have changed: so may have every topic's defaults."""
        self._config = config
        for topic in image.topics.values():
            self._configure_topic(topic)

    def _changed(self, topic: TopicImage) -> list[OpenOrder]:
        self._configure_topic(topic)
        orders = []
        for index, state in topic.partitions.items():
            if self._broker_id not in state.replicas:
                continue
            partition = self._partitions.get((topic.name, index))
            if partition is None:
                orders.append(self._order(topic, index, None))
            else:
                self._assume_role(partition, state)
        return orders

    def _configure_topic(self, topic: TopicImage) -> None:
        config = effective_log_config(self._config, topic.configs)
        for index in topic.partitions:
            partition = self._partitions.get((topic.name, index))
            if partition is not None and partition.log is not None:
                if partition.log.config != config:
                    partition.log.config = config
                    partition.on_config_changed()

    def _assume_role(self, partition: Partition, state: PartitionState) -> None:
        assigned = Assignment(
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            state.replicas,
            state.in_sync,
            state.unclean_epoch,
        )
        partition.assume(self._broker_id, assigned, self._clock.monotonic_ms())

    # -- opening ----------------------------------------------------------------------------

    def _order(self, topic: TopicImage, index: int, log_dir: LogDir | None) -> OpenOrder:
        config = effective_log_config(self._config, topic.configs)
        chosen = log_dir or self._emptiest_log_dir()
        return OpenOrder(topic, index, chosen, config, fresh=log_dir is None)

    def _emptiest_log_dir(self) -> LogDir:
        online = [log_dir for log_dir in self._log_dirs if log_dir.error is None]
        if len(online) <= 1:
            return (online or self._log_dirs)[0]
        held = dict.fromkeys((log_dir.path for log_dir in online), 0)
        for partition in self._partitions.values():
            if partition.log_dir in held:
                held[partition.log_dir] += 1
        return min(online, key=lambda log_dir: held[log_dir.path])

    def _open(self, orders: list[OpenOrder]) -> Deferred[None]:
        finished: Deferred[None] = Deferred()
        if not orders:
            finished.resolve(None)
            return finished

        shares = self._shares(orders)
        left = len(shares)

        def opened(outcome: Deferred[None]) -> None:
            nonlocal left
            outcome.result()
            left -= 1
            if left == 0:
                for order in orders:
                    self._install(order)
                finished.resolve(None)

        for share in shares:
            self._pool.run(self._open_all, share).when_done(opened)
        return finished

    def _shares(self, orders: list[OpenOrder]) -> list[list[OpenOrder]]:
        """What each thread opens: `num.recovery.threads.per.data.dir` of them for each log dir."""
        threads = max(self._config.get_int("num.recovery.threads.per.data.dir"), 1)
        shares = []
        for log_dir in self._log_dirs:
            of_dir = [order for order in orders if order.log_dir is log_dir]
            shares += [of_dir[first::threads] for first in range(threads)]
        return [share for share in shares if share]

    def _open_all(self, orders: list[OpenOrder]) -> None:
        """In the pool."""
        expiration_ms = self._config.get_int("producer.id.expiration.ms")
        for order in orders:
            log_dir = order.log_dir
            try:
                if log_dir.error is not None:
                    raise StorageError(log_dir.path, "open")
                opened, report = self._open_one(order, expiration_ms)
                _tell(order, report)
                if report.corrupt is None:
                    order.opened = opened
                else:
                    order.failure = OttlaError(report.corrupt)
            except OttlaError as failure:
                order.failure = failure

    def _open_one(self, order: OpenOrder, expiration_ms: int) -> tuple[PartitionLog, LoadReport]:
        log_dir, topic = order.log_dir, order.topic
        key = (topic.name, order.index)
        return open_log(
            self._files,
            log_dir.directory_of(topic.name, order.index),
            topic.name,
            order.index,
            topic_id=topic.topic_id,
            config=order.config,
            recovery_point=0 if order.fresh else log_dir.recovery_points.get(key, 0),
            log_start_offset=0 if order.fresh else log_dir.log_start_offsets.get(key, 0),
            clean=log_dir.clean and not order.fresh,
            clock=self._clock,
            producer_id_expiration_ms=expiration_ms,
            file_cache=self._file_cache,
            power_lost=log_dir.power_lost,
        )

    def _install(self, order: OpenOrder) -> None:
        topic, index = order.topic, order.index
        partition = Partition(topic.name, index, topic.topic_id, order.log_dir.path)
        partition.log = order.opened
        if order.opened is not None:
            order.opened.on_roll = self.on_roll
        self._partitions[topic.name, index] = partition
        if order.failure is not None:
            log.error("partition %s-%d is offline: %s", topic.name, index, order.failure)
            if isinstance(order.failure, StorageError):
                self.storage_failed(order.failure)
            return
        if not order.fresh and order.opened is not None:
            self._take_checkpoints(partition, order.opened, order.log_dir)
        self._assume_role(partition, topic.partitions[index])

    def _take_checkpoints(self, partition: Partition, held: PartitionLog, log_dir: LogDir) -> None:
        key = partition.topic, partition.partition
        partition.high_watermark = log_dir.high_watermarks.get(key, 0)
        held.cleaned_to = (log_dir.cleaned_offsets or {}).get(key, -1)

    # -- removing ---------------------------------------------------------------------------

    def _remove_gone(self, old: MetadataImage, new: MetadataImage) -> None:
        for name, topic in old.topics.items():
            kept = new.topics.get(name)
            if kept is topic:
                continue
            if kept is None or kept.topic_id != topic.topic_id:
                for index in topic.partitions:
                    self._remove(name, index)

    def _remove(self, topic: str, index: int) -> None:
        partition = self._partitions.pop((topic, index), None)
        if partition is None:
            return
        partition.go_away()
        held, partition.log = partition.log, None
        if held is None:
            return
        log_dir = self._log_dir_of(partition.log_dir)
        try:
            # Renamed on the loop, so that a topic of the same name can be made at once.
            doomed = log_dir.set_aside_for_deletion(topic, index, uuid.uuid4().hex)
        except StorageError as failure:
            self.storage_failed(failure)
            return
        held.abandon()
        delay_ms = held.config.file_delete_delay_ms
        self._timers.call_later(delay_ms, lambda: self.delete_tree(doomed))

    def delete_tree(self, directory: str) -> None:
        def deleted(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except OSError as failure:
                log.warning("%s could not be deleted: %s", directory, failure)

        self._pool.run(self._files.remove_tree, directory).when_done(deleted)

    # -- failing ----------------------------------------------------------------------------

    def storage_failed(self, failure: StorageError) -> None:
        for log_dir in self._log_dirs:
            if failure.path.startswith(log_dir.path) and log_dir.error is None:
                cause = failure.__cause__
                log_dir.error = f"{failure} ({cause})" if cause else str(failure)
                log.error("log dir %s is offline: %s", log_dir.path, log_dir.error)
                for partition in self._partitions.values():
                    if partition.log_dir == log_dir.path:
                        partition.go_offline()
                self.on_log_dir_failed(log_dir)

    def _log_dir_of(self, path: str) -> LogDir:
        return next(log_dir for log_dir in self._log_dirs if log_dir.path == path)


def _fresh(orders: list[OpenOrder]) -> list[TopicPartition]:
    return [(order.topic.name, order.index) for order in orders if order.fresh]


def _state_of(log_dir: LogDir) -> LogDirState:
    total, usable = log_dir.space()
    return LogDirState(log_dir.path, total, usable, log_dir.error)


def _tell(order: OpenOrder, report: LoadReport) -> None:
    if report.bytes_cut:
        log.warning(
            "%s-%d: cut a torn tail of %d bytes, the log ends at offset %d",
            order.topic.name,
            order.index,
            report.bytes_cut,
            report.log_end_offset,
        )
