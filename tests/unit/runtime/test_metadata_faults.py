"""Goal: whatever happens to brokers and to their ways to the store, an epoch has one leader, epochs
and versions only grow, nobody is elected who may not lead; and when all is well again, everybody
knows the same and every partition that can be led is.
Method: random faults over drivers in simulated time, each change judged when it is made (R1, R2,
Z2, Z3 of the reliability notes), the end by convergence (Z5). Seeds come from the sources.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ottla.metadata.changes import apply, image_from_snapshot
from ottla.metadata.controller import decide_producer_id_block
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.memory_store import AFTER, BEFORE, MemoryStore
from ottla.metadata.store import Change
from tests.seeds import seed_for
from tests.unit.runtime.metadata_world import Member, World

SEEDS = 60
FAULTS = 25
BROKERS = 4


class Judge:
    """Follows the journal, and looks at every change of a partition."""

    def __init__(self, world: World) -> None:
        store = MemoryStore(world.ensemble)
        store.follow(self.on_change)
        self.image: MetadataImage = image_from_snapshot(store.load())
        self.leaders: dict[tuple[str, int, int], int] = {}

    def on_change(self, change: Change) -> None:
        old, self.image = self.image, apply(self.image, change)
        for topic in self.image.topics.values():
            before_all = old.topics.get(topic.name)
            for index, state in topic.partitions.items():
                before = None if before_all is None else before_all.partitions.get(index)
                if before is not None and before != state:
                    self.judge(topic.name, index, before, state)

    def judge(self, topic: str, index: int, before: PartitionState, after: PartitionState) -> None:
        assert after.partition_epoch > before.partition_epoch, "R2"
        assert after.leader_epoch >= before.leader_epoch, "R2"
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch, "R2"
        if after.leader == -1:
            return
        known = self.leaders.setdefault((topic, index, after.leader_epoch), after.leader)
        assert known == after.leader, "R1: two leaders of one epoch"
        if after.leader != before.leader:
            broker = self.image.brokers[after.leader]
            assert not broker.fenced, "Z3"
            assert not broker.shutting_down, "Z3"
            assert after.leader in (*before.in_sync, *before.eligible), "no unclean election"
        for newcomer in set(after.in_sync) - set(before.in_sync) - {after.leader}:
            broker = self.image.brokers[newcomer]
            assert not (broker.fenced or broker.shutting_down or broker.unclean), "Z3"


class Faults:
    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.away: dict[int, Member] = {}
        """Paused or cut off."""
        self.dead: dict[int, bool] = {}
        """Whether it will come back unclean."""
        self.stopping: set[int] = set()
        self.kinds: list[Callable[[], None]] = [
            self.kill,
            self.lose_power,
            self.come_back,
            self.pause,
            self.cut_off,
            self.expire,
            self.heal,
            self.lose_answer,
            self.stop,
            *[self.change_in_sync] * 6,
            *[self.ask] * 3,
        ]

    def happen(self) -> None:
        self.chance.choice(self.kinds)()
        self.world.time.run(self.chance.choice((0, 1, 3, 10, 100, 1_500, 8_000)))

    def _somebody(self) -> Member | None:
        present = [one for one in self.world.members.values() if one.broker_id not in self.away]
        return self.chance.choice(present) if present else None

    def _are_few(self) -> bool:
        return len(self.dead) + len(self.stopping) >= BROKERS - 1

    def kill(self, *, unclean: bool = False) -> None:
        member = self._somebody()
        if member is not None and not self._are_few():
            member.kill()
            self.dead[member.broker_id] = unclean

    def lose_power(self) -> None:
        self.kill(unclean=True)

    def come_back(self) -> None:
        if self.dead:
            broker_id = self.chance.choice(sorted(self.dead))
            self.world.add(broker_id, unclean=self.dead.pop(broker_id))

    def pause(self) -> None:
        member = self._somebody()
        if member is not None:
            member.pause()
            self.away[member.broker_id] = member

    def cut_off(self) -> None:
        member = self._somebody()
        if member is not None:
            member.store.cut_off()
            self.away[member.broker_id] = member

    def expire(self) -> None:
        """Of somebody who is away, and may believe to be there."""
        members = list(self.away.values()) or list(self.world.members.values())
        if members:
            self.chance.choice(members).store.expire()

    def heal(self) -> None:
        if self.away:
            member = self.away.pop(self.chance.choice(sorted(self.away)))
            if member.paused is not None:
                member.resume()
            else:
                member.store.heal()

    def lose_answer(self) -> None:
        member = self._somebody()
        if member is not None:
            member.store.lose_next_answer(self.chance.choice((BEFORE, AFTER)))

    def stop(self) -> None:
        member = self._somebody()
        if member is None or self._are_few() or not member.is_serving:
            return
        left = member.driver.leave()

        def gone(_: object) -> None:
            member.kill()
            self.dead[member.broker_id] = False
            self.stopping.discard(member.broker_id)

        left.when_done(lambda _: member.driver.sign_off().when_done(gone))
        self.world.members.pop(member.broker_id)
        self.stopping.add(member.broker_id)

    def change_in_sync(self) -> None:
        """A leader shrinks its set to those who are there, or takes in who has caught up."""
        member = self._somebody()
        if member is None:
            return
        for topic in member.image.topics.values():
            for index, state in topic.partitions.items():
                if state.leader == member.broker_id and self.chance.random() < 0.5:
                    others = [r for r in state.replicas if r != member.broker_id]
                    chosen = self.chance.sample(others, self.chance.randint(0, len(others)))
                    known = [r for r in chosen if r in member.image.brokers]
                    member.propose(topic.name, index, member.broker_id, *known)

    def ask(self) -> None:
        member = self._somebody()
        if member is not None:
            member.driver.submit(decide_producer_id_block)

    def end(self) -> None:
        while self.away:
            self.heal()
        self.world.time.run(30_000)  # whoever stops has stopped
        while self.dead:
            self.come_back()


@pytest.mark.parametrize("number", range(SEEDS))
def test_faults(number: int) -> None:
    seed = seed_for(f"metadata faults {number}")
    world = World(BROKERS, seed=seed)
    world.create("t", (1, 2, 3), (2, 3, 4), (3, 4, 1))
    world.create("u", (1, 3), (4, 2))
    world.create("v", (2,))
    judge = Judge(world)
    faults = Faults(world, random.Random(seed + 1))
    for _ in range(FAULTS):
        faults.happen()
    faults.end()
    world.until_settled()
    world.time.run(5_000)
    assert world.is_settled(), seed
    for topic in world.truth().topics.values():
        for index, state in topic.partitions.items():
            assert state.leader != -1, (seed, topic.name, index, state)
    assert judge.image.topics == world.truth().topics
