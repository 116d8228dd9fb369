"""What goes wrong, and how it ends.

Each fault draws from a generator of its own, seeded by the plan: dropping one changes nothing of
the others, which is what shrinking needs.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.base.errors import StorageError
from ottla.metadata.config_control import ConfigChange, ThisBroker, decide_incremental_alter_configs
from ottla.metadata.decision import Decision
from ottla.metadata.elections import PREFERRED, UNCLEAN, decide_elect_leaders
from ottla.metadata.image import MetadataImage
from ottla.metadata.reassignment import Reassignment, decide_alter_reassignments
from ottla.metadata.topics_control import TopicSelection, decide_delete_topics
from ottla.protocol.replica_fetch import pack_partition, pack_replica_fetch, pack_tail
from sim.cluster.plan import Fault

if TYPE_CHECKING:
    from sim.cluster.broker import Broker
    from sim.cluster.world import World


class Faults:
    def __init__(self, world: World) -> None:
        self._world = world
        self.chance = world.chance("requests")
        self.count = 0
        self.by_kind: dict[str, int] = {}

    def schedule(self, faults: list[Fault]) -> None:
        for fault in faults:
            self._world.heap.push(fault.at_ms, self._happen(fault))

    def _happen(self, fault: Fault) -> Callable[[], None]:
        def happen() -> None:
            self.count += 1
            self.by_kind[fault.kind] = self.by_kind.get(fault.kind, 0) + 1
            self._world.note(fault.kind)
            getattr(self, f"_{fault.kind}")(Random(fault.seed))

        return happen

    def heal_all(self) -> None:
        world = self._world
        weather = world.network.weather
        weather.loss = weather.repeats = 0.0
        weather.slow.clear()
        world.trouble.loss = 0.0
        for source, target in list(weather.cut):
            world.network.heal(source, target)
        for broker in world.brokers.values():
            if broker.life is not None and broker.life.log_dir.error is not None:
                broker.kill()
            self._resume(broker)
            self._come_back(broker)
            broker.start()

    def _later(self, delay_ms: float, what: Callable[[], None]) -> None:
        self._world.heap.push(delay_ms, what)

    def _any(self, chance: Random) -> Broker:
        """Leaders more often than others: that is where it matters."""
        world = self._world
        if chance.random() < 0.5:
            leaders = [
                state.leader for state in world.truth.states.by_key.values() if state.leader > 0
            ]
            if leaders:
                return world.brokers[chance.choice(leaders)]
        return world.brokers[chance.choice(world.broker_ids)]

    # -- processes --------------------------------------------------------------------------

    def _kill(self, chance: Random) -> None:
        broker = self._any(chance)
        broker.kill()
        self._later(chance.choice((10, 300, 1_500, 4_000)) * chance.random(), broker.start)

    def _kill_all(self, chance: Random) -> None:
        for broker in self._world.brokers.values():
            broker.kill()
            self._later(chance.uniform(10, 2_000), broker.start)

    def _stop(self, chance: Random) -> None:
        broker = self._any(chance)
        broker.stop()
        self._later(chance.uniform(1_000, 5_000), broker.start)

    def _power(self, chance: Random) -> None:
        self._cut_power(self._any(chance), chance)

    def _power_all(self, chance: Random) -> None:
        for broker in self._world.brokers.values():
            self._cut_power(broker, chance)

    def _cut_power(self, broker: Broker, chance: Random) -> None:
        if broker.process is not None:
            self._world.truth.on_power_cut(broker.broker_id, is_flushed=self._world.plan.is_flushed)
        broker.kill(chance)
        self._later(chance.uniform(50, 4_000), broker.start)

    def _disk(self, chance: Random) -> None:
        """It takes and gives nothing any more, until the broker is started again."""
        broker = self._any(chance)
        life, process = broker.life, broker.process
        if life is None or process is None or not life.is_serving:
            return

        def fail() -> None:
            life.replicas.storage_failed(StorageError(life.log_dir.path, "append"))

        def restart() -> None:
            if broker.life is life:
                broker.kill()
                self._later(chance.uniform(10, 2_000), broker.start)

        self._world.heap.push(0, fail, process)
        self._later(chance.choice((50, 1_000, 5_000)) * chance.random(), restart)

    def _pause(self, chance: Random) -> None:
        broker = self._any(chance)
        process, life = broker.process, broker.life
        if process is None or life is None or process.waiting is not None:
            return
        process.pause()
        self._go_away(broker)
        self._later(chance.uniform(100, 6_000), lambda: self._resume(broker))

    def _resume(self, broker: Broker) -> None:
        if broker.process is not None and broker.process.waiting is not None:
            broker.process.resume()
            # It finds out a moment later that it was away for too long.
            self._later(5, lambda: self._come_back(broker))

    # -- the store --------------------------------------------------------------------------

    def _go_away(self, broker: Broker) -> None:
        life, world = broker.life, self._world
        if life is None or life.store.is_cut_off:
            return
        store = life.store
        store.cut_off()
        since_ms = store._cut_off_ms

        def expire() -> None:
            if store._cut_off_ms == since_ms and store.is_cut_off:
                store.expire()

        self._later(world.ensemble.session_timeout_ms, expire)

    def _come_back(self, broker: Broker) -> None:
        life = broker.life
        if life is None or broker.process is None or broker.process.waiting is not None:
            return
        if life.store.is_cut_off:
            life.store.heal()

    def _away(self, chance: Random) -> None:
        """From the store only."""
        brokers = [self._any(chance)]
        if chance.random() < 0.25:
            brokers = list(self._world.brokers.values())
        lasts_ms = chance.uniform(100, 5_000)
        for broker in brokers:
            if broker.process is not None:
                self._go_away(broker)
                self._later(lasts_ms, self._return_of(broker))

    def _return_of(self, broker: Broker) -> Callable[[], None]:
        return lambda: self._come_back(broker)

    def _expire(self, chance: Random) -> None:
        broker = self._any(chance)
        if broker.process is not None and broker.life is not None:
            broker.life.store.expire()

    def _store_loss(self, chance: Random) -> None:
        trouble = self._world.trouble
        trouble.loss = chance.uniform(0.1, 0.7)
        self._later(chance.uniform(500, 4_000), lambda: setattr(trouble, "loss", 0.0))

    # -- the network ------------------------------------------------------------------------

    def _cut(self, chance: Random) -> None:
        """One way."""
        source, target = chance.sample(self._world.broker_ids, 2)
        self._cut_for(source, target, chance.uniform(200, 6_000))

    def _cut_for(self, source: int, target: int, lasts_ms: float) -> None:
        network = self._world.network
        network.cut(source, target)
        self._later(lasts_ms, lambda: network.heal(source, target))

    def _isolate(self, chance: Random) -> None:
        broker = self._any(chance)
        lasts_ms = chance.uniform(500, 6_000)
        for other in self._world.broker_ids:
            if other != broker.broker_id:
                self._cut_for(broker.broker_id, other, lasts_ms)
                self._cut_for(other, broker.broker_id, lasts_ms * chance.uniform(0.5, 1))
        if chance.random() < 0.5:
            self._go_away(broker)
            self._later(lasts_ms, self._return_of(broker))

    def _loss(self, chance: Random) -> None:
        weather = self._world.network.weather
        weather.loss = chance.choice((0.02, 0.1, 0.3))
        weather.late = chance.choice((0.0, 0.5, 1.0))
        weather.repeats = chance.choice((0.0, 0.1, 0.3))

        def end() -> None:
            weather.loss = weather.repeats = 0.0

        self._later(chance.uniform(500, 5_000), end)

    def _slow(self, chance: Random) -> None:
        source, target = chance.sample(self._world.broker_ids, 2)
        slow = self._world.network.weather.slow
        slow[source, target] = chance.choice((20.0, 200.0, 1_000.0))

        def end() -> None:
            slow.pop((source, target), None)

        self._later(chance.uniform(500, 5_000), end)

    def _rumour(self, chance: Random) -> None:
        """The leader gets a fetch in a follower's name, with an epoch that there never was."""
        place = self._partition(chance)
        if place is None:
            return
        world = self._world
        state = world.truth.states.find(*place)
        if state is None or state.leader not in world.brokers:
            return
        leader = world.brokers[state.leader]
        life, process = leader.life, leader.process
        topic = world.truth.states.topics[place[0]]
        others = [one for one in topic.replicas[place[1]] if one != state.leader]
        if not leader.is_up or life is None or process is None or not others:
            return
        replica = chance.choice(others)
        registered = life.metadata.image.brokers.get(replica)
        epoch = state.leader_epoch + chance.choice((1, 1, 2, 1_000))
        asked = pack_partition(place[1], epoch, 0, -1, 0, 1 << 20, 0)
        tail = pack_tail(replica, -1 if registered is None else registered.epoch)
        body = pack_replica_fetch(
            (0, 1, 1 << 20), (0, 0), {topic.topic_id.bytes: [asked]}, {}, tail
        )
        world.heap.push(0, lambda: leader.serve_fetch(body, replica, lambda reply: None), process)

    # -- what people ask for ----------------------------------------------------------------

    def _partition(self, chance: Random) -> tuple[str, int] | None:
        topics = self._world.truth.states.topics
        if not topics:
            return None
        name = chance.choice(sorted(topics))
        return name, chance.choice(sorted(topics[name].replicas))

    def _elect(self, chance: Random) -> None:
        place = self._partition(chance)
        if place is None:
            return
        kind = UNCLEAN if self._world.plan.is_unclean and chance.random() < 0.5 else PREFERRED

        def decide(image: MetadataImage, broker: Broker) -> Decision[Any]:
            assert broker.life is not None
            return decide_elect_leaders(image, [place], kind, broker.life.metadata.settings())

        self._world.submit(decide)

    _unclean = _elect

    def _move(self, chance: Random) -> None:
        place = self._partition(chance)
        if place is None:
            return
        world = self._world
        order = chance.sample(world.broker_ids, len(world.broker_ids))
        replicas = None if chance.random() < 0.15 else order[: chance.choice((2, 3, 3))]

        def decide(image: MetadataImage, broker: Broker) -> Decision[Any]:
            assert broker.life is not None
            return decide_alter_reassignments(
                image, [Reassignment(*place, replicas)], broker.life.metadata.settings()
            )

        world.submit(decide)

    def _settings(self, chance: Random) -> None:
        place = self._partition(chance)
        if place is None:
            return
        name, value = chance.choice(
            (
                ("min.insync.replicas", "1"),
                ("min.insync.replicas", "2"),
                ("min.insync.replicas", "3"),
            )
        )
        operation = (name, 0, value)

        def decide(image: MetadataImage, broker: Broker) -> Decision[Any]:
            assert broker.life is not None
            this = ThisBroker(broker.broker_id, broker.life.config)
            change = ConfigChange(2, place[0], [operation])
            return decide_incremental_alter_configs(image, [change], broker=this)

        self._world.submit(decide)

    def _remake(self, chance: Random) -> None:
        """The topic is deleted, and made again under its name."""
        topics = self._world.truth.states.topics
        if not topics:
            return
        name = chance.choice(sorted(topics))

        def decide(image: MetadataImage, broker: Broker) -> Decision[Any]:
            return decide_delete_topics(image, [TopicSelection(name)])

        self._world.submit(decide)
        self._later(chance.uniform(100, 1_500), self._world.make_topic)
