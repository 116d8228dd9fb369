"""Clients of a simulated group, of both protocols.

They do what real ones do: they give partitions up some time after they are told to, repeat what was
not answered, start over when they are fenced, and commit what they read, the last time when it is
too late. Each knows what it was told and nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.consumer_group_embedded import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinator.shard import Fields
from ottla.protocol.error_codes import (
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNRELEASED_INSTANCE_ID,
)
from sim.groups.asked_shard import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, subscription
from sim.groups.ledger import Violation

if TYPE_CHECKING:
    from sim.groups.consumer_world import ConsumerWorld

HEARTBEAT_MS = 500
SESSION_MS = 6000
REBALANCE_MS = 30_000
COMMITTED_TOPIC = "t"
"""The one that is never deleted: of it the commits are followed."""

NOTHING = write_assignment({}, 0)

Place = tuple[str, int]


class Client:
    """`owned` is what it reads; `revoking` what it was told to give up and has not yet."""

    def __init__(self, world: ConsumerWorld, name: str, topics: list[str]) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.owned: set[Place] = set()
        self.revoking: set[Place] = set()
        self.is_waiting = False
        self.next_beat_ms = 0
        self.patience = 0
        self.attempt = 0
        self.work = Work(self)

    def tick(self) -> None:
        """Some of what it has to give up is ready to go; it speaks if it is time to."""
        if self.revoking and self.world.dice.random() < 0.5:
            self.work.give_up(self.revoking)
            self.owned -= self.revoking
            self.revoking = set()
            self.next_beat_ms = 0
        self.work.go_on()
        now_ms = self.world.shard.time.monotonic_ms()
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
        is_lost = self.world.is_faulty and self.world.dice.random() < 0.05

        def done(outcome: Deferred[Fields]) -> None:
            # An answer that comes too late comes over a connection that nobody reads any more.
            is_awaited = self.is_waiting and self.attempt == attempt
            if not is_lost and is_awaited and self in self.world.clients:
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
        self.work.begin(places - self.owned)
        self.revoking = self.owned - places
        self.owned |= places
        self.revoking -= places

    def speak(self) -> None:
        raise AssertionError("each kind of client speaks its own protocol")

    def on_answer(self, fields: Fields) -> None:
        raise AssertionError("each kind of client is told in its own protocol")

    def on_silence(self) -> None: ...

    def leave(self) -> None: ...

    def commit(self, place: Place, offset: int) -> Commit:
        """As the member that it is now, to be sent at once or later."""
        raise AssertionError("each kind of client commits with an epoch of its own")


class Commit(NamedTuple):
    member_id: str
    epoch: int
    instance: str | None
    place: Place
    offset: int

    def send(self, world: ConsumerWorld) -> None:
        instance = {"group_instance_id": self.instance}
        offsets = {self.place: self.offset}
        answer = world.shard.ask_commit(self.member_id, self.epoch, offsets, **instance)
        world.note_commit(self.member_id, self.place, self.offset, answer)


class Work:
    """What a client has read of each of its partitions, and commits."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._positions: dict[Place, int] = {}
        self._times: dict[Place, int] = {}
        """How often it has got the partition."""
        self._is_asking = False

    def begin(self, places: set[Place]) -> None:
        for place in places:
            self._positions.pop(place, None)
            self._times[place] = self._times.get(place, 0) + 1

    def give_up(self, places: set[Place]) -> None:
        """The last commit may be late, over a connection that nobody reads any more."""
        world = self._client.world
        for place in sorted(places & self._positions.keys()):
            if world.is_faulty and world.dice.random() < 0.5:
                commit = self._client.commit(place, self._positions[place] + 1)
                world.send_late(partial(self._send_late, commit, self._times[place]))

    def _send_late(self, commit: Commit, times: int) -> None:
        world = self._client.world
        # Of two commits of one owner over two connections either may be the last: that is no fault.
        is_its_own = self._client in world.clients and commit.place in self._client.owned
        if self._times[commit.place] == times and not is_its_own:
            # Whose partition it is, is not asked of a commit in the member's newest epoch, as in
            # Kafka: one connection keeps it before the heartbeat that gives the partition up.
            if not world.is_newest_of_another(commit.member_id, commit.epoch, commit.place):
                commit.send(world)

    def go_on(self) -> None:
        client = self._client
        mine = sorted(place for place in client.owned if place[0] == COMMITTED_TOPIC)
        unknown = [place for place in mine if place not in self._positions]
        if unknown and not self._is_asking:
            self._ask(unknown)
        known = [place for place in mine if place in self._positions]
        if known and client.world.dice.random() < 0.4:
            place = client.world.dice.choice(known)
            self._positions[place] += client.world.dice.randint(1, 9)
            client.commit(place, self._positions[place]).send(client.world)

    def _ask(self, places: list[Place]) -> None:
        """Where to begin: what is answered must not miss what was acknowledged before."""
        world = self._client.world
        times = {place: self._times[place] for place in places}
        before = world.ledger.acknowledged()
        self._is_asking = True

        def told(outcome: Deferred[Fields]) -> None:
            self._is_asking = False
            try:
                fields = outcome.result()
            except ProtocolError:
                return
            for one in fields["topics"][0]["partitions"]:
                place = (COMMITTED_TOPIC, one["partition_index"])
                offset = one["committed_offset"]
                if offset < before.get(place[1], -1):
                    raise Violation(f"G3: {place} is at {offset}, {before} was acknowledged")
                if self._times[place] == times[place] and place in self._client.owned:
                    self._positions[place] = max(offset, 0)

        asked = [partition for _, partition in places]
        world.shard.ask_committed(COMMITTED_TOPIC, asked).when_done(told)


