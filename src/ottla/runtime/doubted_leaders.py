"""Asks the store about partitions that have stepped down because a replica spoke of a newer epoch.

If there is such an epoch, its state comes with the answer and says who leads. If there is none, the
replica was wrong, or somebody has spoken in its name: then this broker goes on as the leader, in
the same epoch, and says so in one line. Never believes anything older than its question, and asks
until the store answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, check
from ottla.base.ports import Clock, Timer, Timers
from ottla.replication.effects import InSyncProposal
from ottla.replication.partition import Partition
from ottla.runtime.metadata_driver import MetadataDriver

log = logging.getLogger("ottla.runtime")

RETRY_MS = 500

Claim = tuple[int, int]
"""Which replica spoke, and of which epoch."""


class DoubtedLeaders:
    def __init__(
        self,
        *,
        metadata: MetadataDriver,
        clock: Clock,
        timers: Timers,
        propose: Callable[[Partition, InSyncProposal], None],
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._timers = timers
        self._propose = propose
        self._doubted: dict[Partition, Claim] = {}
        self._is_asking = False
        self._retry: Timer | None = None
        self._is_closed = False
        self.on_resumed: Callable[[], None] = lambda: None
        """Some are led here again: who stands on them has to look."""

    def doubt(self, partition: Partition, replica: int, epoch: int) -> None:
        """The partition has stepped down a moment ago."""
        self._doubted[partition] = replica, epoch
        self._ask()

    def close(self) -> None:
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _ask(self) -> None:
        if self._is_asking or self._is_closed or not self._doubted:
            return
        self._is_asking = True
        asked, self._doubted = self._doubted, {}
        metadata = self._metadata

        def refreshed(outcome: Deferred[None]) -> None:
            error = outcome.error()
            if error is None:
                metadata.when_acted().when_done(lambda _: self._answered(asked))
                return
            check(isinstance(error, OttlaError), f"asking the store failed: {error!r}")
            self._doubted = {**asked, **self._doubted}
            self._retry = self._timers.call_later(RETRY_MS, self._ask_again)

        metadata.lane.run(metadata.store.refresh).when_done(refreshed)

    def _ask_again(self) -> None:
        self._retry = None
        self._is_asking = False
        self._ask()

    def _answered(self, asked: dict[Partition, Claim]) -> None:
        self._is_asking = False
        if self._is_closed:
            return
        resumed = [partition for partition in asked if self._is_led_here(partition)]
        for partition in resumed:
            log.warning(
                "%s-%d: replica %d speaks of leader epoch %d, which the store does not know; "
                "led on in epoch %d",
                partition.topic,
                partition.partition,
                *asked[partition],
                partition.leader_epoch,
            )
            proposal = partition.resume(self._clock.monotonic_ms())
            if proposal is not None:
                self._propose(partition, proposal)
        if resumed:
            self.on_resumed()
        self._ask()

    def _is_led_here(self, partition: Partition) -> bool:
        state = self._metadata.image.partition(partition.topic, partition.partition)
        return (
            partition.is_in_doubt()
            and state is not None
            and state.leader == self._metadata.broker_id
            and state.leader_epoch == partition.leader_epoch
        )
