"""Where a record goes that names no partition: by its key, round-robin, or sticky (KIP-794).

A key goes where Java's client puts it. Without a key, records stay with one partition until
`batch.size` bytes have gone there, then another one is drawn; with adaptive partitioning the
shorter a partition's queue, the likelier it is drawn, so a slow broker gets less. Chance comes in
as a function. One whose batches have been ready to go for `partitioner.availability.timeout.ms` is
not drawn while there are others.

Never chooses a partition without a leader while there is one with.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import ConfigError
from ottla.client.accumulator import TopicLanes
from ottla.client.cluster import Cluster
from ottla.client.lanes import Lane
from ottla.client.murmur2 import partition_of
from ottla.client.producer_settings import ProducerSettings

# Keys that come again are placed from memory: a hash costs microseconds.
_PLACED_MAX = 10_000
_LONG_KEY_BYTES = 256


class Partitioner:
    def __init__(
        self,
        settings: ProducerSettings,
        cluster: Cluster,
        chance: Callable[[], float],
        monotonic_ms: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._monotonic_ms = monotonic_ms
        self._patience_ms = settings.partitioner_availability_timeout_ms
        self._linger_ms = settings.linger_ms
        self._chance = chance
        self._batch_size = settings.batch_size
        self._adaptive = settings.partitioner_adaptive_partitioning_enable
        self._ignores_keys = settings.partitioner_ignore_keys
        self._round_robin = settings.round_robin
        own = settings.partitioner_class
        self._own = None if isinstance(own, str) else own

    def choose(self, topic: TopicLanes, key: bytes | None, value: bytes | None, size: int) -> int:
        if self._own is not None:
            return self._ask(topic, key, value)
        if self._round_robin:
            return self._next_in_turn(topic)
        if key is not None and not self._ignores_keys:
            placed = topic.placed
            partition = placed.get(key)
            if partition is None:
                partition = partition_of(key, topic.count)
                if len(key) <= _LONG_KEY_BYTES:
                    if len(placed) >= _PLACED_MAX:
                        placed.clear()
                    placed[key] = partition
            return partition
        partition = topic.sticky
        if partition < 0 or (
            # Not while a batch is open: half-filled ones would be left behind everywhere.
            topic.sticky_bytes >= self._batch_size and topic.lanes[partition].open is None
        ):
            partition = self.draw(topic)
        topic.sticky_bytes += size
        return partition

    def chooses_freely(self, key: bytes | None) -> bool:
        """Whether such a record may as well go elsewhere when the open batch is full."""
        return (key is None or self._ignores_keys) and self._own is None and not self._round_robin

    def draw(self, topic: TopicLanes) -> int:
        """Another partition for the records without a key."""
        topic.sticky_bytes = 0
        leader_of = self._cluster.leader_of
        lanes = topic.lanes[: topic.count]
        candidates = [lane for lane in lanes if leader_of(topic.name, lane.partition) >= 0] or lanes
        if len(candidates) == 1 or not self._adaptive:
            chosen = candidates[int(self._chance() * len(candidates))]
        else:
            chosen = self._draw_by_queue(candidates)
        topic.sticky = chosen.partition
        return topic.sticky

    def _draw_by_queue(self, candidates: list[Lane]) -> Lane:
        if self._patience_ms:
            before_ms = self._monotonic_ms() - self._linger_ms - self._patience_ms
            candidates = [one for one in candidates if not _waits(one, before_ms)] or candidates
        longest = max(len(lane.waiting) for lane in candidates)
        weights = [longest + 1 - len(lane.waiting) for lane in candidates]
        drawn = self._chance() * sum(weights)
        for lane, weight in zip(candidates, weights, strict=True):
            drawn -= weight
            if drawn < 0:
                return lane
        return candidates[-1]

    def _next_in_turn(self, topic: TopicLanes) -> int:
        leader_of = self._cluster.leader_of
        count = topic.count
        for _ in range(count):
            topic.turn = (topic.turn + 1) % count
            if leader_of(topic.name, topic.turn) >= 0:
                break
        return topic.turn

    def _ask(self, topic: TopicLanes, key: bytes | None, value: bytes | None) -> int:
        assert self._own is not None
        partition = self._own(topic.name, key, value, list(range(topic.count)))
        if not isinstance(partition, int) or not 0 <= partition < topic.count:
            raise ConfigError(
                f"the function given as partitioner.class chose {partition!r} for {topic.name},"
                f" which has partitions 0 to {topic.count - 1}"
            )
        return partition


def _waits(lane: Lane, before_ms: float) -> bool:
    """Whether its broker has not taken what was there before that."""
    return bool(lane.waiting) and lane.waiting[0].created_ms < before_ms
