"""Goal: in-sync sets are looked after in time, and no proposal is left without an end.
Method: real partitions, a writer that the test answers for, virtual time.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from ottla.base.deferred import Deferred
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import BrokerRegistration, MetadataImage, PartitionState, TopicImage
from ottla.replication.effects import InSyncProposal, Outcome
from ottla.replication.leader_progress import Pulse
from ottla.replication.partition import Partition
from ottla.runtime.in_sync_keeper import RETRY_MS, InSyncKeeper
from sim.groups.virtual import VirtualTime
from tests.unit.replication.replicas import TOPIC_ID, Replica, assigned

LAG_MS = 30_000


class Setting:
    def __init__(self) -> None:
        self.time = VirtualTime()
        self.leader = Replica(1).lead(in_sync=(1, 2))
        self.proposed: list[tuple[InSyncProposal, Deferred[Outcome]]] = []
        self.image = MetadataImage(
            brokers={one: BrokerRegistration(one, 70 + one, {}) for one in (1, 2, 3)}
        )
        self.keeper = InSyncKeeper(
            partitions=self,
            writer=self,
            clock=self.time,
            timers=self.time,
            config=lambda: BrokerConfig({}),
            image=lambda: self.image,
        )
        self.keeper.start()

    def all(self) -> list[Partition]:
        return [self.leader.partition]

    def propose(self, proposal: InSyncProposal) -> Deferred[Outcome]:
        self.proposed.append((proposal, Deferred()))
        return self.proposed[-1][1]

    def fetched_by(self, replica: int, offset: int) -> None:
        proposal = self.leader.partition.on_follower_fetch(
            replica,
            70 + replica,
            offset,
            0,
            Pulse(self.time.monotonic_ms()),
            self.keeper.may_be_member,
        )
        if proposal is not None:
            self.keeper.propose(self.leader.partition, proposal)

    def sets(self) -> list[tuple[int, ...]]:
        return [proposal.in_sync for proposal, _ in self.proposed]

    def become(self, broker_id: int, **changes: object) -> None:
        old = self.image
        broker = replace(old.brokers[broker_id], **changes)  # type: ignore[arg-type]
        self.image = replace(old, brokers={**old.brokers, broker_id: broker})
        self.keeper.on_image(old, self.image)

    def hear(self, *, version: int, in_sync: tuple[int, ...]) -> None:
        old = self.image
        state = PartitionState(1, 5, (1, 2, 3), in_sync, version)
        topic = TopicImage("topic", uuid.UUID(int=1), {0: state})
        self.image = replace(old, topics={"topic": topic})
        self.keeper.on_image(old, self.image)


def test_who_lags_leaves_within_one_and_a_half_of_the_time() -> None:
    setting = Setting()
    setting.leader.produce()
    setting.time.advance(LAG_MS)
    assert setting.sets() == []
    setting.time.advance(LAG_MS // 2)
    assert setting.sets() == [(1,)]


def test_who_may_not_join_does_so_when_it_may() -> None:
    setting = Setting()
    setting.become(3, fenced=True)
    setting.fetched_by(3, 0)
    assert setting.sets() == []
    setting.become(3, fenced=False)
    assert setting.sets() == [(1, 2, 3)]


def test_who_has_lost_its_disk_is_not_asked_to_join_again() -> None:
    """Its broker lives and fetches other partitions, and it had everything a moment ago. While it
    is proposed nothing could be committed without it."""
    setting = Setting()
    state = PartitionState(1, 5, (1, 2, 3), (1, 2))
    topic = TopicImage("topic", TOPIC_ID, {0: state})
    setting.image = replace(
        setting.image, topics={"topic": topic}, topic_names_by_id={TOPIC_ID: "topic"}
    )
    setting.become(3, fenced=True)
    setting.fetched_by(3, 0)
    setting.become(3, fenced=False, offline={TOPIC_ID: frozenset({0})})
    setting.time.advance(LAG_MS // 2)
    assert setting.sets() == []
    setting.become(3, offline={TOPIC_ID: frozenset({1})})
    assert setting.sets() == [(1, 2, 3)]


def test_who_caught_up_while_another_was_joining_is_next() -> None:
    setting = Setting()
    setting.leader.assume(assigned(1, 5, 1, in_sync=(1,)))
    setting.fetched_by(2, 0)
    setting.fetched_by(3, 0)
    assert setting.sets() == [(1, 2)]
    setting.proposed[0][1].resolve(Outcome.STORED)
    setting.hear(version=1, in_sync=(1,))
    assert len(setting.proposed) == 1, "not before the newer state has come"
    # It does not fetch again: where nothing is written nothing is said.
    setting.leader.assume(assigned(1, 5, 2, in_sync=(1, 2)))
    setting.hear(version=2, in_sync=(1, 2))
    assert setting.sets() == [(1, 2), (1, 2, 3)]


def test_who_may_be_a_member() -> None:
    setting = Setting()
    may = setting.keeper.may_be_member
    assert may(3, 73)
    assert not may(3, 72)
    assert not may(9, 79)
    for flag in ("fenced", "shutting_down", "unclean"):
        setting.become(3, **{flag: True})
        assert not may(3, 73)
        setting.become(3, **{flag: False})


def test_a_refused_proposal_is_followed_by_another_until_the_state_is_newer() -> None:
    setting = Setting()
    setting.fetched_by(3, 0)
    for count in range(1, 4):
        assert len(setting.proposed) == count
        setting.proposed[-1][1].resolve(Outcome.REFUSED if count % 2 else Outcome.UNKNOWN)
        setting.time.advance(RETRY_MS)
    assert setting.sets()[1:] == [(1, 2)] * 3
    setting.leader.assume(assigned(1, 5, 1, in_sync=(1, 2)))
    setting.proposed[-1][1].resolve(Outcome.REFUSED)
    setting.time.advance(10 * RETRY_MS)
    assert len(setting.proposed) == 4


def test_a_stored_proposal_is_not_repeated() -> None:
    setting = Setting()
    setting.fetched_by(3, 0)
    setting.proposed[0][1].resolve(Outcome.STORED)
    setting.time.advance(10 * RETRY_MS)
    assert len(setting.proposed) == 1


def test_stopped_it_looks_no_more() -> None:
    setting = Setting()
    setting.leader.produce()
    setting.keeper.stop()
    setting.time.advance(10 * LAG_MS)
    assert setting.sets() == []
