"""Records on their way into batches: lanes by topic and partition, memory, what is ready.

Owns `buffer.memory` and the lingering of open batches. A batch is ready when it is full, when it
has lingered, when somebody flushes, or when memory is short; then its lane stands in the queue of
the node that leads it, each lane at most once. So a turn costs as much as there is to send, however
many partitions there are.

Never sends. Always holds: `used_bytes` is what the batches that are not done were charged.
"""

from __future__ import annotations

import uuid
from collections import deque

from ottla.client.cluster import Cluster
from ottla.client.lanes import Lane
from ottla.client.pending import Pending
from ottla.client.producer_batch import ProducerBatch
from ottla.client.producer_settings import ProducerSettings
from ottla.protocol.error_codes import NONE
from ottla.protocol.primitives import NULL_UUID

# How much smaller a codec makes a topic's batches is guessed from those before; at most so much.
_RATIO_MIN = 0.1
_RATIO_WEIGHT = 0.1
_DONE_KEPT_MAX = 1_000


class TopicLanes:
    """A topic's lanes by partition, and what partitioners remember of it.

    Lanes stay even if the topic is made anew with fewer partitions: should metadata of the old one
    come late, and then of the new one again, each goes on with its numbers.
    """

    __slots__ = (
        "count",
        "lanes",
        "name",
        "placed",
        "ratio",
        "sticky",
        "sticky_bytes",
        "topic_id",
        "turn",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = NULL_UUID
        self.lanes: list[Lane] = []
        self.count = 0  # of the partitions that there are; never more than there are lanes
        self.placed: dict[bytes, int] = {}
        self.sticky = -1
        self.sticky_bytes = 0
        self.turn = -1
        self.ratio = 1.0

    def resize(self, partition_count: int, topic_id: uuid.UUID) -> None:
        """A topic grows; it has fewer partitions only when it is another one of that name."""
        if partition_count < self.count and topic_id in (self.topic_id, NULL_UUID):
            return  # from a broker that lags behind
        self.topic_id = topic_id
        if partition_count == self.count:
            return
        for partition in range(len(self.lanes), partition_count):
            self.lanes.append(Lane(self.name, partition))
        self.count = partition_count
        # Another count puts keys elsewhere.
        self.placed.clear()
        if self.sticky >= partition_count:
            self.sticky = -1


class Accumulator:
    def __init__(self, settings: ProducerSettings, cluster: Cluster) -> None:
        self._cluster = cluster
        self._batch_size = settings.batch_size
        self._linger_ms = settings.linger_ms
        self._delivery_timeout_ms = settings.delivery_timeout_ms
        self._is_packed = settings.compression_type != "none"
        self.buffer_memory = settings.buffer_memory
        self.used_bytes = 0
        self.topics: dict[str, TopicLanes] = {}
        self.queues: dict[int, deque[Lane]] = {}
        self.queued = 0  # lanes in all of them
        self.by_age: deque[ProducerBatch] = deque()  # all that are not done, and some that are
        self._lingering: deque[tuple[float, ProducerBatch]] = deque()
        self._short: deque[tuple[int, Pending[None]]] = deque()  # (bytes, settled if they fit)
        self._flushes: deque[tuple[int, Pending[None]]] = deque()  # (last batch, settled after it)
        self._last_number = 0
        self.unfinished = 0
        self.wants_turn = False  # whether somebody should look what can be sent, or when

    # -------------------------------------------------------------------------------- records

    def open_batch(self, lane: Lane, record_bytes: int, now_ms: float) -> ProducerBatch:
        """A new batch at the end of the lane; the one before it is full."""
        ratio = self.topics[lane.topic].ratio
        bytes_max = int(self._batch_size / ratio) if self._is_packed else self._batch_size
        batch = ProducerBatch(
            lane, max(bytes_max, record_bytes), now_ms, now_ms + self._delivery_timeout_ms
        )
        self.add(batch)
        lane.open = batch
        if self._short:
            self.wants_turn = True
            self.enqueue(lane)
        if self._linger_ms:  # even then: memory may suffice again before it has gone
            self.wants_turn |= not self._lingering
            self._lingering.append((now_ms + self._linger_ms, batch))
        return batch

    def add(self, batch: ProducerBatch) -> None:
        """At the end of its lane."""
        lane = batch.lane
        self._last_number += 1
        batch.number = (self._last_number,)
        lane.waiting.append(batch)
        lane.order.append(batch)
        self.by_age.append(batch)
        self.unfinished += 1

    def seal(self, lane: Lane) -> None:
        """The open batch takes no more and may go."""
        if lane.open is not None:
            lane.open.is_sealed = True
            lane.open = None
            self.wants_turn = True
            self.enqueue(lane)

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for memory: then nothing lingers."""
        return bool(self._short)

    def memory(self, size: int) -> Pending[None]:
        """Settled when so much of it has been given back; in the order of asking."""
        if not self._short:
            self.wants_turn = True
            self.enqueue_all()
        pending: Pending[None] = Pending()
        self._short.append((size, pending))
        return pending

    def wake(self) -> None:
        """Lets all go on for whom there is memory now; who waits no more has settled itself."""
        short, free = self._short, self.buffer_memory - self.used_bytes
        while short and (short[0][1].done or short[0][0] <= free):
            size, pending = short.popleft()
            if not pending.done:
                free -= size
                pending.resolve(None)

    # ------------------------------------------------------------------------------ readiness

    def enqueue(self, lane: Lane) -> None:
        """Into the queue of its leader, to be looked at when that can take a request."""
        if lane.queued_at is not None or not lane.waiting:
            return
        node_id = self._cluster.leader_of(lane.topic, lane.partition)
        lane.queued_at = node_id
        self.queued += 1
        queue = self.queues.get(node_id)
        if queue is None:
            queue = self.queues[node_id] = deque()
        queue.append(lane)

    def on_metadata(self) -> None:
        """Leaders may have moved, and topics may have grown."""
        for topic in self.topics.values():
            info = self._cluster.topics.get(topic.name)
            if info is not None and info.error_code == NONE:
                topic.resize(len(info.partitions), info.topic_id)
        queued = [lane for queue in self.queues.values() for lane in queue]
        self.queues.clear()
        self.queued = 0
        for lane in queued:
            lane.queued_at = None
            self.enqueue(lane)

    def requeue(self, lane: Lane) -> None:
        """Its leader is another one now."""
        if lane.queued_at is not None:
            self.queues[lane.queued_at].remove(lane)
            self.queued -= 1
            lane.queued_at = None
        self.enqueue(lane)

    def enqueue_all(self) -> None:
        """What all lanes waited for is there."""
        for topic in self.topics.values():
            for lane in topic.lanes:
                self.enqueue(lane)

    def end_lingering(self, now_ms: float) -> None:
        lingering = self._lingering
        while lingering and (lingering[0][0] <= now_ms or lingering[0][1].is_sealed):
            batch = lingering.popleft()[1]
            if not batch.is_sealed:
                # Not sealed yet: until it can be sent it may go on to grow.
                self.enqueue(batch.lane)

    def next_deadline_ms(self) -> float | None:
        """When the next batch has lingered, or has waited for its delivery too long."""
        lingering, oldest = self._lingering, self.oldest()
        while lingering and lingering[0][1].is_sealed:
            lingering.popleft()
        if oldest is None:
            return None  # nothing lingers then, either
        return min(lingering[0][0], oldest.deadline_ms) if lingering else oldest.deadline_ms

    def seal_all(self) -> None:
        for topic in self.topics.values():
            for lane in topic.lanes:
                self.seal(lane)

    # ---------------------------------------------------------------------------------- done

    def on_packed(self, batch: ProducerBatch) -> None:
        """After compression: a guess for the next batch of the topic."""
        topic = self.topics[batch.lane.topic]
        ratio = batch.size / max(1, len(batch.records))
        topic.ratio = max(_RATIO_MIN, topic.ratio + _RATIO_WEIGHT * (ratio - topic.ratio))

    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        topic = self.topics[batch.lane.topic]
        topic.ratio = 1.0
        self.unfinished += len(parts) - 1
        # Where the batch stood: others may have begun, and be waited for, before and after it.
        batches = [*self.unfinished_batches(), *parts]
        self.by_age = deque(sorted(batches, key=lambda one: one.number))

    def on_done(self, batch: ProducerBatch) -> None:
        self.used_bytes -= batch.charged_bytes
        self.unfinished -= 1
        batch.release()
        if len(self.by_age) > 2 * self.unfinished + _DONE_KEPT_MAX:
            # One that is stuck must not keep all that came after it.
            self.by_age = deque(self.unfinished_batches())
        if self._short:
            self.wake()
        flushes = self._flushes
        if flushes:
            oldest = self.oldest()
            while flushes and (oldest is None or oldest.number[0] > flushes[0][0]):
                flushes.popleft()[1].resolve(None)

    def oldest(self) -> ProducerBatch | None:
        """Of those that are not done."""
        by_age = self.by_age
        while by_age and (by_age[0].done or by_age[0].parts is not None):
            by_age.popleft()
        return by_age[0] if by_age else None

    def flushed(self) -> Pending[None]:
        """Settled when everything that is here now is done."""
        self.seal_all()
        pending: Pending[None] = Pending()
        if self.oldest() is None:
            pending.resolve(None)
        else:
            self._flushes.append((self._last_number, pending))
        return pending

    def unfinished_batches(self) -> list[ProducerBatch]:
        return [batch for batch in self.by_age if not batch.done and batch.parts is None]
