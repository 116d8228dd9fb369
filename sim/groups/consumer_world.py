"""One seed of the world of consumer groups (KIP-848): clients of both protocols, faults, a judge.

Requests and answers get lost, members die and come back, topics grow and go, appends fail, the
coordinator restarts, with or without what was not committed yet.

The judge knows two rules while things happen: no partition is read by two clients that are alive,
and an acknowledged commit never goes back (G3, in the ledger). In the end, when nothing happens any
more, all partitions have to be read, and nobody may have two more than another with the same
subscription.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.shard import Fields
from ottla.protocol.error_codes import NONE
from sim.groups.asked_shard import GROUP, AskedShard
from sim.groups.consumer_clients import (
    COMMITTED_TOPIC,
    SESSION_MS,
    ClassicClient,
    Client,
    ConsumerClient,
    Place,
)
from sim.groups.hosted_shard import a_cluster
from sim.groups.ledger import Ledger

STEPS = 120
TOPICS = ("t", "u", "v")
CONFIG = GroupConfig(
    group_initial_rebalance_delay_ms=0,
    group_min_session_timeout_ms=1000,
    group_consumer_session_timeout_ms=SESSION_MS,
    group_consumer_assignment_interval_ms=1000,
    offsets_commit_timeout_ms=1500,
)


class ConsumerWorld:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.with_classic = self.dice.random() < 0.6
        self.shard = AskedShard(CONFIG, a_cluster(t=6, u=3))
        self.ledger = Ledger()
        self.faults = 0
        self.clients: list[Client] = []
        self.is_faulty = True
        self._count = 0
        self._past: list[tuple[ConsumerClient, int, dict[str, Any]]] = []
        self._late: list[Callable[[], None]] = []

    def run(self) -> None:
        # The first one is of the new kind, or there would be no consumer group.
        self.clients.append(ConsumerClient(self, "m0", ["t", "u"], None))
        for _ in range(STEPS):
            self._event()
            self._turn()
        self.is_faulty = False
        self.shard.hosted.partition.fail_code = 0
        self.shard.hosted.partition.holds_back = False
        self.shard.hosted.partition.commit_all()
        self._calm_down()
        # One change at a time, and nothing else that could make up for not noticing it.
        counts = {name: len(at.partitions) for name, at in self.shard.hosted.image.topics.items()}
        self.shard.set_topics(**{**counts, "t": counts["t"] + 1})
        self._calm_down()
        if len(self.clients) > 1:
            self.clients.pop()
            self._calm_down()

    def _calm_down(self) -> None:
        for _ in range(200):
            self._turn()
        self.check_end()

    def _turn(self) -> None:
        for client in self.dice.sample(self.clients, len(self.clients)):
            client.tick()
        self.shard.time.advance(self.dice.choice((50, 100, 250)))
        self.check()

    def remember(self, client: ConsumerClient, epoch: int, fields: dict[str, Any]) -> None:
        """Without the subscription: an older one would be taken for a change of mind."""
        if "topic_partitions" in fields:
            kept = {key: one for key, one in fields.items() if key != "subscribed_topic_names"}
            self._past = [*self._past[-15:], (client, epoch, kept)]

    # -- what happens -----------------------------------------------------------------------

    def _event(self) -> None:
        chance = self.dice.random()
        if chance < 0.08 and len(self.clients) < 7:
            self._come()
        elif chance < 0.12 and len(self.clients) > 1:
            self._go(self.dice.choice(self.clients[1:]))
        elif chance < 0.15:
            self._change_topics()
        elif chance < 0.17:
            self._change_subscription(self.dice.choice(self.clients))
        elif chance < 0.19:
            self._restart()
        elif chance < 0.22:
            self.shard.hosted.partition.holds_back = True
        elif chance < 0.24:
            self.faults += 1
            self.shard.hosted.partition.fail_code = self.dice.choice((7, 10, 19, 20))
        elif chance < 0.50:
            self._repeat()
        elif chance < 0.65:
            self.shard.hosted.partition.fail_code = 0
            self.shard.hosted.partition.holds_back = False
            self.shard.hosted.partition.commit_all()

    def _come(self) -> None:
        self._count += 1
        topics = self.dice.choice((["t", "u"], ["t", "u"], ["t"], ["t", "u", "v"]))
        instance = f"i{self._count}" if self.dice.random() < 0.3 else None
        if self.with_classic and self.dice.random() < 0.5:
            self.clients.append(ClassicClient(self, f"c{self._count}", topics, instance))
        else:
            self.clients.append(ConsumerClient(self, f"m{self._count}", topics, instance))

    def _go(self, client: Client) -> None:
        """It leaves, or dies without a word; an instance may come back as another member."""
        self.faults += 1
        self.clients.remove(client)
        client.work.give_up(client.owned)
        if self.dice.random() < 0.5:
            client.leave()
        if isinstance(client, ClassicClient) and client.instance and self.dice.random() < 0.7:
            self._count += 1
            name = f"c{self._count}"
            self.clients.append(ClassicClient(self, name, client.topics, client.instance))
        elif isinstance(client, ConsumerClient) and client.instance and self.dice.random() < 0.7:
            self.shard.ask(client.name, -2, instance_id=client.instance)
            self._count += 1
            back = ConsumerClient(self, f"m{self._count}", client.topics, client.instance)
            self.clients.append(back)

    def _change_topics(self) -> None:
        image = self.shard.hosted.image
        counts = {name: len(topic.partitions) for name, topic in image.topics.items()}
        name = self.dice.choice(TOPICS[1:])
        if name in counts and self.dice.random() < 0.4:
            del counts[name]
            for client in self.clients:
                client.owned = {place for place in client.owned if place[0] != name}
                client.revoking &= client.owned
        else:
            counts[name] = min(counts.get(name, 0) + 1, 8)
        self.shard.set_topics(**counts)

    def _change_subscription(self, client: Client) -> None:
        client.topics = self.dice.choice((["t"], ["t", "u"], ["t", "v"]))
        if isinstance(client, ConsumerClient):
            client.says_all = True
        elif isinstance(client, ClassicClient):
            client.phase = "join"

    def _restart(self) -> None:
        """Another broker takes over; if it never had what was not committed, that is lost."""
        self.faults += 1
        hosted = self.shard.hosted
        if self.dice.random() < 0.5:
            hosted.partition.cut_uncommitted()
        hosted.partition.holds_back = False
        hosted.restart()
        held = hosted.shard.offsets.of_group(GROUP).get(COMMITTED_TOPIC, {})
        for partition in self.ledger.acknowledged():
            commit = held.get(partition)
            offset = -1 if commit is None else commit.offset
            self.ledger.on_seen(partition, offset, "the restarted coordinator")

    def _repeat(self) -> None:
        """A request comes in late, over a connection that its client has given up."""
        for client, epoch, fields in self._past:
            if client in self.clients and 0 < epoch < client.epoch:
                self.shard.ask(client.name, epoch, **fields)
        if self._late:
            self._late.pop(self.dice.randrange(len(self._late)))()

    def send_late(self, commit: Callable[[], None]) -> None:
        self._late = [*self._late[-30:], commit]

    def is_newest_of_another(self, member_id: str, epoch: int, place: Place) -> bool:
        """Whether this is the newest epoch of a member, and another one has the partition."""
        group = self.shard.hosted.shard.groups.get(GROUP)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None:
            return False
        topic_id = self.shard.hosted.image.topics[place[0]].topic_id
        is_newest = member.current.member_epoch == epoch
        return is_newest and group.holder_of(topic_id, place[1]) != member_id

    def note_commit(self, name: str, place: Place, offset: int, answer: Deferred[Fields]) -> None:
        """Acknowledged is what the broker answers, whether or not the answer arrives."""

        def note(done: Deferred[Fields]) -> None:
            try:
                (topic,) = done.result()["topics"]
            except ProtocolError:
                return
            if topic["partitions"][0]["error_code"] == NONE:
                self.ledger.on_acknowledged(place[1], offset, name)

        answer.when_done(note)

    # -- the judge --------------------------------------------------------------------------

    def check(self) -> None:
        readers: dict[Place, str] = {}
        for client in self.clients:
            for place in client.owned:
                other = readers.setdefault(place, client.name)
                assert other == client.name, f"{place} is read by {other} and {client.name}"

    def check_end(self) -> None:
        self.shard.check_replay()
        topics = self.shard.hosted.image.topics
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
        group = self.shard.hosted.shard.groups[GROUP]
        assert group.state_name() == "Stable"
        if isinstance(group, ConsumerGroup):
            self.ledger.generations = group.epoch

    def places_of(self, fields: Fields) -> set[Place]:
        """Of topics that are still there."""
        names = self.shard.hosted.image.topic_names_by_id
        return {
            (names[one["topic_id"]], partition)
            for one in fields["assignment"]["topic_partitions"]
            if one["topic_id"] in names
            for partition in one["partitions"]
        }
