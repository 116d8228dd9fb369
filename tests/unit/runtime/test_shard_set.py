"""Goal: a shard is where its partition is led: loaded when that begins, gone when it ends.
Method: real partitions over logs in memory, a pool whose work the test does, virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.coordinator.shard import Record
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.runtime.key_hash import key_hash
from ottla.runtime.shard_host import HostTimers, ShardHost
from ottla.runtime.shard_set import ShardServices, ShardSet
from sim.groups.virtual import VirtualTime
from tests.unit.replication.replicas import TOPIC_ID, Replica, assigned

TOPIC = "topic"


class Shard:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.is_unloaded = False

    def replay(self, record: Record, producer_id: int = -1) -> None:
        self.records.append(record)

    def unload(self) -> None:
        self.is_unloaded = True


class Setting:
    """Broker 1 has a replica of the only partition."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.replica = Replica(1, in_sync_min=1)
        self.work: list[Callable[[], None]] = []
        self.shards: list[Shard] = []
        self.hosted: list[ShardHost[Shard]] = []
        self.suspected: list[int] = []
        self.services = SimpleNamespace(
            broker_id=1,
            config=BrokerConfig({}),
            clock=self.time,
            timers=self.time,
            pool=self,
            partitions=SimpleNamespace(find=lambda topic, index: self.replica.partition),
            suspect=lambda partition, offset: self.suspected.append(offset),
        )
        self.become(leader=2)
        self.set: ShardSet[Shard] = ShardSet(
            cast(ShardServices, self.services),
            TOPIC,
            "offsets.topic.num.partitions",
            self._make,
            lambda index, host: self.hosted.append(host),
            lambda: 5_000,
        )

    def _make(self, index: int, timers: HostTimers) -> tuple[Shard, Any]:
        shard = Shard()
        self.shards.append(shard)
        return shard, shard.replay

    def run(self, work: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def settle() -> None:
            try:
                done.resolve(work(*arguments))
            except OttlaError as failure:
                done.fail(failure)

        self.work.append(settle)
        return done

    def fill(self, *, rotten: bool = False) -> None:
        """One record, so that there is something to load."""
        content = build_batch([RecordToWrite(self.time.wall_ms(), b"key", b"value")])
        if rotten:
            content = content.replace(b"value", b"worse")
        self.replica.world.append(content)

    def load_all(self) -> None:
        while self.work:
            self.work.pop(0)()

    def become(self, leader: int, epoch: int = 1, *, acts: bool = True) -> None:
        state = PartitionState(leader, epoch, (1, 2, 3), (leader,), epoch)
        topic = TopicImage(TOPIC, TOPIC_ID, {0: state})
        self.services.image = MetadataImage(topics={TOPIC: topic})
        if acts:
            self.replica.assume(assigned(leader, epoch, epoch, in_sync=(leader,)))

    def lead(self, epoch: int) -> None:
        self.become(1, epoch)
        self.set.follow(self.services.image)

    def host(self) -> ShardHost[Shard]:
        found = self.set.host_of("key")
        assert isinstance(found, ShardHost)
        return found


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_who_leads_on_after_a_doubt_is_loaded_anew(setting: Setting) -> None:
    """It may have missed time-outs, and what it had parked it has refused."""
    setting.fill()
    setting.lead(epoch=5)
    setting.load_all()
    before = setting.host()
    partition = setting.replica.partition
    assert partition.step_down(6)
    assert not before.leads()
    partition.resume(0)
    assert not before.leads()
    setting.set.follow(setting.services.image)
    setting.load_all()
    assert before.is_closed
    assert setting.host() is not before
    assert setting.host().leads()
    assert len(setting.shards[-1].records) == 1


def test_what_has_rotted_is_not_loaded_and_is_looked_at(setting: Setting) -> None:
    setting.fill()
    setting.fill(rotten=True)
    setting.lead(2)
    setting.load_all()
    assert setting.set.host_of("key") == COORDINATOR_LOAD_IN_PROGRESS
    assert setting.suspected == [1]
    setting.time.advance(1_000)
    setting.load_all()
    assert setting.suspected == [1, 1]
    assert all(shard.is_unloaded for shard in setting.shards)


def test_what_is_led_elsewhere_is_not_here(setting: Setting) -> None:
    setting.set.follow(setting.services.image)
    assert setting.set.host_of("key") == NOT_COORDINATOR
    assert setting.set.leader_of("key") == 2
    assert not setting.work


def test_what_is_led_here_is_loaded_and_then_hosted(setting: Setting) -> None:
    setting.fill()
    setting.lead(2)
    assert setting.set.host_of("key") == COORDINATOR_LOAD_IN_PROGRESS
    assert setting.set.is_loading()
    setting.load_all()
    assert setting.host() is setting.hosted[0]
    assert setting.host().leader_epoch == 2
    assert not setting.set.is_loading()


def test_it_is_loading_as_soon_as_the_image_says_so(setting: Setting) -> None:
    setting.become(1, 2, acts=False)
    assert setting.set.host_of("key") == COORDINATOR_LOAD_IN_PROGRESS


def test_a_lost_leadership_closes_it(setting: Setting) -> None:
    setting.lead(2)
    setting.load_all()
    host = setting.host()
    setting.become(3, 3)
    setting.set.follow(setting.services.image)
    assert host.is_closed
    assert setting.shards[0].is_unloaded
    assert setting.set.host_of("key") == NOT_COORDINATOR


def test_from_the_first_moment_it_knows_nothing_any_more(setting: Setting) -> None:
    setting.lead(2)
    setting.load_all()
    host = setting.host()
    setting.become(3, 3)  # the set has not heard of it yet
    asked = host.read(lambda shard: len(shard.records))
    error = asked.error()
    assert error is not None
    assert getattr(error, "code", None) == NOT_COORDINATOR


def test_leading_again_it_is_loaded_again(setting: Setting) -> None:
    setting.lead(2)
    setting.load_all()
    first = setting.host()
    setting.lead(3)
    assert first.is_closed
    setting.load_all()
    assert setting.host().leader_epoch == 3


def test_a_leadership_that_is_lost_while_it_is_loaded(setting: Setting) -> None:
    setting.fill()
    setting.lead(2)
    setting.become(3, 3)
    setting.set.follow(setting.services.image)
    assert setting.set.host_of("key") == NOT_COORDINATOR
    assert not setting.set.is_loading()
    setting.load_all()
    assert not setting.hosted
    assert setting.shards[0].is_unloaded


def test_one_that_is_loaded_too_late_is_let_go(setting: Setting) -> None:
    setting.fill()
    setting.lead(2)
    setting.work.pop(0)()  # it is read, and now it is to be replayed
    setting.set.close()
    setting.load_all()
    assert setting.shards[0].records
    assert setting.shards[0].is_unloaded
    assert not setting.hosted


def test_keys_are_hashed_as_java_does() -> None:
    # abs(hashCode()) of each, by a JVM
    assert key_hash("") == 0
    assert key_hash("a") == 97
    assert key_hash("group") == 98629247
    assert key_hash("polygenelubricants") == 0
    assert key_hash("é\U0001f600") == abs(_java(("é", "\ud83d", "\ude00")))
    assert key_hash("x" * 300) == key_hash("x" * 300)


def _java(units: tuple[str, ...]) -> int:
    total = 0
    for unit in units:
        total = (31 * total + ord(unit)) & 0xFFFFFFFF
    return total - (1 << 32) if total & 0x80000000 else total
