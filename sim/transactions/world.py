"""One seed of the world: producers and sinks, coordinators and leaders that die, a bad network.

First everything that the dice allow happens; then the world heals, and nothing may be left open.
Readers look all the time, and at the end every log is read from its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

from ottla.coordinator.shard import Caller
from ottla.coordinator.transaction_asks import TransactionConfig
from ottla.coordinator.transaction_records import DECIDED, NO_EPOCH, ONGOING
from sim.groups.virtual import VirtualTime
from sim.transactions.checks import (
    check_known,
    check_markers,
    check_producers,
    check_stable,
    decisions,
    seen_by_committed,
)
from sim.transactions.cluster import OFFSETS, STATE, TICK_MS, TOPIC, Cluster
from sim.transactions.keeper import Keeper, Outside
from sim.transactions.ledger import Ledger, Violation
from sim.transactions.network import LATE_MS_MAX, Network
from sim.transactions.producer import NEW, OLD, TIMEOUT_MS, Call, Client, Script, Sink

TROUBLE_MS = 30_000


@dataclass
class Plan:
    """What may happen in this seed, and how often. A quarter of all seeds is untroubled."""

    partitions: int
    clients: int
    old_share: float
    sink_ms: int
    loss: float
    late: float
    fault_ms: int
    churn_ms: int
    two_phase: bool
    """Whether two-phase commit is allowed: then some clients do so."""

    @classmethod
    def draw(cls, dice: Random, *, is_rough: bool) -> Plan:
        """A rough one has no calm and much that is late: there a planted bug shows soonest."""
        calm = dice.random() < 0.25 and not is_rough
        return cls(
            partitions=dice.randint(1, 3),
            clients=dice.randint(1, 3),
            old_share=dice.choice((0, 0.5, 1)),
            sink_ms=dice.choice((1500, 4000, TROUBLE_MS * 2)),
            loss=0 if calm else dice.choice((0, 0.02, 0.1)),
            late=0 if calm else dice.choice((0.1, 0.3) if is_rough else (0, 0.1, 0.3)),
            fault_ms=TROUBLE_MS * 2 if calm else dice.choice((1000, 3000, 8000)),
            churn_ms=TROUBLE_MS * 2 if calm else dice.choice((1500, 5000)),
            two_phase=dice.random() < 0.5,
        )


class Process:
    """Runs a client's script. Asleep, it hears nothing, and goes on with what it knew."""

    def __init__(self, world: World, script: Script) -> None:
        self._world = world
        self._script = script
        self._heard: list[Any] = []
        self.is_asleep = False
        self.is_done = False

    def start(self) -> None:
        self._go_on(None)

    def kill(self) -> None:
        self.is_done = True

    def sleep(self, milliseconds: int) -> None:
        self.is_asleep = True
        self._world.time.call_later(milliseconds, self.wake)

    def wake(self) -> None:
        self.is_asleep = False
        heard, self._heard = self._heard, []
        for value in heard:
            self._go_on(value)

    def _go_on(self, value: Any) -> None:
        if self.is_done:
            return
        if self.is_asleep:
            self._heard.append(value)
            return
        try:
            wanted = self._script.send(value)
        except StopIteration:
            self.is_done = True
            return
        if isinstance(wanted, Call):
            self._world.network.ask(wanted.act, self._go_on, may_be_late=wanted.may_be_late)
        else:
            self._world.time.call_later(wanted, lambda: self._go_on(None))


