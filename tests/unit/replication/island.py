"""Three replicas of one partition, a store and a network, in memory and in one thread.

The machines are the real ones: partitions over logs, sessions of followers at their leader, the
followers' fetches, all bytes packed and read as on the wire. What is played is the rest: messages
that are late, lost or come twice, states that brokers hear of late, brokers that are killed and
come back, a store that changes a state only by compare-and-set. After every step `check` compares
what the brokers believe with what is on their disks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.log.batch_scan import batch_size
from ottla.protocol.error_codes import NONE
from ottla.protocol.fetch import fetch_response_parts, read_fetch_request
from ottla.protocol.replica_fetch import VERSION
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import BASE_OFFSET, read_header
from ottla.replication.effects import Assignment, InSyncProposal, Outcome
from ottla.replication.follower_fetch import FetchLimits, FollowerFetch
from ottla.replication.partition import Partition
from ottla.replication.replica_session import ReplicaSessions, Surroundings
from ottla.replication.throttle import Throttle
from tests.unit.log.world import NOW_MS
from tests.unit.replication.replicas import LAG_MS, TOPIC_ID, Replica

BROKERS = (1, 2, 3)
Batches = dict[int, bytes]
FIRST = Assignment(1, 0, 0, BROKERS, BROKERS)


@dataclass
class Acked:
    """Somebody who waits for acks=all; `content` is the batch without what the broker writes."""

    last_offset: int
    content: bytes
    broker_id: int
    island: Island

    def on_committed(self, partition: Partition) -> None:
        self.island.acked[self.last_offset] = self.content

    def on_gone(self, partition: Partition) -> None:
        """Nobody knows whether it is there."""


@dataclass(eq=False)
class Asked:
    """A fetch under way."""

    fetch: FollowerFetch
    session_count: int


class Broker:
    def __init__(self, island: Island, broker_id: int) -> None:
        self.island = island
        self.broker_id = broker_id
        self.replica = Replica(broker_id)
        self.epoch = broker_id * 100
        self.is_up = True
        self.seen = -1
        self._content = b""
        self._batches: Batches = {}
        self.start()

    def start(self) -> None:
        partition = self.partition = self.replica.partition
        partition.on_alarm = self.island.on_alarm
        self.fetch: FollowerFetch | None = None
        self.asked: Asked | None = None
        self.leader = -1
        surroundings = Surroundings(
            broker_id=self.broker_id,
            find=lambda topic_id, index: partition if topic_id == TOPIC_ID else 3,
            may_be_member=self.island.may_be_member,
            propose=lambda _, proposal: self.island.propose(self, proposal),
            storage_failed=lambda failure: None,
            throttle=Throttle(),
            doubt=lambda partition, replica, epoch: None,
        )
        self.sessions = ReplicaSessions(surroundings, lambda: self.island.random.getrandbits(30))

    def kill(self) -> None:
        self.is_up = False

    def come_back(self) -> None:
        """A killed process loses nothing that was written; what it knew of the watermark is old."""
        replica = self.replica
        known = min(replica.partition.high_watermark, self.island.random.randint(0, 1 << 20))
        replica.log = replica.world.reopen_killed()
        replica.partition = Partition("topic", 0, TOPIC_ID, "/data")
        replica.partition.log = replica.log
        replica.partition.high_watermark = min(known, replica.log.log_end_offset)
        self.epoch += 1
        # It has registered: that is a write, and what is read after it is not older.
        self.seen = self.island.state.partition_epoch - 1
        self.is_up = True
        self.start()

    def hear(self, state: Assignment) -> None:
        if state.partition_epoch <= self.seen:
            return
        self.seen = state.partition_epoch
        if self.partition.assume(self.broker_id, state, self.island.now_ms):
            self.fetch = None
            if state.leader not in (-1, self.broker_id):
                self.leader = state.leader
                limits = FetchLimits(backoff_ms=40, partition_bytes_max=150)
                self.fetch = FollowerFetch(self.broker_id, self.epoch, limits)
                self.fetch.add(self.partition)

    def ask(self) -> None:
        """The next fetch goes out, if none is under way."""
        fetch = self.fetch
        if fetch is None or not fetch.is_idle():
            return
        body = fetch.request(self.island.now_ms)
        if body is not None:
            self.asked = asked = Asked(fetch, fetch.session_count)
            self.island.send(self.leader, lambda leader: self._asked(leader, body, asked))

    def _asked(self, leader: Broker, body: bytes, asked: Asked) -> None:
        answer = leader.answer(body)
        self.island.send(self.broker_id, lambda _: self._answered(answer, asked))

    def answer(self, body: bytes) -> bytes:
        request = read_fetch_request(VERSION, memoryview(body))
        session = self.sessions.resolve(request, self.island.now_ms)
        if isinstance(session, int):
            return b"".join(fetch_response_parts(VERSION, 0, session, 0, [])[0])
        session.take(request, self.island.now_ms)
        told, _ = session.collect(request.max_bytes)
        topics = [(None, topic_id, [fetched]) for topic_id, fetched in told]
        parts, _ = fetch_response_parts(VERSION, 0, NONE, session.session_id, topics)
        return b"".join(
            part if isinstance(part, bytes) else part.file.read_at(part.position, part.size)
            for part in parts
        )

    def _answered(self, answer: bytes, asked: Asked) -> None:
        fetch = asked.fetch
        if fetch is not self.fetch or fetch.session_count != asked.session_count:
            return  # of a connection that is gone
        if asked is not self.asked:
            return  # it does not belong to what was asked last, by its number
        self.asked = None
        effects = fetch.on_answer(memoryview(answer), self.island.now_ms)
        for partition in effects.cut:
            fetch.resume(partition)

    def give_up(self) -> None:
        """The connection to the leader is gone."""
        if self.fetch is not None:
            self.fetch.on_failure()

    def produce(self) -> None:
        partition = self.partition
        if not partition.is_leader or not partition.has_enough_in_sync():
            return
        value = self.island.random.randbytes(self.island.random.randint(8, 40))
        content = build_batch([RecordToWrite(NOW_MS, None, value)])
        appended = partition.append(bytearray(content), read_header(content), NOW_MS)
        waiter = Acked(appended.last_offset, content[21:], self.broker_id, self.island)
        if partition.high_watermark > appended.last_offset:
            waiter.on_committed(partition)
        else:
            partition.add_commit_waiter(waiter)

    def batches(self) -> Batches:
        """By offset, without the offsets themselves."""
        content, position = self.replica.content(), 0
        if content != self._content:
            self._content, self._batches = content, {}
            while position < len(content):
                header = read_header(content, position)
                size = batch_size(header)
                self._batches[header[BASE_OFFSET]] = content[position + 12 : position + size]
                position += size
        return self._batches


@dataclass
class Island:
    random: random.Random
    now_ms: int = 0
    acked: Batches = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    state: Assignment = FIRST
    in_flight: list[tuple[int, Callable[[Broker], None]]] = field(default_factory=list)
    is_lossy: bool = True

    def __post_init__(self) -> None:
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in BROKERS}
        self.states = [self.state]
        for broker in self.brokers.values():
            broker.hear(self.state)

    def on_alarm(self, partition: Partition, reason: str) -> None:
        self.alarms.append(reason)

    # -- the network --------------------------------------------------------------------------

    def send(self, to: int, deliver: Callable[[Broker], None]) -> None:
        self.in_flight.append((to, deliver))

    def deliver(self) -> None:
        if not self.in_flight:
            return
        place = self.random.randrange(len(self.in_flight)) if self.is_lossy else 0
        to, deliver = self.in_flight[place]
        if not self.is_lossy or self.random.random() > 0.04:  # else it comes once more
            del self.in_flight[place]
        broker = self.brokers[to]
        if broker.is_up and not (self.is_lossy and self.random.random() < 0.02):
            deliver(broker)

    # -- the store ----------------------------------------------------------------------------

    def store(self, state: Assignment) -> None:
        self.state = state._replace(partition_epoch=self.state.partition_epoch + 1)
        self.states.append(self.state)

    def may_be_member(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.brokers[broker_id]
        return broker.is_up and broker.epoch == broker_epoch

    def propose(self, broker: Broker, proposal: InSyncProposal) -> None:
        """It reaches the store at some time or never, and its answer the leader likewise."""
        partition = broker.partition

        def reach(_: Broker) -> None:
            outcome = self._decide(proposal)
            self.send(broker.broker_id, lambda _: answered(outcome))

        def answered(outcome: Outcome) -> None:
            if self.is_lossy and self.random.random() < 0.2:
                outcome = Outcome.UNKNOWN
            if partition.on_proposal_outcome(proposal, outcome):
                again = partition.propose_again()
                if again is not None:
                    self.propose(broker, again)

        self.send(broker.broker_id, reach)

    def _decide(self, proposal: InSyncProposal) -> Outcome:
        state = self.state
        if (
            proposal.partition_epoch != state.partition_epoch
            or proposal.leader_epoch != state.leader_epoch
            or not all(self.may_be_member(*life) for life in proposal.joining)
        ):
            return Outcome.REFUSED
        self.store(state._replace(in_sync=proposal.in_sync))
        return Outcome.STORED

    def elect(self) -> None:
        """Who died leaves the set, except the last one; a leader comes out of who is left."""
        state = self.state
        live = [one for one in state.in_sync if self.brokers[one].is_up]
        if not live:
            if state.leader != -1:
                self.store(state._replace(leader=-1, leader_epoch=state.leader_epoch + 1))
            return
        leader = self.random.choice(live)
        self.store(
            state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, in_sync=tuple(live))
        )

    # -- time ---------------------------------------------------------------------------------

    def step(self) -> None:
        self.now_ms += self.random.randint(0, 200)
        chance = self.random
        broker = self.brokers[chance.choice(BROKERS)]
        what = chance.choices(
            ("deliver", "ask", "produce", "hear", "elect", "kill", "check", "give up"),
            (50, 30, 15, 10, 1, 0.6, 5, 3),
        )[0]
        if what == "deliver":
            self.deliver()
        elif what == "elect":
            self.elect()
        elif what == "kill":
            self._kill_or_start(broker)
        elif broker.is_up:
            if what == "ask":
                broker.ask()
            elif what == "produce":
                broker.produce()
            elif what == "hear":
                self._hear(broker)
            elif what == "give up":
                broker.give_up()
            else:
                self._check_in_sync(broker)
        self.check()

    def _kill_or_start(self, broker: Broker) -> None:
        if broker.is_up:
            broker.kill()
        else:
            broker.come_back()

    def _hear(self, broker: Broker) -> None:
        later = [state for state in self.states if state.partition_epoch > broker.seen]
        if later:
            # In order, but not necessarily all of them.
            broker.hear(later[0] if self.random.random() < 0.5 else later[-1])

    def _check_in_sync(self, broker: Broker) -> None:
        lag_ms = self.random.choice((300, 2_000, LAG_MS))
        proposal = broker.partition.check_in_sync(self.now_ms, lag_ms, self.may_be_member)
        if proposal is not None:
            self.propose(broker, proposal)

    def heal(self) -> None:
        """Everybody is up, nothing is lost: soon all have the same."""
        self.is_lossy = False
        self.in_flight.clear()
        for broker in self.brokers.values():
            if not broker.is_up:
                broker.come_back()
            broker.give_up()
        self.elect()
        for _ in range(60):
            self.now_ms += 100
            for broker in self.brokers.values():
                self._hear_all(broker)
                broker.ask()
                again = broker.partition.propose_again()
                if again is not None:
                    self.propose(broker, again)
                self._check_in_sync(broker)
            for _ in range(20):
                self.deliver()
            self.check()

    def _hear_all(self, broker: Broker) -> None:
        for state in self.states:
            broker.hear(state)

    # -- what must hold -----------------------------------------------------------------------

    def check(self) -> None:
        assert not self.alarms, self.alarms
        logs = {broker_id: broker.batches() for broker_id, broker in self.brokers.items()}
        members = self.state.in_sync
        for broker in self.brokers.values():
            watermark = broker.partition.high_watermark
            assert watermark <= broker.replica.log.log_end_offset  # L5
            if broker.is_up and broker.partition.is_leader:
                own = logs[broker.broker_id]
                for member in members:  # R3
                    if member != broker.broker_id:
                        for offset in range(watermark):
                            assert logs[member].get(offset) == own[offset], (member, offset)
        for offset, content in self.acked.items():  # R4
            for member in members:
                assert logs[member].get(offset, b"")[9:] == content, (member, offset)
