"""One history of a cluster: brokers start, clients write, faults come, all heals, and all is well.

A seed decides everything. `run` raises at the first event after which something does not hold that
must, or if the cluster does not come to rest after the faults are over (Z5).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.metadata import paths
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import NewTopic, TopicDefaults, decide_create_topics
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import Snapshot
from sim.cluster.broker import Broker
from sim.cluster.clients import Producer
from sim.cluster.faults import Faults
from sim.cluster.network import Network
from sim.cluster.plan import Plan
from sim.cluster.process import Heap, Process
from sim.cluster.states import Violation
from sim.cluster.store import Ensemble, Trouble
from sim.cluster.truth import Truth

R = TypeVar("R")

SESSION_TIMEOUT_MS = 2_000
REQUEST_TIMEOUT_MS = 2_000.0
TOPIC = "orders"
STEP_MS = 250
START_MS_MAX = 20_000
REST_MS_MAX = 90_000
PROBE_MS_MAX = 30_000

_configs: dict[Any, BrokerConfig] = {}


def config_of(
    static: Mapping[str, str], cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
) -> BrokerConfig:
    """Made once for all seeds: it is never changed, and costs as much as hundreds of events."""
    key = tuple(tuple(sorted(part.items())) for part in (static, cluster_wide, per_broker))
    known = _configs.get(key)
    if known is None:
        known = BrokerConfig(static, cluster_wide=cluster_wide, per_broker=per_broker)
        _configs[key] = known
    return known


class World:
    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed = seed
        self.plan = plan or Plan(seed)
        self.heap = Heap()
        self.ensemble = Ensemble(SESSION_TIMEOUT_MS)
        self.trouble = Trouble(self.plan.store_ms, self.plan.told_ms)
        self.network = Network(self.heap, self.chance("network"), REQUEST_TIMEOUT_MS)
        weather = self.network.weather
        weather.delay_ms = self.plan.network_ms
        weather.far_broker, weather.far_ms = self.plan.far_broker, self.plan.far_ms
        self._store_chance = self.chance("store")
        self._process_chance = self.chance("process")
        self._uuids = self.chance("uuids")
        self.producer_ids = 100
        self.broker_ids = list(range(1, self.plan.broker_count + 1))
        settings = self.plan.settings()
        shared = {"min.insync.replicas": settings["min.insync.replicas"]}
        self._static = {
            one: {**settings, "node.id": str(one), "broker.id": str(one)} for one in self.broker_ids
        }
        self.configs = {one: config_of(self._static[one], shared, {}) for one in self.broker_ids}
        self.truth = Truth(self)
        self.brokers = {one: Broker(self, one) for one in self.broker_ids}
        self.network.brokers = self.brokers
        self.faults = Faults(self)
        self.producers: list[Producer] = []
        self.is_healing = False
        self._trace = hashlib.sha256()
        self.heap.after_each = self._after_each

    # -- what the parts draw and ask --------------------------------------------------------

    def chance(self, concern: str) -> Random:
        return Random(f"{self.seed}/{concern}")

    def draw_store(self) -> int:
        return self._store_chance.getrandbits(64)

    def draw_process(self) -> int:
        return self._process_chance.getrandbits(64)

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._uuids.getrandbits(128), version=4)

    def config_with(
        self, broker_id: int, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> BrokerConfig:
        return config_of(self._static[broker_id], cluster_wide, per_broker)

    def _after_each(self, process: Process | None) -> None:
        self.truth.look(process)

    def note(self, what: str) -> None:
        """Into the trace: two runs of a seed must come to the same."""
        self._trace.update(f"{self.heap.now_ms:.3f} {what}\n".encode())

    def trace(self) -> str:
        self.note(f"{self.heap.happened} {self.truth.acked} {self.ensemble.last_change}")
        for key, committed in sorted(self.truth.committed.items()):
            self.note(f"{key} {committed}")
        for (broker_id, key), copy in sorted(self.truth.copies.items()):
            self.note(f"{broker_id} {key} {copy.entries}")
        return self._trace.hexdigest()

    # -- a history --------------------------------------------------------------------------

    def run(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self._until(self._has_topic, START_MS_MAX, "the topic is made")
        for index in range(self.plan.partitions):
            self._produce(index)
        started_ms = self.heap.now_ms
        self.faults.schedule(self.plan.faults)
        self.heap.run(started_ms + self.plan.window_ms)
        self.faults.heal_all()
        self.is_healing = True
        self._until(self.is_at_rest, REST_MS_MAX, "everybody is in sync")
        self._probe()
        self._check_images()
        self.truth.check_end()

    def _produce(self, index: int) -> None:
        chance = self.chance(f"client-{index}-{len(self.producers)}")
        producer = Producer(self, TOPIC, index, chance, is_idempotent=self.plan.is_idempotent)
        self.producers.append(producer)

    def _probe(self) -> None:
        """Who writes now is answered."""
        before = [producer.acked for producer in self.producers]

        def unanswered() -> str | None:
            if TOPIC not in self.truth.states.topics:
                self.make_topic()  # a deletion that was asked for earlier came late
                return "the topic is gone"
            for producer, acked in zip(self.producers, before, strict=True):
                if producer.acked == acked:
                    return f"{producer.topic}-{producer.index} does not answer"
            return None

        self._until(unanswered, PROBE_MS_MAX, "writes are acknowledged")
        for producer in self.producers:
            producer.is_over = True
        self._until(self.is_at_rest, REST_MS_MAX, "everybody has everything")

    def _until(self, holds: Callable[[], str | None], limit_ms: float, what: str) -> None:
        until_ms = self.heap.now_ms + limit_ms
        while True:
            missing = holds()
            if missing is None:
                return
            if self.heap.now_ms >= until_ms:
                raise Violation(f"Z5: it does not come to it that {what}: {missing}")
            self.heap.run(self.heap.now_ms + STEP_MS)

    # -- the topic --------------------------------------------------------------------------

    def submit(self, decide: Callable[[MetadataImage, Broker], Decision[R]]) -> Deferred[R] | None:
        """Ask any broker that serves."""
        up = [one for one in self.brokers.values() if one.is_up and one.life is not None]
        serving = [one for one in up if one.life is not None and one.life.is_serving]
        if not serving:
            return None
        broker = self.faults.chance.choice(serving)
        assert broker.life is not None
        return broker.life.metadata.submit(lambda image: decide(image, broker))

    def make_topic(self) -> None:
        def decide(image: MetadataImage, broker: Broker) -> Decision[Any]:
            return decide_create_topics(
                image,
                [NewTopic(TOPIC, self.plan.partitions, self.plan.replicas)],
                defaults=TopicDefaults(),
                check_configs=lambda configs: None,
                new_uuid=self.new_uuid,
            )

        self.submit(decide)

    def _has_topic(self) -> str | None:
        if TOPIC in self.truth.states.topics:
            return None
        serving = [one for one in self.brokers.values() if one.life and one.life.is_serving]
        if len(serving) == len(self.brokers):
            self.make_topic()
        return f"{len(serving)} brokers serve"

    # -- at rest ----------------------------------------------------------------------------

    def is_at_rest(self) -> str | None:
        """None, or what is missing yet (Z5)."""
        if TOPIC not in self.truth.states.topics:
            self.make_topic()
            return "the topic is gone"
        for broker in self.brokers.values():
            broker.start()  # whose stop took until now
            if broker.life is None or not broker.is_up or not broker.life.is_serving:
                return f"broker {broker.broker_id} does not serve"
            if paths.broker_id(broker.broker_id) not in self.ensemble.nodes:
                return f"broker {broker.broker_id} has lost its session"
            if broker.life.metadata.image.last_change != self.ensemble.last_change:
                return f"broker {broker.broker_id} is behind"
        return self._partitions_at_rest()

    def _partitions_at_rest(self) -> str | None:
        for name, topic in self.truth.states.topics.items():
            for index, replicas in topic.replicas.items():
                state = self.truth.states.by_key[topic.topic_id, index]
                if set(state.in_sync) != set(replicas) or state.leader < 0:
                    return f"{name}-{index} of {replicas} is {state}"
                ends = set()
                for replica in replicas:
                    life = self.brokers[replica].life
                    partition = None if life is None else life.replicas.find(name, index)
                    if partition is None or partition.log is None:
                        return f"broker {replica} has no {name}-{index}"
                    if partition.is_leader != (replica == state.leader):
                        return f"broker {replica} has another role in {name}-{index}"
                    ends.add(partition.log.log_end_offset)
                    if self.producers[0].is_over:
                        ends.add(partition.high_watermark)
                if len(ends) > 1 and self.producers[0].is_over:
                    return f"{name}-{index} ends at {sorted(ends)}"
        return None

    def _check_images(self) -> None:
        """Everybody's image is the store's."""
        truth = image_from_snapshot(Snapshot(self.ensemble.nodes, self.ensemble.last_change))
        for broker in self.brokers.values():
            assert broker.life is not None
            image = broker.life.metadata.image
            if image.topics != truth.topics or image.brokers != truth.brokers:
                raise Violation(f"Z5: broker {broker.broker_id} sees another cluster")
