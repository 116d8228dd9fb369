"""The replicas on this broker's disks: made, opened, configured and removed as the image says.

The driver between the metadata image and the replicas. It keeps the table that handlers look
partitions up in, tells each its role and whoever copies for it, and deletes in the pool. A disk
that fails takes its log dir offline, and with it every partition that lives there; the broker goes
on with the others. A replica that breaks an invariant goes offline alone.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from ottla.base.deferred import Deferred, all_of
from ottla.base.errors import StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock, Files, Pool, Timers
from ottla.handlers.context import FutureReplica, LogDirState
from ottla.log.corrupt_mark import write_mark
from ottla.log.file_cache import FileCache
from ottla.log.log_dir import FoundPartition, LogDir
from ottla.log.move_count import read_moves
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.effective import effective_log_config, refused_overrides
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.replication.counted import must_sync
from ottla.replication.effects import Assignment
from ottla.replication.partition import NO_LEADER, Partition
from ottla.runtime.replica_loader import OpenOrder, ReplicaLoader

log = logging.getLogger("ottla.runtime")


class Copying(Protocol):
    """Who copies partitions from their leaders."""

    def follow(self, partition: Partition) -> None: ...
    def unfollow(self, partition: Partition) -> None: ...


class NoCopying:
    """Of a broker that is alone."""

    def follow(self, partition: Partition) -> None:
        """There is nobody to copy from."""

    def unfollow(self, partition: Partition) -> None:
        """Nothing is copied."""


class Moving(Protocol):
    """Who moves replicas between log dirs."""

    def move(self, partition: Partition, path: str) -> bool: ...
    def futures_of(self, log_dir: str) -> Iterable[FutureReplica]: ...
    def on_removed(self, partition: Partition) -> None: ...


class NoMoving:
    """Where they all stay."""

    def move(self, partition: Partition, path: str) -> bool:
        return partition.log_dir == path

    def futures_of(self, log_dir: str) -> Iterable[FutureReplica]:
        return ()

    def on_removed(self, partition: Partition) -> None:
        """Nothing of it is elsewhere."""


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
        is_cluster: bool = False,
    ) -> None:
        self._broker_id = broker_id
        self._files = files
        self._is_cluster = is_cluster
        self._clock = clock
        self._timers = timers
        self._pool = pool
        self._log_dirs = log_dirs
        self._config = config
        self._loader = ReplicaLoader(
            files=files,
            file_cache=file_cache,
            clock=clock,
            pool=pool,
            log_dirs=log_dirs,
            config=config,
        )
        self._partitions: dict[TopicPartition, Partition] = {}
        self._led_before: dict[tuple[uuid.UUID, int], int] = {}
        """Epochs that an earlier life of this broker has led: this one does not know how far it
        was, and others may have copied what is not here any more (R1, R9)."""
        self._corrupt: dict[TopicPartition, None] = {}
        self._lost: dict[str, set[int]] = {}
        """Those that are of no use any more, by topic."""
        self.alarms = 0
        """How many replicas have broken an invariant since the start."""
        self.copying: Copying = NoCopying()
        self.moving: Moving = NoMoving()
        self.on_roll: Callable[[PartitionLog], None] | None = None
        self.flush: Callable[[PartitionLog], object] = lambda log: None
        """Syncs a log; `on_flushed` hears of it."""
        self.on_offline: Callable[[], None] = lambda: None
        """Replicas are of no use any more: others have to do without `all_lost`."""
        self.on_last_dir_failed: Callable[[], None] = lambda: None
        """There is no log dir left that works."""
        self.forget: Callable[[list[TopicPartition]], Deferred[None]] = lambda keys: all_of([])
        """Takes partitions out of the checkpoints on the disk."""

    # -- the table --------------------------------------------------------------------------

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get((topic, partition))

    def all(self) -> Iterable[Partition]:
        return self._partitions.values()

    def lost(self, topic: str) -> Collection[int]:
        return self._lost.get(topic, ())

    def all_lost(self) -> dict[uuid.UUID, frozenset[int]]:
        """By topic id."""
        by_id: dict[uuid.UUID, set[int]] = {}
        for topic, indexes in self._lost.items():
            for index in indexes:
                topic_id = self._partitions[topic, index].topic_id
                by_id.setdefault(topic_id, set()).add(index)
        return {topic_id: frozenset(indexes) for topic_id, indexes in by_id.items()}

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

    # -- between log dirs -------------------------------------------------------------------

    def futures_of(self, log_dir: str) -> Iterable[FutureReplica]:
        return self.moving.futures_of(log_dir)

    def move(self, partition: Partition, log_dir: str) -> bool:
        return self.moving.move(partition, log_dir)

    def prefer(self, topic: str, partition: int, log_dir: str) -> None:
        self._loader.prefer((topic, partition), log_dir)

    def moved(self, partition: Partition, log_dir: LogDir) -> None:
        """Its log is in another log dir now."""
        self._loader.on_moved(partition.log_dir, log_dir.path)
        partition.log_dir = log_dir.path
        partition.is_short_of_room = log_dir.is_short_of_room

    # -- following the image ----------------------------------------------------------------

    def load(self, image: MetadataImage) -> Deferred[None]:
        """Open every replica of ours that the image knows; at start, before any is served."""
        for topic in image.topics.values():
            for refusal in refused_overrides(topic.configs):
                log.warning("a setting of topic %s counts as not set: %s", topic.name, refusal)
        where: dict[TopicPartition, LogDir] = {}
        for log_dir in self._log_dirs:
            if log_dir.error is None:
                self._look_into(log_dir, image, where)
        # What is found nowhere is taken to be where nobody can look, and is offline: with an empty
        # log instead it would be lost as soon as it was served.
        unread = next((one for one in self._log_dirs if one.error is not None), None)
        orders = [
            self._loader.order(topic, index, where.get((topic.name, index), unread))
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
            if self._broker_id in state.replicas
        ]
        if self._is_cluster:
            self._led_before = {
                (topic.topic_id, index): state.leader_epoch
                for topic in image.topics.values()
                for index, state in topic.partitions.items()
                if state.leader == self._broker_id
            }
        finished: Deferred[None] = Deferred()

        def opened(_: Deferred[None]) -> None:
            # Not before: until then there is nothing else to put into a checkpoint.
            self.forget(_fresh(orders)).when_done(lambda outcome: finished.resolve(None))

        self._open(orders).when_done(opened)
        return finished

    def _look_into(
        self, log_dir: LogDir, image: MetadataImage, where: dict[TopicPartition, LogDir]
    ) -> None:
        try:
            for found in log_dir.partitions():
                if self._is_ours(image, found, log_dir):
                    self._keep_later(found, log_dir, where)
                else:
                    # Never deleted: somebody may have put it there for a reason.
                    log.warning("%s is of no topic here; it is set aside", found.path)
                    log_dir.set_stray(found)
        except StorageError as failure:
            if len(self._log_dirs) == 1:
                raise
            self.storage_failed(failure)

    def _keep_later(
        self, found: FoundPartition, log_dir: LogDir, where: dict[TopicPartition, LogDir]
    ) -> None:
        """A replica that was just moved when the broker died may be in two places."""
        key = found.topic, found.partition
        older, later = where.get(key), log_dir
        if older is not None:
            before = read_moves(self._files, older.directory_of(*key))
            now = read_moves(self._files, found.path)
            if before > now:
                older, later = later, older
            if before != now:
                # Its name may be in memory only, and the other copy goes for good.
                later.sync()
                aside = older.set_aside_for_deletion(*key, uuid.UUID(int=0).hex)
                log.warning("%s-%d has moved to %s; %s goes", *key, later.path, aside)
        where[key] = later

    def _is_ours(self, image: MetadataImage, found: FoundPartition, log_dir: LogDir) -> bool:
        topic = image.topics.get(found.topic)
        if topic is None or found.topic_id not in (None, topic.topic_id):
            return False
        if found.topic_id is None and self._is_cluster and log_dir.power_lost:
            # Nothing of it was ever flushed, and it may be of a deleted topic of this name.
            return False
        state = topic.partitions.get(found.partition)
        return state is not None and self._broker_id in state.replicas

    def apply(self, old: MetadataImage, new: MetadataImage) -> Deferred[None]:
        """Do what the difference between two images asks of this broker."""
        orders: list[OpenOrder] = []
        if new.topics is not old.topics:
            self._remove_gone(old, new)
            for name, topic in new.topics.items():
                if old.topics.get(name) is not topic:
                    orders += self._changed(topic)
        # Also where nothing of the topic has changed: one that rotted while it was not in sync
        # leaves no set, so that no change of its own follows.
        orders += self._corrupt_again(new)
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
        self._config = self._loader.config = config
        for topic in image.topics.values():
            self._configure_topic(topic)

    def _changed(self, topic: TopicImage) -> list[OpenOrder]:
        self._configure_topic(topic)
        orders = []
        for index, state in topic.partitions.items():
            partition = self._partitions.get((topic.name, index))
            if self._broker_id not in state.replicas:
                if partition is not None:
                    self._remove(topic.name, index)
            elif partition is None or self._may_start_over(partition, state):
                orders.append(self._loader.order(topic, index, None))
            else:
                self._assume_role(partition, state)
        return orders

    def _corrupt_again(self, image: MetadataImage) -> list[OpenOrder]:
        orders = []
        for name, index in list(self._corrupt):
            topic = image.topics.get(name)
            state = None if topic is None else topic.partitions.get(index)
            if topic is None or state is None:
                continue
            if self._may_start_over(self._partitions[name, index], state):
                orders.append(self._loader.order(topic, index, None))
        return orders

    def _may_start_over(self, partition: Partition, state: PartitionState) -> bool:
        """A corrupt replica is of use again once nobody counts on what it had: with nothing, and
        then with what its leader has. What was found is kept for people to look at."""
        key = partition.topic, partition.partition
        if key not in self._corrupt or self._broker_id in (*state.in_sync, *state.eligible):
            return False
        if state.leader in (NO_LEADER, self._broker_id):
            return False
        log_dir = self.log_dir_of(partition.log_dir)
        try:
            found = FoundPartition(*key, partition.topic_id, log_dir.directory_of(*key))
            aside = log_dir.set_stray(found)
        except StorageError as failure:
            self.storage_failed(failure)
            return False
        log.warning("%s-%d is copied anew; what there was is in %s", *key, aside)
        self.moving.on_removed(partition)
        del self._corrupt[key]
        self._forget_loss(*key)
        self._loader.on_removed(partition.log_dir)
        del self._partitions[key]
        return True

    def _configure_topic(self, topic: TopicImage) -> None:
        config = effective_log_config(self._config, topic.configs)
        for index in topic.partitions:
            partition = self._partitions.get((topic.name, index))
            if partition is not None and partition.log is not None:
                if partition.log.config != config:
                    partition.log.config = config
                    partition.on_config_changed()

    def _assume_role(self, partition: Partition, state: PartitionState) -> None:
        if state.leader == self._broker_id:
            key = partition.topic_id, partition.partition
            if self._led_before.get(key, -1) == state.leader_epoch:
                return  # the controller is about to replace it, and then the epoch is another
        assigned = Assignment(
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            state.replicas,
            state.in_sync,
            state.unclean_epoch,
            state.eligible,
        )
        if not partition.assume(self._broker_id, assigned, self._clock.monotonic_ms()):
            return
        if partition.is_leader and partition.log is not None and must_sync(partition.log):
            self.flush(partition.log)  # what it has copied counts then, and its readers wait for it
        has_leader = partition.leader_id not in (NO_LEADER, self._broker_id)
        if has_leader and partition.log is not None:
            self.copying.follow(partition)
        else:
            self.copying.unfollow(partition)

    def on_flushed(self, held: PartitionLog) -> None:
        partition = self._partitions.get((held.topic, held.partition))
        if partition is not None and partition.log is held:
            partition.on_flushed()

    # -- opening ----------------------------------------------------------------------------

    def _open(self, orders: list[OpenOrder]) -> Deferred[None]:
        finished: Deferred[None] = Deferred()

        def opened(outcome: Deferred[None]) -> None:
            outcome.result()
            offline = [order.key for order in orders if not self._install(order)]
            if offline:
                self._went_offline(offline)
            finished.resolve(None)

        self._loader.open(orders).when_done(opened)
        return finished

    def _install(self, order: OpenOrder) -> bool:
        """Whether it can be used."""
        topic, index = order.topic, order.index
        partition = Partition(topic.name, index, topic.topic_id, order.log_dir.path)
        partition.on_alarm = self._on_alarm
        partition.is_short_of_room = order.log_dir.is_short_of_room
        partition.log = order.opened
        if order.opened is not None:
            order.opened.on_roll = self.on_roll
        self._partitions[order.key] = partition
        if order.failure is not None:
            log.error("partition %s-%d is offline: %s", topic.name, index, order.failure)
            if order.is_corrupt():
                self._corrupt[order.key] = None
            elif isinstance(order.failure, StorageError):
                self.storage_failed(order.failure)
        elif order.opened is not None and not order.fresh:
            self._take_checkpoints(partition, order.opened, order.log_dir)
        self._assume_role(partition, topic.partitions[index])
        return partition.log is not None

    def _take_checkpoints(self, partition: Partition, held: PartitionLog, log_dir: LogDir) -> None:
        key = partition.topic, partition.partition
        known = log_dir.high_watermarks.get(key, 0)
        partition.high_watermark = min(known, held.log_end_offset)
        held.cleaned_to = (log_dir.cleaned_offsets or {}).get(key, -1)

    # -- removing ---------------------------------------------------------------------------

    def _remove_gone(self, old: MetadataImage, new: MetadataImage) -> None:
        for name, topic in old.topics.items():
            kept = new.topics.get(name)
            if kept is topic:
                continue
            is_gone = kept is None or kept.topic_id != topic.topic_id
            for index in topic.partitions:
                # A large topic is deleted from its end.
                if is_gone or (kept is not None and index not in kept.partitions):
                    self._remove(name, index)

    def _remove(self, topic: str, index: int) -> None:
        partition = self._partitions.pop((topic, index), None)
        if partition is None:
            return
        self.copying.unfollow(partition)
        self._loader.on_removed(partition.log_dir)
        self._corrupt.pop((topic, index), None)
        self._forget_loss(topic, index)
        partition.go_away()
        held, partition.log = partition.log, None
        log_dir = self.log_dir_of(partition.log_dir)
        delay_ms = self._config.get_int("log.segment.delete.delay.ms")
        if held is not None:
            # First, so that nothing in the pool takes the new place of its files for a failing
            # disk.
            held.abandon()
            delay_ms = held.config.file_delete_delay_ms
        self.moving.on_removed(partition)
        if held is None and (log_dir.error is not None or not log_dir.has(topic, index)):
            return
        # A corrupt one goes as well: a topic of the same name must not find it.
        try:
            # Renamed on the loop, so that a topic of the same name can be made at once.
            # By a name that is not left to chance: two runs of a simulation must be the same.
            unique = partition.topic_id.hex
            doomed = log_dir.set_aside_for_deletion(topic, index, unique)
        except StorageError as failure:
            self.storage_failed(failure)
            return
        self._timers.call_later(delay_ms, lambda: self.delete_tree(doomed))

    def delete_tree(self, directory: str) -> None:
        def deleted(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except OSError as failure:
                log.warning("%s could not be deleted: %s", directory, failure)

        self._pool.run(self._files.remove_tree, directory).when_done(deleted)

    def set_short_of_room(self, log_dir: LogDir, is_short: bool) -> None:
        """Whether produce is refused there. It is kept with each partition, where a produce looks
        anyway; nobody asks the disk then."""
        log_dir.is_short_of_room = is_short
        for partition in self._partitions.values():
            if partition.log_dir == log_dir.path:
                partition.is_short_of_room = is_short

    # -- failing ----------------------------------------------------------------------------

    def storage_failed(self, failure: StorageError) -> None:
        for log_dir in self._log_dirs:
            if log_dir.holds(failure.path) and log_dir.error is None:
                cause = failure.__cause__
                log_dir.error = f"{failure} ({cause})" if cause else str(failure)
                log.error("log dir %s is offline: %s", log_dir.path, log_dir.error)
                gone = [one for one in self._partitions.values() if one.log_dir == log_dir.path]
                for partition in gone:
                    self.copying.unfollow(partition)
                    partition.go_offline()
                self._went_offline([(one.topic, one.partition) for one in gone])
                if all(one.error is not None for one in self._log_dirs):
                    self.on_last_dir_failed()

    def found_corrupt(self, partition: Partition, reason: str) -> None:
        """What it has is not what was written any more. From now on nobody is served or copies from
        it; others lead, and once nobody counts on it here, it is copied anew. As the only copy it
        stays as it is, for the operator."""
        held = partition.log
        if held is None:
            return
        key = partition.topic, partition.partition
        log.error("partition %s-%d is offline: %s", *key, reason)
        self.copying.unfollow(partition)
        held.abandon()
        partition.go_offline()
        self._corrupt[key] = None
        try:
            write_mark(self._files, held.directory, reason)
        except StorageError as failure:
            self.storage_failed(failure)
        self._went_offline([key])

    def corrupt_in(self, log_dir: str) -> list[TopicPartition]:
        """Those that lie there and are not served because of what is in them."""
        return [key for key in self._corrupt if self._partitions[key].log_dir == log_dir]

    def _on_alarm(self, partition: Partition, reason: str) -> None:
        self.alarms += 1
        log.error(
            "ALARM: %s-%d is offline, because an invariant does not hold: %s",
            partition.topic,
            partition.partition,
            reason,
        )
        held = partition.log
        self.copying.unfollow(partition)
        if held is not None:
            # What it has is kept, and everything of it that is open is let go.
            self._timers.call_later(0, held.abandon)
        self._went_offline([(partition.topic, partition.partition)])

    def _went_offline(self, keys: list[TopicPartition]) -> None:
        for topic, index in keys:
            self._lost.setdefault(topic, set()).add(index)
        self.on_offline()

    def _forget_loss(self, topic: str, index: int) -> None:
        lost = self._lost.get(topic, set())
        lost.discard(index)
        if not lost:
            self._lost.pop(topic, None)

    def log_dir_of(self, path: str) -> LogDir:
        return next(log_dir for log_dir in self._log_dirs if log_dir.path == path)


def _fresh(orders: list[OpenOrder]) -> list[TopicPartition]:
    return [order.key for order in orders if order.fresh]


def _state_of(log_dir: LogDir) -> LogDirState:
    total, usable = log_dir.space()
    return LogDirState(log_dir.path, total, usable, log_dir.error)
