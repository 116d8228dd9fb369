"""Opens the logs of replicas, in the pool: chosen directories, checkpoints, recovery.

Owns which log dir a new replica goes to and what each thread opens. Never decides which replicas
there are; what came of each order stands in the order.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, StorageError
from ottla.base.ids import TopicPartition
from ottla.base.limits import PREFERRED_LOG_DIRS_MAX
from ottla.base.ports import Clock, Files, Pool
from ottla.log.corrupt_mark import read_mark
from ottla.log.file_cache import FileCache
from ottla.log.log_config import LONG_MAX, LogConfig
from ottla.log.log_dir import FoundPartition, LogDir
from ottla.log.open_log import LoadReport, open_log
from ottla.log.partition_log import PartitionLog
from ottla.log.partition_metadata import read_partition_metadata
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.effective import effective_log_config
from ottla.metadata.image import TopicImage

log = logging.getLogger("ottla.runtime")


@dataclass(slots=True)
class OpenOrder:
    """One log to open in the pool, and what came of it."""

    topic: TopicImage
    index: int
    log_dir: LogDir
    config: LogConfig
    fresh: bool
    """Whether there is nothing on the disk yet; a checkpoint that knows it speaks of another."""
    opened: PartitionLog | None = None
    failure: OttlaError | None = None

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.index

    def is_corrupt(self) -> bool:
        """Its disk is well, but what was written is not there any more as it was."""
        return self.failure is not None and not isinstance(self.failure, StorageError)


class ReplicaLoader:
    def __init__(
        self,
        *,
        files: Files,
        file_cache: FileCache,
        clock: Clock,
        pool: Pool,
        log_dirs: list[LogDir],
        config: BrokerConfig,
    ) -> None:
        self._files = files
        self._file_cache = file_cache
        self._clock = clock
        self._pool = pool
        self._log_dirs = log_dirs
        self._counts = dict.fromkeys((log_dir.path for log_dir in log_dirs), 0)
        self._preferred: dict[TopicPartition, str] = {}
        self.config = config

    def order(self, topic: TopicImage, index: int, log_dir: LogDir | None) -> OpenOrder:
        """`log_dir`: where it is already; None for a new one, which goes where somebody has asked
        for, or where the fewest are."""
        config = effective_log_config(self.config, topic.configs)
        preferred = self._preferred.pop((topic.name, index), None)
        chosen = log_dir or self._emptiest_log_dir(preferred)
        self._counts[chosen.path] += 1
        return OpenOrder(topic, index, chosen, config, fresh=log_dir is None)

    def prefer(self, key: TopicPartition, path: str) -> None:
        """In memory only, as Kafka has it; the oldest wishes are forgotten."""
        self._preferred.pop(key, None)
        self._preferred[key] = path
        while len(self._preferred) > PREFERRED_LOG_DIRS_MAX:
            del self._preferred[next(iter(self._preferred))]

    def on_moved(self, source: str, target: str) -> None:
        self._counts[source] -= 1
        self._counts[target] += 1

    def on_removed(self, path: str) -> None:
        """A replica is gone from this log dir."""
        self._counts[path] -= 1

    def _emptiest_log_dir(self, preferred: str | None) -> LogDir:
        online = [log_dir for log_dir in self._log_dirs if log_dir.error is None]
        for log_dir in online:
            if log_dir.path == preferred:
                return log_dir
        return min(online or self._log_dirs, key=lambda log_dir: self._counts[log_dir.path])

    def open(self, orders: list[OpenOrder]) -> Deferred[None]:
        """Done when all were tried."""
        finished: Deferred[None] = Deferred()
        shares = self._shares(orders)
        left = len(shares)
        if not shares:
            finished.resolve(None)
            return finished

        def opened(outcome: Deferred[None]) -> None:
            nonlocal left
            outcome.result()
            left -= 1
            if left == 0:
                finished.resolve(None)

        for share in shares:
            self._pool.run(self._open_all, share).when_done(opened)
        return finished

    def _shares(self, orders: list[OpenOrder]) -> list[list[OpenOrder]]:
        """What each thread opens: `num.recovery.threads.per.data.dir` of them for each log dir."""
        threads = max(self.config.get_int("num.recovery.threads.per.data.dir"), 1)
        shares = []
        for log_dir in self._log_dirs:
            of_dir = [order for order in orders if order.log_dir is log_dir]
            shares += [of_dir[first::threads] for first in range(min(threads, len(of_dir)))]
        return shares

    def _open_all(self, orders: list[OpenOrder]) -> None:
        """In the pool."""
        expiration_ms = self.config.get_int("producer.id.expiration.ms")
        for order in orders:
            log_dir = order.log_dir
            try:
                if log_dir.error is not None:
                    raise StorageError(log_dir.path, "open")
                if order.fresh:
                    self._make_way(order)
                self._refuse_corrupt(log_dir.directory_of(*order.key))
                opened, report = self._open_one(order, expiration_ms)
                _tell(order, report)
                if report.corrupt is None:
                    _settle(opened)
                    order.opened = opened
                else:
                    order.failure = OttlaError(report.corrupt)
            except OttlaError as failure:
                order.failure = failure

    def _make_way(self, order: OpenOrder) -> None:
        """A new replica gets a directory of its own: one that somebody has put there, of another
        topic of that name, is kept, but not served under this one's name."""
        log_dir, key = order.log_dir, order.key
        if not log_dir.has(*key):
            return
        path = log_dir.directory_of(*key)
        topic_id = read_partition_metadata(self._files, path)
        if topic_id not in (None, order.topic.topic_id):
            aside = log_dir.set_stray(FoundPartition(*key, topic_id, path))
            log.warning("%s is of another topic of this name; it is now %s", path, aside)

    def _refuse_corrupt(self, directory: str) -> None:
        marked = read_mark(self._files, directory)
        if marked is not None:
            raise OttlaError(marked)

    def _open_one(self, order: OpenOrder, expiration_ms: int) -> tuple[PartitionLog, LoadReport]:
        log_dir, topic, key = order.log_dir, order.topic, order.key
        return open_log(
            self._files,
            log_dir.directory_of(*key),
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


def _settle(opened: PartitionLog) -> None:
    """Of what a kill has left, some may not be on the disk yet. Where a record counts once it is
    synced, it has to be before anybody counts it: who leads alone commits all it has at once."""
    if opened.config.flush_messages == LONG_MAX or not opened.unflushed_messages:
        return
    job = opened.flush_job()
    if job is not None:
        job.run()
        opened.flush_done(job)


def _tell(order: OpenOrder, report: LoadReport) -> None:
    if report.bytes_cut:
        log.warning(
            "%s-%d: cut a torn tail of %d bytes, the log ends at offset %d",
            order.topic.name,
            order.index,
            report.bytes_cut,
            report.log_end_offset,
        )
