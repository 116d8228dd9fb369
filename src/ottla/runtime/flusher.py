"""Group commit: one sync of a log in the pool answers every produce that waits for it.

While a sync of a log runs, new requests for it gather; the next sync answers them all. A failed
sync is never retried: the log dir goes offline (a second fsync may "succeed" over lost pages).
Who moves a log holds its flushes for a moment; requests gather meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.base.ports import Pool
from ottla.log.partition_log import PartitionLog


class Flusher:
    def __init__(
        self,
        pool: Pool,
        storage_failed: Callable[[StorageError], None],
        on_flushed: Callable[[PartitionLog], None] = lambda log: None,
    ) -> None:
        """`on_flushed` hears of each sync before those who have asked for it."""
        self._pool = pool
        self._storage_failed = storage_failed
        self._on_flushed = on_flushed
        self._running: dict[PartitionLog, list[Deferred[None]]] = {}
        self._sealed_due: set[PartitionLog] = set()
        self._holds: dict[PartitionLog, Deferred[None]] = {}

    def on_roll(self, log: PartitionLog) -> None:
        """Segments that grow no more are synced soon after, so that a restart need not check them;
        nobody waits for that, and the active segment is left alone."""
        if log in self._running:
            self._sealed_due.add(log)
        else:
            self._start(log, [], sealed_only=True)

    def flush(self, log: PartitionLog) -> Deferred[None]:
        deferred: Deferred[None] = Deferred()
        gathered = self._running.get(log)
        if gathered is not None:
            gathered.append(deferred)
        else:
            self._start(log, [deferred])
        return deferred

    def hold(self, log: PartitionLog) -> Deferred[None]:
        """Done when no sync of the log runs: from then on none begins before `release`. Fails with
        the sync that was waited for."""
        held: Deferred[None] = Deferred()
        if log in self._running:
            self._holds[log] = held
        else:
            self._running[log] = []
            held.resolve(None)
        return held

    def release(self, log: PartitionLog) -> Deferred[None]:
        """Done when all that was appended until now is on the disk."""
        done: Deferred[None] = Deferred()
        waiting = [*self._running.pop(log), done]
        self._sealed_due.discard(log)
        try:
            self._start(log, waiting)
        except StorageError as failure:  # of an earlier sync
            for deferred in waiting:
                deferred.fail(failure)
        return done

    def _start(
        self, log: PartitionLog, waiting: list[Deferred[None]], *, sealed_only: bool = False
    ) -> None:
        job = log.flush_job(sealed_only=sealed_only)
        if job is None:
            for deferred in waiting:
                deferred.resolve(None)
            return
        self._running[log] = []

        def synced(outcome: Deferred[None]) -> None:
            gathered = self._running.pop(log)
            hold = self._holds.pop(log, None)
            try:
                outcome.result()
            except StorageError as failure:
                self._storage_failed(failure)
                for deferred in waiting + gathered + ([hold] if hold else []):
                    deferred.fail(failure)
                return
            log.flush_done(job)
            self._on_flushed(log)
            if hold is not None:
                self._running[log] = gathered
            for deferred in waiting:
                deferred.resolve(None)
            if hold is not None:
                hold.resolve(None)
                return
            due = log in self._sealed_due
            self._sealed_due.discard(log)
            if gathered or due:
                self._start(log, gathered, sealed_only=not gathered)

        self._pool.run(job.run).when_done(synced)
