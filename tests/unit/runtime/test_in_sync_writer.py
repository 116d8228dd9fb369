"""Goal: a leader's in-sync set is written only where it still fits, and the outcome says what the
leader may rely on.
Method: a leader's proposals over a store in memory, with other brokers that change things at the
worst moment; the store's calls are held back by a pool that runs them one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.metadata import nodes, paths
from ottla.metadata.controller import TopicSelection, decide_delete_topics
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.store import (
    Change,
    ChangeTooLarge,
    Operation,
    StoreRefused,
    StoreUnavailable,
    Write,
)
from ottla.metadata.topic_settings import TopicSettings
from ottla.replication.effects import InSyncProposal, Outcome
from ottla.runtime.in_sync_writer import InSyncWriter
from ottla.runtime.store_lane import StoreLane
from tests.unit.metadata.builders import SETTINGS, Cluster, registration

R = TypeVar("R")
STORED, REFUSED, UNKNOWN = Outcome.STORED, Outcome.REFUSED, Outcome.UNKNOWN


class HeldPool:
    """Work waits until the test lets it happen."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Deferred[Any], Callable[[], Any]]] = deque()

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        answer: Deferred[R] = Deferred()
        self._jobs.append((answer, lambda: work(*arguments)))
        return answer

    def work(self) -> bool:
        if not self._jobs:
            return False
        answer, job = self._jobs.popleft()
        try:
            value = job()
        except OttlaError as error:
            answer.fail(error)
        else:
            answer.resolve(value)
        return True


class Leader:
    """Broker 1 of a cluster of three, leader of three partitions; its image is its own."""

    def __init__(self) -> None:
        self.cluster = Cluster(brokers=(1, 2, 3))
        self.cluster.create_on("t", (1, 2, 3), (1, 2, 3), (1, 2, 3))
        self.store = self.cluster.store
        self.pool = HeldPool()
        self.posted: deque[Callable[[], None]] = deque()
        self.commits = 0
        self.fenced = False
        self.failure: Exception | None = None
        self.image: MetadataImage = self.cluster.image
        self.writer = InSyncWriter(
            broker_id=1,
            source=self,
            store=self,  # type: ignore[arg-type]
            lane=StoreLane(self.pool),
            post=self.posted.append,
        )

    def settings(self) -> TopicSettings:
        return SETTINGS

    def is_fenced(self) -> bool:
        return self.fenced

    def commit(self, operations: list[Operation]) -> Change:
        self.commits += 1
        if self.failure is not None:
            raise self.failure
        return self.store.commit(operations)

    def refresh(self) -> None:
        self.cluster.reload()
        self.image = self.cluster.image

    def state(self, index: int = 0) -> PartitionState:
        self.refresh()
        return self.image.topics["t"].partitions[index]

    def propose(self, index: int, *in_sync: int, epoch: int = 0, life: int = 0) -> Deferred[Any]:
        now = self.image.topics["t"].partitions[index]
        joining = tuple(
            (broker, life or self.image.brokers[broker].epoch)
            for broker in in_sync
            if broker not in now.in_sync
        )
        return self.writer.propose(
            InSyncProposal("t", index, epoch, now.partition_epoch, in_sync, joining)
        )

    def run(self) -> None:
        while self.posted or self.pool.work():
            if self.posted:
                self.posted.popleft()()


def outcomes(leader: Leader, *asked: Deferred[Outcome]) -> list[Outcome]:
    leader.run()
    return [each.result() for each in asked]


def shrunk(leader: Leader, index: int = 0) -> None:
    """Partition `index` is on 1 alone, and the leader knows."""
    assert outcomes(leader, leader.propose(index, 1)) == [STORED]
    leader.refresh()


def test_all_of_one_turn_go_in_one_commit() -> None:
    leader = Leader()
    asked = [leader.propose(index, 1, 2) for index in range(3)]
    assert leader.commits == 0
    assert outcomes(leader, *asked) == [STORED] * 3
    assert leader.commits == 1
    assert [leader.state(index).in_sync for index in range(3)] == [(1, 2)] * 3


def test_who_leaves_a_small_set_is_eligible_and_comes_back() -> None:
    leader = Leader()
    shrunk(leader)
    assert leader.state().eligible == (2, 3)
    assert outcomes(leader, leader.propose(0, 1, 3)) == [STORED]
    assert (leader.state().in_sync, leader.state().eligible) == ((1, 3), ())


def test_one_that_does_not_fit_does_not_hold_up_the_others() -> None:
    leader = Leader()
    asked = [leader.propose(index, 1, 2) for index in range(3)]
    write_elsewhere(leader, 1)
    assert outcomes(leader, *asked) == [STORED, REFUSED, STORED]
    assert [leader.state(index).in_sync for index in range(3)] == [(1, 2), (1, 2, 3), (1, 2)]


def write_elsewhere(leader: Leader, index: int) -> None:
    """Somebody else writes the partition; the leader's image does not have it yet."""
    path = paths.partition_state("t", index)
    node = leader.store.load().nodes[path]
    leader.store.commit([replace_content(path, node.content)])


def replace_content(path: str, content: bytes) -> Operation:
    return Write(path, content, None)


@pytest.mark.parametrize("epoch", [-1, 1])
def test_only_in_the_epoch_that_it_leads_in(epoch: int) -> None:
    leader = Leader()
    assert outcomes(leader, leader.propose(0, 1, 2, epoch=epoch)) == [REFUSED]
    assert leader.commits == 0


