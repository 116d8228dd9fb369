"""A simulated consumer group: clients of both protocols, faults, and a judge.

Clients do what real ones do: they give partitions up some time after they are told to, repeat what
was not answered, and start over when they are fenced. Requests and answers get lost, members die,
topics grow and go, the coordinator restarts, with or without what was not committed yet.

The judge (`World.check`) knows one rule while things happen: no partition is read by two clients
that are alive. In the end, when nothing happens any more, all partitions have to be read, and
nobody may have two more than another with the same subscription.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.consumer_group_embedded import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.shard import Fields
from ottla.protocol.error_codes import (
    NONE,
    REBALANCE_IN_PROGRESS,
    UNRELEASED_INSTANCE_ID,
)
from sim.groups.hosted_shard import a_cluster
from tests.unit.coordinator.consumer_conversations import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    subscription,
)
from tests.unit.coordinator.consumer_world import World

HEARTBEAT_MS = 500
SESSION_MS = 6000
REBALANCE_MS = 30_000
TOPICS = ("t", "u", "v")

NOTHING = write_assignment({}, 0)

Place = tuple[str, int]

CONFIG = GroupConfig(
    group_initial_rebalance_delay_ms=0,
    group_min_session_timeout_ms=1000,
    group_consumer_session_timeout_ms=SESSION_MS,
    group_consumer_assignment_interval_ms=1000,
    offsets_commit_timeout_ms=1500,
)


class Client:
    """`owned` is what it reads; `revoking` what it was told to give up and has not yet."""

    def __init__(self, simulation: Simulation, name: str, topics: list[str]) -> None:
        self.simulation = simulation
        self.name = name
        self.topics = topics
        self.owned: set[Place] = set()
        self.revoking: set[Place] = set()
        self.is_waiting = False
        self.next_beat_ms = 0
        self.patience = 0
        self.attempt = 0

    def tick(self) -> None:
        """Some of what it has to give up is ready to go; it speaks if it is time to."""
        random = self.simulation.random
        if self.revoking and random.random() < 0.5:
            self.owned -= self.revoking
            self.revoking = set()
            self.next_beat_ms = 0
        now_ms = self.simulation.world.time.monotonic_ms()
        if self.is_waiting:
            self.patience -= 1
            self.is_waiting = self.patience > 0
        elif now_ms >= self.next_beat_ms:
            self.next_beat_ms = now_ms + HEARTBEAT_MS
            self.speak()

    def send(self, answer: Deferred[Fields]) -> None:
        """Waits for the answer; it may get lost, and then the client repeats itself."""
        self.is_waiting = True
        self.patience = 6
        self.attempt += 1
        attempt = self.attempt
        is_lost = self.simulation.is_faulty and self.simulation.random.random() < 0.05

        def done(outcome: Deferred[Fields]) -> None:
            # An answer that comes too late comes over a connection that nobody reads any more.
            is_awaited = self.is_waiting and self.attempt == attempt
            if not is_lost and is_awaited and self in self.simulation.clients:
                self.is_waiting = False
                self.hear(outcome)

        answer.when_done(done)

    def hear(self, outcome: Deferred[Fields]) -> None:
        try:
            fields = outcome.result()
        except ProtocolError:
            self.on_silence()  # the coordinator is not there, or was too slow
        else:
            self.on_answer(fields)

    def take(self, places: set[Place]) -> None:
        """The assignment: what is new is read at once, what is gone is given up soon."""
        self.revoking = self.owned - places
        self.owned |= places
        self.revoking -= places

    def speak(self) -> None:
        raise AssertionError("each kind of client speaks its own protocol")

    def on_answer(self, fields: Fields) -> None:
        raise AssertionError("each kind of client is told in its own protocol")

    def on_silence(self) -> None: ...

    def leave(self) -> None: ...


class ConsumerClient(Client):
    def __init__(
        self, simulation: Simulation, name: str, topics: list[str], instance: str | None
    ) -> None:
        super().__init__(simulation, name, topics)
        self.instance = instance
        self.epoch = 0
        self.says_all = True
        self.told_owned: set[Place] | None = None
        self.told_topics: list[str] = []

    def speak(self) -> None:
        world = self.simulation.world
        says_all, self.says_all = self.says_all, False
        fields: dict[str, Any] = {}
        if self.instance is not None:
            fields["instance_id"] = self.instance
        if says_all:
            fields |= {
                "subscribed_topic_names": self.topics,
                "rebalance_timeout_ms": REBALANCE_MS,
            }
            self.told_topics = self.topics
        if says_all or self.told_owned != self.owned:
            fields["topic_partitions"] = world.partitions(by_topic(self.simulation, self.owned))
            self.told_owned = set(self.owned)
        self.simulation.remember(self, self.epoch, fields)
        self.send(world.ask(self.name, self.epoch, **fields))
        if self.is_waiting:
            self.says_all = True  # unless an answer comes

    def on_silence(self) -> None:
        self.says_all = True

    def on_answer(self, fields: Fields) -> None:
        if fields["error_code"] != NONE:
            if fields["error_code"] != UNRELEASED_INSTANCE_ID:
                self.owned, self.revoking = set(), set()
            self.epoch, self.says_all = 0, True
            return
        self.says_all = self.told_topics != self.topics
        self.epoch = fields["member_epoch"]
        if fields["assignment"] is not None:
            self.take(self.simulation.places_of(fields))
            self.told_owned = None  # it confirms what it was told, whether or not that was new

    def leave(self) -> None:
        self.owned = set()
        extra = {} if self.instance is None else {"instance_id": self.instance}
        self.simulation.world.ask(self.name, -1, **extra)


class ClassicClient(Client):
    """Of the cooperative kind: it joins with what it owns and keeps what it may."""

    def __init__(self, simulation: Simulation, name: str, topics: list[str]) -> None:
        super().__init__(simulation, name, topics)
        self.member_id = ""
        self.generation = -1
        self.phase = "join"
        self.to_assign: list[Fields] = []
        self.joined_with: list[str] = []

    def speak(self) -> None:
        if self.revoking:
            # It commits before it gives up, and does not say otherwise meanwhile.
            self._beat()
        elif self.phase == "join":
            self._join()
        elif self.phase == "sync":
            self._sync()
        else:
            self._beat()

    def _join(self) -> None:
        owned = by_topic(self.simulation, self.owned)
        metadata = subscription(*self.topics, owned=owned)
        self.joined_with = self.topics
        self.send(
            self.simulation.world.ask_classic(
                JOIN_GROUP,
                9,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[{"name": "cooperative-sticky", "metadata": metadata}],
                reason=None,
            )
        )

    def _sync(self) -> None:
        self.send(
            self.simulation.world.ask_classic(
                SYNC_GROUP,
                5,
                member_id=self.member_id,
                generation_id=self.generation,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name="cooperative-sticky",
                assignments=self.to_assign,
            )
        )

    def _beat(self) -> None:
        self.send(
            self.simulation.world.ask_classic(
                HEARTBEAT,
                4,
                member_id=self.member_id,
                generation_id=self.generation,
                group_instance_id=None,
            )
        )

    def on_silence(self) -> None:
        self.phase = "join"

    def on_answer(self, fields: Fields) -> None:
        code = fields["error_code"]
        if code == 79:
            self.member_id = fields["member_id"]
        elif code == REBALANCE_IN_PROGRESS:
            self.phase = "join"
        elif code != NONE:
            self.owned, self.revoking, self.member_id, self.phase = set(), set(), "", "join"
        elif "members" in fields:
            self.member_id, self.generation = fields["member_id"], fields["generation_id"]
            self.to_assign = assign(self.simulation, fields["members"])
            self.phase = "sync"
        elif "assignment" in fields:
            partitions = read_assignment(fields["assignment"] or NOTHING).partitions
            self.take({(topic, one) for topic, held in partitions.items() for one in held})
            is_done = not self.revoking and self.joined_with == self.topics
            self.phase = "stable" if is_done else "join"

    def leave(self) -> None:
        self.owned = set()
        if self.member_id:
            one = {"member_id": self.member_id, "group_instance_id": None, "reason": None}
            self.simulation.world.ask_classic(LEAVE_GROUP, 5, members=[one])


def by_topic(simulation: Simulation, places: set[Place]) -> dict[str, list[int]]:
    """Of topics that there are: a client hears of a deletion before it speaks."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        if topic in simulation.world.hosted.image.topics:
            found.setdefault(topic, []).append(partition)
    return found


