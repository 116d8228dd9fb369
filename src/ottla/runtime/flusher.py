"""Group commit: one sync of a log in the pool answers every produce that waits for it.

While a sync of a log runs, new requests for it gather; the next sync answers them all. A failed
sync is never retried: the log dir goes offline (a second fsync may "succeed" over lost pages).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.base.ports import Pool
from ottla.log.partition_log import PartitionLog


class Flusher:
    def __init__(self, pool: Pool, storage_failed: Callable[[StorageError], None]) -> None:
        self._pool = pool
        self._storage_failed = storage_failed
        self._running: dict[PartitionLog, list[Deferred[None]]] = {}

    def flush(self, log: PartitionLog) -> Deferred[None]:
        deferred: Deferred[None] = Deferred()
        gathered = self._running.get(log)
        if gathered is not None:
            gathered.append(deferred)
        else:
            self._start(log, [deferred])
        return deferred

    def _start(self, log: PartitionLog, waiting: list[Deferred[None]]) -> None:
        job = log.flush_job()
        if job is None:
            for deferred in waiting:
                deferred.resolve(None)
            return
        self._running[log] = []

        def synced(outcome: Deferred[None]) -> None:
            gathered = self._running.pop(log)
            try:
                outcome.result()
            except StorageError as failure:
                self._storage_failed(failure)
                for deferred in waiting + gathered:
                    deferred.fail(failure)
                return
            log.flush_done(job)
            for deferred in waiting:
                deferred.resolve(None)
            if gathered:
                self._start(log, gathered)

        self._pool.run(job.run).when_done(synced)
