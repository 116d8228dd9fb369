"""When each partition was last looked over for damage, kept over restarts.

Without that a broker that is restarted often would look at its first partitions again and again,
and never at its last. A file for each log dir, written in the pool when something has changed; what
a kill loses of it is looked over once more. By the wall clock, since it has to outlive the process.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock, Pool
from ottla.log.log_dir import LogDir
from ottla.runtime.local_replicas import LocalReplicas


class ScrubTimes:
    def __init__(self, replicas: LocalReplicas, clock: Clock, pool: Pool) -> None:
        self._replicas = replicas
        self._clock = clock
        self._pool = pool
        self._times: dict[TopicPartition, int] = {}
        self._is_changed = False
        self._is_writing = False

    def load(self) -> None:
        for log_dir in self._online_dirs():
            self._times.update(log_dir.read_scrub_times())

    def note(self, key: TopicPartition) -> None:
        """It has just been looked over."""
        self._times[key] = self._clock.wall_ms()
        self._is_changed = True

    def due(self, keys: Iterable[TopicPartition], interval_ms: int) -> list[TopicPartition]:
        """Those that are to be looked over, those never looked at first. Who was looked over in the
        future is among them: the clock was wrong then, or is now."""
        now_ms = self._clock.wall_ms()
        due = [key for key in keys if not 0 <= now_ms - self._times.get(key, -1) < interval_ms]
        return sorted(due, key=lambda key: self._times.get(key, -1))

    def save(self) -> None:
        """Of the partitions that there are now, if anything has changed."""
        if not self._is_changed or self._is_writing:
            return
        self._is_changed = False
        self._is_writing = True
        contents = [(log_dir, self._of(log_dir)) for log_dir in self._online_dirs()]
        self._pool.run(_write, contents).when_done(self._written)

    def _of(self, log_dir: LogDir) -> dict[TopicPartition, int]:
        held = self._replicas.logs_of(log_dir.path)
        keys = [(one.topic, one.partition) for one in held]
        return {key: self._times[key] for key in keys if key in self._times}

    def _written(self, outcome: Deferred[None]) -> None:
        self._is_writing = False
        try:
            outcome.result()
        except StorageError as failure:
            self._replicas.storage_failed(failure)

    def _online_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self._replicas.dirs() if log_dir.error is None]


def _write(contents: list[tuple[LogDir, dict[TopicPartition, int]]]) -> None:
    """In the pool."""
    for log_dir, times in contents:
        log_dir.write_scrub_times(times)