@pytest.mark.parametrize("members", [(2, 3), (1, 2, 9), (1, 2, 2)])
def test_nonsense_is_not_written(members: tuple[int, ...]) -> None:
    leader = Leader()
    proposal = InSyncProposal("t", 0, 0, 0, members, ((9, 1),) if 9 in members else ())
    assert outcomes(leader, leader.writer.propose(proposal)) == [REFUSED]
    assert leader.commits == 0


def test_the_set_as_it_is_makes_the_version_grow() -> None:
    leader = Leader()
    assert outcomes(leader, leader.propose(0, 1, 2, 3)) == [STORED]
    assert (leader.state().in_sync, leader.state().partition_epoch) == ((1, 2, 3), 1)


def test_who_joins_must_be_named() -> None:
    leader = Leader()
    shrunk(leader)
    version = leader.state().partition_epoch
    asked = leader.writer.propose(InSyncProposal("t", 0, 0, version, (1, 2), ()))
    assert outcomes(leader, asked) == [REFUSED]


@pytest.mark.parametrize("what", ["dead", "fenced", "stopping", "unclean", "another life"])
def test_who_is_not_there_to_stay_does_not_join(what: str) -> None:
    leader = Leader()
    shrunk(leader)
    life = leader.image.brokers[2].epoch
    if what == "dead":
        leader.store.unregister(2)
    else:
        leader.store.register(2, registration(2, None, *FLAGS[what]))
    leader.refresh()
    if what not in ("dead", "another life"):
        life = leader.image.brokers[2].epoch
    assert outcomes(leader, leader.propose(0, 1, 2, life=life)) == [REFUSED]
    assert leader.state().in_sync == (1,)


# What the registration says: fenced, shutting down, unclean.
FLAGS = {
    "fenced": (True, False, False),
    "stopping": (False, True, False),
    "unclean": (False, False, True),
    "another life": (False, False, False),
}


@pytest.mark.parametrize("what", ["dies", "restarts", "stops"])
def test_what_the_leader_does_not_know_yet_is_checked_by_the_store(what: str) -> None:
    leader = Leader()
    shrunk(leader)
    asked = leader.propose(0, 1, 2)
    if what == "dies":
        leader.store.unregister(2)
    elif what == "restarts":
        leader.store.register(2, registration(2))
    else:
        leader.store.commit(
            [replace_content(paths.broker_id(2), registration(2, shutting_down=True))]
        )
    assert outcomes(leader, asked) == [REFUSED]
    assert leader.state().in_sync == (1,)


def test_a_topic_made_again_is_another_one() -> None:
    leader = Leader()
    asked = leader.propose(0, 1)
    leader.cluster.run(lambda image: decide_delete_topics(image, [TopicSelection("t")]))
    leader.cluster.create_on("t", (3, 2, 1), (2, 3, 1))
    assert outcomes(leader, asked) == [REFUSED]
    assert leader.state().in_sync == (3, 2, 1)


def test_a_setting_that_changes_meanwhile_is_looked_at_again() -> None:
    leader = Leader()
    asked = leader.propose(0, 1)
    leader.store.commit([replace_content(paths.topic_configs("t"), CONFIGS)])
    assert outcomes(leader, asked) == [STORED]
    assert leader.commits == 2
    assert leader.state().eligible == (), "with min.insync.replicas=1 the set is large enough"


CONFIGS = b'{"version":1,"config":{"min.insync.replicas":"1"}}'


@pytest.mark.parametrize(
    "failure",
    [
        StoreUnavailable("away"),
        StoreRefused("ZooKeeper lets this broker not change /brokers/topics/t/partitions/0/state"),
        ChangeTooLarge("1000001 bytes in one commit"),
        nodes.DamagedNode("/changes/change-1", "it is not JSON"),
    ],
)
def test_a_store_that_does_not_answer_or_not_well_leaves_it_open(failure: OttlaError) -> None:
    leader = Leader()
    leader.failure = failure
    assert outcomes(leader, leader.propose(0, 1)) == [UNKNOWN]
    leader.failure = None
    assert outcomes(leader, leader.propose(0, 1)) == [STORED]


def test_who_cannot_be_sure_of_its_session_writes_nothing() -> None:
    leader = Leader()
    leader.fenced = True
    assert outcomes(leader, leader.propose(0, 1)) == [REFUSED]
    assert leader.commits == 0


def test_two_proposals_for_one_partition_go_one_after_the_other() -> None:
    leader = Leader()
    first, second = leader.propose(0, 1, 2), leader.propose(0, 1)
    assert outcomes(leader, first, second) == [STORED, REFUSED]
    assert leader.state().in_sync == (1, 2)


def test_proposals_made_while_another_is_written_wait_for_it() -> None:
    leader = Leader()
    first = leader.propose(0, 1)
    leader.posted.popleft()()
    second = leader.propose(1, 1)
    third = leader.propose(2, 1)
    assert outcomes(leader, first, second, third) == [STORED] * 3
    assert leader.commits == 2


def test_who_proposes_again_at_once_does_not_block_the_loop() -> None:
    leader = Leader()
    leader.fenced = True
    seen: list[Outcome] = []

    def again(outcome: Deferred[Outcome]) -> None:
        seen.append(outcome.result())
        if len(seen) == 3:
            leader.fenced = False
        leader.propose(0, 1).when_done(again if len(seen) < 4 else lambda _: None)

    leader.propose(0, 1).when_done(again)
    leader.run()
    assert seen[:4] == [REFUSED, REFUSED, REFUSED, STORED]
