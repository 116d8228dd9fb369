"""A fetch that finds too little waits, known to each of its partitions, until an append or the
watermark wakes it or its time is up; nothing polls.

It is answered at the end of the loop's turn: the producer that woke it has its answer first, and
what else is appended in the turn goes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.limits import FETCH_WAIT_MS_MAX
from ottla.base.ports import Timer
from ottla.handlers.context import Services
from ottla.handlers.reply import ParkedDeferred
from ottla.replication.partition import Partition


class FetchWait:
    """What both ways of a fetch share while they wait; what is enough they know themselves."""

    __slots__ = ("_is_woken", "_parked", "_partitions", "_services", "_timer", "missing_bytes")

    missing_bytes: int
    """How much more it wants, as far as is known."""
    _parked: ParkedDeferred | None
    _timer: Timer

    def enough(self) -> Any:
        """The answer, if there is enough for one by now; else None, and `missing_bytes` is set."""
        raise AssertionError("each way of a fetch knows what is enough")

    def at_last(self) -> Any:
        """The answer from what there is: its time is up, or a partition is gone."""
        raise AssertionError("each way of a fetch has an answer at last")

    def wait(
        self,
        services: Services,
        partitions: Sequence[Partition],
        missing_bytes: int,
        max_wait_ms: int,
    ) -> ParkedDeferred:
        self._services = services
        self._partitions = partitions
        self._is_woken = False
        self.missing_bytes = missing_bytes
        for partition in partitions:
            partition.add_waiter(self)
        # A client may ask for weeks; one that is gone without a word would be kept for so long.
        wait_ms = min(max_wait_ms, FETCH_WAIT_MS_MAX)
        self._timer = services.timers.call_later(wait_ms, self._end)
        self._parked = parked = ParkedDeferred(self._abandon)
        return parked

    def on_progress(self, partition: Partition, new_bytes: int) -> None:
        """`new_bytes` is 0 when the watermark moved and nobody knows by how much: look again."""
        self.missing_bytes -= new_bytes
        if self._is_woken or (self.missing_bytes > 0 and new_bytes):
            return
        self._is_woken = True
        self._services.soon(self._look)

    def on_gone(self, partition: Partition) -> None:
        self._end()

    def _look(self) -> None:
        self._is_woken = False
        parked = self._parked
        if parked is None:
            return  # answered or abandoned in the same turn
        answer = self.enough()
        # If not, it is hidden by an open transaction, or not so much after all.
        if answer is not None:
            self._abandon()
            parked.resolve(answer)

    def _end(self) -> None:
        parked = self._parked
        if parked is not None:
            self._abandon()
            parked.resolve(self.at_last())

    def _abandon(self) -> None:
        """Nobody waits any more."""
        self._parked = None
        self._timer.cancel()
        for partition in self._partitions:
            partition.remove_waiter(self)