def assign(simulation: Simulation, members: list[Fields]) -> list[Fields]:
    """What the leader of a classic group does: in turn, but nothing that another still has."""
    told = {one["member_id"]: read_subscription(one["metadata"]) for one in members}
    owners = {
        (topic, partition): member_id
        for member_id, said in told.items()
        for topic, held in said.owned.items()
        for partition in held
    }
    given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in told}
    for name, topic in simulation.world.hosted.image.topics.items():
        takers = sorted(member_id for member_id, said in told.items() if name in said.topics)
        for partition in topic.partitions if takers else ():
            taker = takers[partition % len(takers)]
            if owners.get((name, partition), taker) == taker:
                given[taker].setdefault(name, []).append(partition)
    return [
        {"member_id": one, "assignment": write_assignment(held, 3)} for one, held in given.items()
    ]


class Simulation:
    def __init__(self, seed: int, *, with_classic: bool) -> None:
        self.random = Random(seed)
        self.with_classic = with_classic
        self.world = World(config=CONFIG, image=a_cluster(t=6, u=3))
        self.clients: list[Client] = []
        self.is_faulty = True
        self._count = 0
        self._past: list[tuple[ConsumerClient, int, dict[str, Any]]] = []

    def run(self, steps: int) -> None:
        # The first one is of the new kind, or there would be no consumer group.
        self.clients.append(ConsumerClient(self, "m0", ["t", "u"], None))
        for _ in range(steps):
            self._event()
            self._turn()
        self.is_faulty = False
        self.world.hosted.partition.holds_back = False
        self.world.hosted.partition.commit_all()
        self._calm_down()
        # One change at a time, and nothing else that could make up for not noticing it.
        counts = {name: len(at.partitions) for name, at in self.world.hosted.image.topics.items()}
        self.world.set_topics(**{**counts, "t": counts["t"] + 1})
        self._calm_down()
        if len(self.clients) > 1:
            self.clients.pop()
            self._calm_down()

    def _calm_down(self) -> None:
        for _ in range(200):
            self._turn()
        self.check_end()

    def _turn(self) -> None:
        for client in self.random.sample(self.clients, len(self.clients)):
            client.tick()
        self.world.time.advance(self.random.choice((50, 100, 250)))
        self.check()

    def remember(self, client: ConsumerClient, epoch: int, fields: dict[str, Any]) -> None:
        """Without the subscription: an older one would be taken for a change of mind."""
        if "topic_partitions" in fields:
            kept = {key: one for key, one in fields.items() if key != "subscribed_topic_names"}
            self._past = [*self._past[-15:], (client, epoch, kept)]

    # -- what happens -----------------------------------------------------------------------

    def _event(self) -> None:
        chance = self.random.random()
        if chance < 0.08 and len(self.clients) < 7:
            self._come()
        elif chance < 0.12 and len(self.clients) > 1:
            self._go(self.random.choice(self.clients[1:]))
        elif chance < 0.15:
            self._change_topics()
        elif chance < 0.17:
            self._change_subscription(self.random.choice(self.clients))
        elif chance < 0.19:
            self._restart()
        elif chance < 0.22:
            self.world.hosted.partition.holds_back = True
        elif chance < 0.50:
            self._repeat()
        elif chance < 0.65 and self.world.hosted.partition.holds_back:
            self.world.hosted.partition.holds_back = False
            self.world.hosted.partition.commit_all()

    def _come(self) -> None:
        self._count += 1
        topics = self.random.choice((["t", "u"], ["t", "u"], ["t"], ["t", "u", "v"]))
        if self.with_classic and self.random.random() < 0.5:
            self.clients.append(ClassicClient(self, f"c{self._count}", topics))
        else:
            instance = f"i{self._count}" if self.random.random() < 0.3 else None
            self.clients.append(ConsumerClient(self, f"m{self._count}", topics, instance))

    def _go(self, client: Client) -> None:
        """It leaves, or dies without a word; an instance may come back as another member."""
        self.clients.remove(client)
        if self.random.random() < 0.5:
            client.leave()
        if isinstance(client, ConsumerClient) and client.instance and self.random.random() < 0.7:
            self.world.ask(client.name, -2, instance_id=client.instance)
            self._count += 1
            back = ConsumerClient(self, f"m{self._count}", client.topics, client.instance)
            self.clients.append(back)

    def _change_topics(self) -> None:
        image = self.world.hosted.image
        counts = {name: len(topic.partitions) for name, topic in image.topics.items()}
        name = self.random.choice(TOPICS[1:])
        if name in counts and self.random.random() < 0.4:
            del counts[name]
            for client in self.clients:
                client.owned = {place for place in client.owned if place[0] != name}
                client.revoking &= client.owned
        else:
            counts[name] = min(counts.get(name, 0) + 1, 8)
        self.world.set_topics(**counts)

    def _change_subscription(self, client: Client) -> None:
        client.topics = self.random.choice((["t"], ["t", "u"], ["t", "v"]))
        if isinstance(client, ConsumerClient):
            client.says_all = True
        elif isinstance(client, ClassicClient):
            client.phase = "join"

    def _restart(self) -> None:
        """Another broker takes over; if it never had what was not committed, that is lost."""
        hosted = self.world.hosted
        if self.random.random() < 0.5:
            hosted.partition.cut_uncommitted()
        hosted.partition.holds_back = False
        hosted.restart()

    def _repeat(self) -> None:
        """A request comes in late, over a connection that its client has given up."""
        for client, epoch, fields in self._past:
            if client in self.clients and 0 < epoch < client.epoch:
                self.world.ask(client.name, epoch, **fields)

    # -- the judge --------------------------------------------------------------------------

    def check(self) -> None:
        readers: dict[Place, str] = {}
        for client in self.clients:
            for place in client.owned:
                other = readers.setdefault(place, client.name)
                assert other == client.name, f"{place} is read by {other} and {client.name}"

    def check_end(self) -> None:
        self.world.check_replay()
        topics = self.world.hosted.image.topics
        readers = {place for client in self.clients for place in client.owned}
        wanted = {
            (name, partition)
            for name in {topic for client in self.clients for topic in client.topics}
            if name in topics
            for partition in topics[name].partitions
        }
        assert readers == wanted, f"nobody reads {sorted(wanted - readers)}"
        for one in self.clients:
            for other in self.clients:
                if sorted(one.topics) == sorted(other.topics):
                    assert abs(len(one.owned) - len(other.owned)) <= 1, "it is not balanced"
        group = self.world.hosted.shard.groups["g"]
        assert group.state_name() == "Stable"

    def places_of(self, fields: Fields) -> set[Place]:
        """Of topics that are still there."""
        names = self.world.hosted.image.topic_names_by_id
        return {
            (names[one["topic_id"]], partition)
            for one in fields["assignment"]["topic_partitions"]
            if one["topic_id"] in names
            for partition in one["partitions"]
        }