class ConsumerClient(Client):
    def __init__(
        self, world: ConsumerWorld, name: str, topics: list[str], instance: str | None
    ) -> None:
        super().__init__(world, name, topics)
        self.instance = instance
        self.epoch = 0
        self.says_all = True
        self.told_owned: set[Place] | None = None
        self.told_topics: list[str] = []

    def speak(self) -> None:
        shard = self.world.shard
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
            fields["topic_partitions"] = shard.partitions(by_topic(self.world, self.owned))
            self.told_owned = set(self.owned)
        self.world.remember(self, self.epoch, fields)
        self.send(shard.ask(self.name, self.epoch, **fields))
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
            self.take(self.world.places_of(fields))
            self.told_owned = None  # it confirms what it was told, whether or not that was new

    def commit(self, place: Place, offset: int) -> Commit:
        return Commit(self.name, self.epoch, self.instance, place, offset)

    def leave(self) -> None:
        self.owned = set()
        extra = {} if self.instance is None else {"instance_id": self.instance}
        self.world.shard.ask(self.name, -1, **extra)


class ClassicClient(Client):
    """Of the cooperative kind: it joins with what it owns and keeps what it may."""

    def __init__(
        self, world: ConsumerWorld, name: str, topics: list[str], instance: str | None
    ) -> None:
        super().__init__(world, name, topics)
        self.instance = instance
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
        owned = by_topic(self.world, self.owned)
        metadata = subscription(*self.topics, owned=owned)
        self.joined_with = self.topics
        self.send(
            self.world.shard.ask_classic(
                JOIN_GROUP,
                9,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=[{"name": "cooperative-sticky", "metadata": metadata}],
                reason=None,
            )
        )

    def _sync(self) -> None:
        self.send(
            self.world.shard.ask_classic(
                SYNC_GROUP,
                5,
                member_id=self.member_id,
                generation_id=self.generation,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="cooperative-sticky",
                assignments=self.to_assign,
            )
        )

    def _beat(self) -> None:
        self.send(
            self.world.shard.ask_classic(
                HEARTBEAT,
                4,
                member_id=self.member_id,
                generation_id=self.generation,
                group_instance_id=self.instance,
            )
        )

    def on_silence(self) -> None:
        self.phase = "join"

    def on_answer(self, fields: Fields) -> None:
        code = fields["error_code"]
        if code == MEMBER_ID_REQUIRED:
            self.member_id = fields["member_id"]
        elif code == REBALANCE_IN_PROGRESS:
            self.phase = "join"
        elif code != NONE:
            self.owned, self.revoking, self.member_id, self.phase = set(), set(), "", "join"
        elif "members" in fields:
            self.member_id, self.generation = fields["member_id"], fields["generation_id"]
            self.to_assign = assign(self.world, fields["members"])
            self.phase = "sync"
        elif "assignment" in fields:
            partitions = read_assignment(fields["assignment"] or NOTHING).partitions
            self.take({(topic, one) for topic, held in partitions.items() for one in held})
            is_done = not self.revoking and self.joined_with == self.topics
            self.phase = "stable" if is_done else "join"

    def commit(self, place: Place, offset: int) -> Commit:
        return Commit(self.member_id, self.generation, self.instance, place, offset)

    def leave(self) -> None:
        self.owned = set()
        if self.member_id:
            one = {"member_id": self.member_id, "group_instance_id": self.instance, "reason": None}
            self.world.shard.ask_classic(LEAVE_GROUP, 5, members=[one])


def by_topic(world: ConsumerWorld, places: set[Place]) -> dict[str, list[int]]:
    """Of topics that there are: a client hears of a deletion before it speaks."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        if topic in world.shard.hosted.image.topics:
            found.setdefault(topic, []).append(partition)
    return found


def assign(world: ConsumerWorld, members: list[Fields]) -> list[Fields]:
    """What the leader of a classic group does: in turn, but nothing that another still has."""
    told = {one["member_id"]: read_subscription(one["metadata"]) for one in members}
    owners = {
        (topic, partition): member_id
        for member_id, said in told.items()
        for topic, held in said.owned.items()
        for partition in held
    }
    given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in told}
    for name, topic in world.shard.hosted.image.topics.items():
        takers = sorted(member_id for member_id, said in told.items() if name in said.topics)
        for partition in topic.partitions if takers else ():
            taker = takers[partition % len(takers)]
            if owners.get((name, partition), taker) == taker:
                given[taker].setdefault(name, []).append(partition)
    return [
        {"member_id": one, "assignment": write_assignment(held, 3)} for one, held in given.items()
    ]
