"""Goal: a leader that was told of a newer epoch leads on if the store knows of none, and only then.
Method: a real partition, and three drivers over an ensemble in memory, in simulated time.
"""

from __future__ import annotations

import logging

import pytest

from ottla.replication.effects import Assignment, InSyncProposal, Outcome
from ottla.replication.partition import Partition
from ottla.runtime.doubted_leaders import DoubtedLeaders
from tests.unit.replication.replicas import Replica
from tests.unit.runtime.metadata_world import World

TOPIC = "topic"
LONG_MS = 5_000


class Setting:
    """Broker 1 leads the only partition, in its first epoch."""

    def __init__(self) -> None:
        self.world = World()
        self.world.create(TOPIC, (1, 2, 3))
        self.replica = Replica(1)
        self.hear()
        self.member = self.world.members[1]
        self.proposed: list[InSyncProposal] = []
        self.resumed = 0
        self.leaders = DoubtedLeaders(
            metadata=self.member.driver,
            clock=self.world.time,
            timers=self.member,
            propose=lambda partition, proposal: self.proposed.append(proposal),
        )
        self.leaders.on_resumed = self._on_resumed

    def _on_resumed(self) -> None:
        self.resumed += 1

    @property
    def partition(self) -> Partition:
        return self.replica.partition

    def hear(self) -> None:
        """The partition is told what the store has."""
        state = self.world.state(TOPIC)
        self.replica.assume(
            Assignment(
                state.leader,
                state.leader_epoch,
                state.partition_epoch,
                state.replicas,
                state.in_sync,
            )
        )

    def claim(self, epoch: int, replica: int = 2) -> None:
        assert self.partition.step_down(epoch)
        self.leaders.doubt(self.partition, replica, epoch)

    def until_led(self) -> None:
        self.world.time.run_until(lambda: self.partition.is_leader)


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_an_epoch_that_the_store_does_not_know_changes_nothing(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    state = setting.world.state(TOPIC)
    with caplog.at_level(logging.WARNING):
        setting.claim(9)
        setting.until_led()
    assert setting.world.state(TOPIC) == state
    assert setting.partition.leader_epoch == state.leader_epoch
    assert setting.resumed == 1
    (line,) = [one.getMessage() for one in caplog.records if one.name == "ottla.runtime"]
    assert "replica 2 speaks of leader epoch 9" in line


def test_each_claim_is_asked_about(setting: Setting) -> None:
    for epoch in (5, 6, 5):
        setting.claim(epoch)
        setting.until_led()
    assert setting.resumed == 3


def test_an_epoch_that_there_is_is_waited_for(setting: Setting) -> None:
    world = setting.world
    world.members[1].driver.leave()
    world.time.run_until(lambda: world.state(TOPIC).leader == 2)
    setting.claim(1)
    world.time.run(LONG_MS)
    assert not setting.partition.is_leader
    assert setting.partition.is_in_doubt()
    setting.hear()
    assert not setting.partition.is_in_doubt()
    assert setting.resumed == 0


def test_while_the_store_is_away_it_is_asked_again(setting: Setting) -> None:
    setting.member.store.cut_off()
    setting.claim(9)
    setting.world.time.run(LONG_MS)
    assert not setting.partition.is_leader
    setting.member.store.heal()
    setting.until_led()


def test_a_proposal_that_was_lost_meanwhile_is_made_good(setting: Setting) -> None:
    partition = setting.partition
    setting.replica.assume(Assignment(1, 0, 1, (1, 2, 3), (1, 2)))
    lost = setting.replica.fetched_by(3, 0)
    assert lost is not None
    setting.claim(9)
    partition.on_proposal_outcome(lost, Outcome.REFUSED)
    setting.until_led()
    (again,) = setting.proposed
    assert again.in_sync == (1, 2)


def test_who_is_closed_asks_no_more(setting: Setting) -> None:
    setting.member.store.cut_off()
    setting.claim(9)
    setting.leaders.close()
    setting.member.store.heal()
    setting.world.time.run(LONG_MS)
    assert setting.partition.is_in_doubt()