class World:
    def __init__(self, seed: int, *, is_rough: bool = False) -> None:
        self.dice = Random(seed)
        self.plan = Plan.draw(self.dice, is_rough=is_rough)
        self.time = VirtualTime()
        self.network = Network(self.time, self.dice, loss=self.plan.loss, late=self.plan.late)
        config = TransactionConfig(two_phase_commit=self.plan.two_phase)
        self.cluster = Cluster(self.time, self.dice, self.network, self.plan.partitions, config)
        self.ledger = Ledger()
        self.faults = 0
        self.is_healed = False
        self._sinks = 0
        self._sleepers: list[Process] = []
        self._versions = [
            OLD if self.dice.random() < self.plan.old_share else NEW
            for _ in range(self.plan.clients)
        ]
        self._outsides = {
            number: Outside()
            for number in range(self.plan.clients)
            if self.plan.two_phase and self.dice.random() < 0.6
        }
        self._producers = [self._new_producer(number) for number in range(self.plan.clients)]

    # -- the course of things ---------------------------------------------------------------

    def run(self) -> None:
        for process in self._producers:
            process.start()
        self.time.call_later(self.plan.fault_ms, self._fault)
        self.time.call_later(self.plan.churn_ms, self._churn)
        self.time.call_later(self.plan.sink_ms, self._new_sink)
        while self.time.monotonic_ms() < TROUBLE_MS:
            self.time.advance(self.dice.randint(200, 2500))
            self.check()
        self._heal()
        self.check_rest()

    def _heal(self) -> None:
        """No more trouble and no more producers; what waits for a decision has it carried out."""
        self.is_healed = self.network.is_healed = True
        for process in (*self._producers, *self._sleepers):
            process.kill()
        for place, replica in self.cluster.replicas.items():
            replica.holds_back = False
            self.cluster.elect(place)
            replica.copy()
        for number, outside in self._outsides.items():
            keeper = self._new_keeper(number)
            gives_up = outside.noted is None and self.dice.random() < 0.5
            Process(self, keeper.give_up() if gives_up else keeper.finish()).start()
        # T4: nothing is open for longer than its time-out and ten seconds. What is late arrives.
        self.time.advance(LATE_MS_MAX + TIMEOUT_MS * 4)
        self.time.advance(TIMEOUT_MS + 10_000 + TICK_MS)

    def _new_keeper(self, number: int) -> Keeper:
        keeper = Keeper(self.cluster, self.ledger, self.dice, f"producer-{number}", NEW)
        keeper.outside = self._outsides[number]
        return keeper

    def _new_producer(self, number: int) -> Process:
        if number in self._outsides:
            return Process(self, self._new_keeper(number).work_for_ever())
        client = Client(
            self.cluster, self.ledger, self.dice, f"producer-{number}", self._versions[number]
        )
        return Process(self, client.produce_for_ever())

    def _new_sink(self) -> None:
        if self.is_healed:
            return
        self._sinks += 1
        sink = Sink(self.cluster, self.ledger, self.dice, f"sink-{self._sinks}", NEW)
        process = Process(self, sink.write_and_prepare())
        process.start()
        self.time.call_later(self.dice.randint(1, self.plan.sink_ms * 2), self._new_sink)

    def _churn(self) -> None:
        """A producer dies or falls asleep, and another with its id takes over."""
        if self.is_healed:
            return
        self.faults += 1
        self.time.call_later(self.dice.randint(1, self.plan.churn_ms * 2), self._churn)
        number = self.dice.randrange(self.plan.clients)
        old = self._producers[number]
        if self.dice.random() < 0.5:
            old.sleep(self.dice.randint(100, LATE_MS_MAX))
            self._sleepers.append(old)
            if self.dice.random() < 0.3:
                return  # nobody notices
        else:
            old.kill()
        self._producers[number] = self._new_producer(number)
        self.time.call_later(self.dice.randint(0, TIMEOUT_MS), self._producers[number].start)

    def _fault(self) -> None:
        if self.is_healed:
            return
        self.faults += 1
        self.time.call_later(self.dice.randint(1, self.plan.fault_ms * 2), self._fault)
        place = self.dice.choice(
            (*self.cluster.data_places, OFFSETS, STATE, STATE, self.cluster.data_places[0])
        )
        replica = self.cluster.replicas[place]
        if self.dice.random() < 0.3:
            replica.holds_back = True
            self.time.call_later(self.dice.randint(100, 6000), lambda: self._release(place))
            return
        self.cluster.kill(place, loses=self.dice.random() < 0.7)
        self.time.call_later(self.dice.choice((0, 50, 1500)), lambda: self.cluster.elect(place))

    def _release(self, place: tuple[str, int]) -> None:
        replica = self.cluster.replicas[place]
        replica.holds_back = False
        replica.copy()

    # -- what has to hold -------------------------------------------------------------------

    def check(self) -> None:
        for place in self.cluster.data_places:
            replica = self.cluster.replicas[place]
            if replica.partition is not None:
                check_stable(replica)
                self.ledger.on_seen(place, seen_by_committed(replica))
            check_producers(replica)
        if not self.cluster.coordinator.host.is_closed:
            for place in (*self.cluster.data_places, OFFSETS):
                check_known(self.cluster.replicas[place], self.cluster.coordinator.shard)
        for name, offset in self._offsets().items():
            self.ledger.on_offset_seen(name, offset)
        self._check_replay()

    def _check_replay(self) -> None:
        """Another that reads the log now would know the same."""
        coordinator = self.cluster.coordinator
        if coordinator.host.is_closed:
            return
        live = {name: held._replace(last_epoch=NO_EPOCH) for name, held in coordinator.shard}
        if live != dict(coordinator.replayed()):
            raise Violation(f"replay: {live} is not what the log says")

    def _offsets(self) -> dict[str, int]:
        host = self.cluster.groups.host
        if host.is_closed:
            return {}
        found = {}
        for name in {attempt.name for attempt in self.ledger.attempts}:
            asked = SimpleNamespace(name=TOPIC, partition_indexes=[0])
            group = SimpleNamespace(group_id=name, member_id=None, member_epoch=-1, topics=[asked])
            fields = host.shard.fetch_offsets(group, Caller("c", "/h", 7), require_stable=False)
            found[name] = fields["topics"][0]["partitions"][0]["committed_offset"]
        return found

    def check_rest(self) -> None:
        self.check()
        shard = self.cluster.coordinator.shard
        for name, held in shard:
            if held.state == ONGOING or held.state in DECIDED:
                raise Violation(f"T4: the transaction of {name} is still open: {held}")
        owed = decisions(self.cluster.replicas[STATE])
        seen = {}
        for place in (*self.cluster.data_places, OFFSETS):
            replica = self.cluster.replicas[place]
            partition = replica.partition
            assert partition is not None
            if partition.last_stable_offset != replica.log.log_end_offset:
                raise Violation(f"T4: {place} is stable up to {partition.last_stable_offset}")
            check_markers(replica, owed[place])
            seen[place] = set(seen_by_committed(replica)) if place != OFFSETS else set()
            for name, producer_id in self.ledger.forgotten.items():
                if producer_id in replica.log.producers.entries:
                    raise Violation(f"M1: {place} remembers {name}, which is to be forgotten")
        for name, producer_id in self.ledger.forgotten.items():
            # A late InitProducerId makes it anew, as another producer.
            left = shard.transactions.get(name)
            if left is not None and left.producer_id == producer_id:
                raise Violation(f"M1: {name} is to be forgotten")
        self.ledger.check_rest(seen, self._offsets())
