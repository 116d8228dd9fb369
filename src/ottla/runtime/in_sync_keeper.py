"""Looks after the in-sync sets of the partitions that this broker leads.

Owns the times at which a partition is asked what it wants, and the way of a proposal to the store
and of its outcome back. What to propose the partition decides. One that was refused or lost is
asked for again after a while, for as long as no newer state has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.base.deferred import Deferred
from ottla.base.ports import Clock, Timer, Timers
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.replication.effects import InSyncProposal, Outcome
from ottla.replication.partition import Partition
from ottla.runtime.in_sync_writer import InSyncDoor

RETRY_MS = 500


class LedPartitions(Protocol):
    def all(self) -> Iterable[Partition]: ...


class InSyncKeeper:
    def __init__(
        self,
        *,
        partitions: LedPartitions,
        writer: InSyncDoor,
        clock: Clock,
        timers: Timers,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._partitions = partitions
        self._writer = writer
        self._clock = clock
        self._timers = timers
        self._config = config
        self._image = image
        self._tick: Timer | None = None
        self._unsettled: dict[Partition, None] = {}
        self._proposed: dict[Partition, int] = {}
        """Versions that proposals were made on. Who caught up meanwhile had to wait, and where
        nothing is written it says so only once."""
        self._retry: Timer | None = None

    def start(self) -> None:
        self._schedule()

    def stop(self) -> None:
        for timer in (self._tick, self._retry):
            if timer is not None:
                timer.cancel()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """This broker has acted on `new`. Who came may join, who went is not waited for."""
        if new.brokers is not old.brokers:
            self.check_all()
        if self._proposed and new.topics is not old.topics:
            for partition, version in list(self._proposed.items()):
                state = new.partition(partition.topic, partition.partition)
                if state is None or state.partition_epoch > version:
                    del self._proposed[partition]
                    self._check(partition)

    def may_be_member(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        return (
            broker is not None
            and broker.epoch == broker_epoch
            and not (broker.fenced or broker.shutting_down or broker.unclean)
        )

    def check_all(self) -> None:
        for partition in list(self._partitions.all()):
            self._check(partition)

    def _check(self, partition: Partition) -> None:
        if not partition.is_leader or len(partition.replicas) < 2:
            return
        lag_ms_max = self._config().get_int("replica.lag.time.max.ms")
        now_ms = self._clock.monotonic_ms()
        lost = self._lost_by(partition)
        proposal = partition.check_in_sync(
            now_ms,
            lag_ms_max,
            lambda broker, epoch: broker not in lost and self.may_be_member(broker, epoch),
        )
        if proposal is not None:
            self.propose(partition, proposal)

    def _lost_by(self, partition: Partition) -> frozenset[int]:
        """Who has no disk for it any more. Its broker lives and fetches other partitions, so that
        it looks like one that has all there is."""
        image = self._image()
        topic = image.topic_by_id(partition.topic_id)
        return frozenset() if topic is None else image.lost_by(topic, partition.partition)

    def propose(self, partition: Partition, proposal: InSyncProposal) -> None:
        self._proposed[partition] = proposal.partition_epoch

        def settled(answer: Deferred[Outcome]) -> None:
            if partition.on_proposal_outcome(proposal, answer.result()):
                self._unsettled[partition] = None
                if self._retry is None:
                    self._retry = self._timers.call_later(RETRY_MS, self._ask_again)

        self._writer.propose(proposal).when_done(settled)

    def _ask_again(self) -> None:
        self._retry = None
        unsettled, self._unsettled = self._unsettled, {}
        for partition in unsettled:
            proposal = partition.propose_again()
            if proposal is not None:
                self.propose(partition, proposal)

    def _schedule(self) -> None:
        interval_ms = self._config().get_int("replica.lag.time.max.ms") // 2
        self._tick = self._timers.call_later(max(interval_ms, 1), self._on_tick)

    def _on_tick(self) -> None:
        self.check_all()
        self._schedule()
