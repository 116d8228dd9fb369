"""Goal: what the shards of a broker share reaches all of them: settings, the image, deleted topics,
the bound of memory; and offsets age shard by shard, a bit at a time.
Method: real shards over logs in memory, a pool whose work the test does, virtual time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator import member_memory, offset_commits
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Caller
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.metadata.topic_names import CONSUMER_OFFSETS
from ottla.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, NONE
from ottla.replication.replica_session import no_suspicion
from ottla.runtime.group_coordinator import GroupCoordinator
from ottla.runtime.key_hash import key_hash
from ottla.runtime.shard_host import ShardHost
from ottla.runtime.shard_set import ShardServices
from sim.groups.virtual import VirtualTime
from tests.unit.replication.replicas import Replica, assigned

COUNT = 3
MINUTE_MS = 60_000
ALL = tuple(range(COUNT))


def group_at(index: int) -> str:
    """A group that the partition `index` holds."""
    return next(name for name in map(str, range(100)) if key_hash(name) % COUNT == index)


class Broker:
    """Broker 1 and its partitions of `__consumer_offsets`."""

    def __init__(self, **settings: str) -> None:
        self.time = VirtualTime()
        self.work: list[Callable[[], None]] = []
        self.replicas = {index: Replica(1, in_sync_min=1) for index in ALL}
        self.epochs = dict.fromkeys(ALL, 0)
        self.topics: dict[str, uuid.UUID] = {}
        self.uuids = 0
        self.services = SimpleNamespace(
            broker_id=1,
            config=BrokerConfig(settings),
            clock=self.time,
            timers=self.time,
            pool=self,
            partitions=SimpleNamespace(find=lambda _, index: self.replicas[index].partition),
            image=MetadataImage(),
            new_uuid=self.new_uuid,
            suspect=no_suspicion,
        )
        self.coordinator = GroupCoordinator(cast(ShardServices, self.services))
        self.coordinator.start()

    def new_uuid(self) -> uuid.UUID:
        self.uuids += 1
        return uuid.UUID(int=self.uuids)

    def run(self, work: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.work.append(lambda: done.resolve(work(*arguments)))
        return done

    def load_all(self) -> None:
        while self.work:
            self.work.pop(0)()

    # -- the cluster ------------------------------------------------------------------------

    def lead(self, *indexes: int) -> None:
        """In a new epoch each."""
        for index in indexes:
            self.epochs[index] += 1
            epoch = self.epochs[index]
            self.replicas[index].assume(assigned(1, epoch, epoch, in_sync=(1,)))
        self.tell()

    def make_topic(self, name: str) -> None:
        self.topics[name] = self.new_uuid()
        self.tell()

    def delete_topic(self, name: str) -> None:
        del self.topics[name]
        self.tell()

    def tell(self) -> None:
        """The broker acts on the image of this moment."""
        offsets = TopicImage(
            CONSUMER_OFFSETS,
            uuid.UUID(int=10**6),
            {index: self._state(self.epochs[index]) for index in ALL},
        )
        others = {
            name: TopicImage(name, topic_id, {0: self._state(1)})
            for name, topic_id in self.topics.items()
        }
        image = MetadataImage(
            topics={CONSUMER_OFFSETS: offsets, **others},
            topic_names_by_id={topic_id: name for name, topic_id in self.topics.items()},
        )
        self.services.image = image
        self.coordinator.on_image(image)

    def _state(self, epoch: int) -> PartitionState:
        return PartitionState(1, epoch, (1, 2, 3), (1,), epoch)

    # -- groups -----------------------------------------------------------------------------

    def host(self, index: int) -> ShardHost[GroupShard]:
        host = self.coordinator.host_at(index)
        assert isinstance(host, ShardHost)
        return host

    def commit(self, index: int, topic: str, group: str | None = None) -> None:
        partition = SimpleNamespace(
            partition_index=0,
            committed_offset=5,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = SimpleNamespace(
            group_id=group or group_at(index),
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[SimpleNamespace(name=topic, topic_id=None, partitions=[partition])],
        )
        caller = Caller("client", "/127.0.0.1", 9)
        answer = self.host(index).write(lambda shard: shard.commit_offsets(request, caller))
        assert answer.result()["topics"][0]["partitions"][0]["error_code"] == NONE

    def committed(self, index: int) -> set[str]:
        """The topics of which the shard holds offsets."""
        held = self.host(index).shard.offsets.by_group
        return {topic for topics in held.values() for topic in topics}

    def join(self, index: int, size: int) -> int | None:
        """The error code, or None if the member waits for others."""
        request = SimpleNamespace(
            group_id=group_at(index),
            member_id="",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[SimpleNamespace(name="range", metadata=bytes(size))],
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        )
        caller = Caller("client", "/127.0.0.1", 3)
        answer = self.host(index).write(lambda shard: shard.join_group(request, caller))
        return int(answer.result()["error_code"]) if answer.done else None


def a_broker(**settings: str) -> Broker:
    broker = Broker(**settings)
    broker.make_topic("t")
    broker.make_topic("u")
    broker.lead(*ALL)
    broker.load_all()
    return broker


# -- what happens while shards are loaded ---------------------------------------------------------


def test_offsets_of_a_topic_that_went_while_its_shard_was_loaded_go_too() -> None:
    broker = a_broker()
    for index in ALL:
        broker.commit(index, "t")
        broker.commit(index, "u")
    broker.lead(0, 1)
    broker.delete_topic("t")
    assert broker.committed(2) == {"u"}
    broker.load_all()
    assert [broker.committed(index) for index in ALL] == [{"u"}] * COUNT
    assert not broker.coordinator.is_loading()


def test_what_went_is_forgotten_when_everything_is_loaded() -> None:
    broker = a_broker()
    broker.commit(0, "t")
    broker.lead(0)
    broker.delete_topic("t")
    broker.load_all()
    broker.make_topic("t")
    broker.commit(0, "t")
    broker.lead(0)
    broker.load_all()
    assert broker.committed(0) == {"t"}


def test_a_commit_of_the_topic_that_is_there_now_stays_whatever_went() -> None:
    broker = a_broker()
    broker.commit(0, "t")
    broker.commit(1, "t")
    broker.lead(0)  # and it takes its time
    slow = broker.work.pop()
    broker.delete_topic("t")
    broker.make_topic("t")
    assert broker.committed(1) == set()
    broker.commit(1, "t")
    broker.lead(1)
    broker.load_all()
    assert broker.committed(1) == {"t"}, "it is of the new topic"
    slow()
    broker.load_all()
    assert broker.committed(0) == set(), "and this is not"


def test_new_settings_reach_shards_that_are_still_loaded() -> None:
    broker = a_broker()
    for index in ALL:
        broker.commit(index, "t")
    broker.lead(0)
    broker.coordinator.on_config(BrokerConfig({"group.max.size": "7"}))
    broker.load_all()
    sizes = [broker.host(index).shard.context.config.group_max_size for index in ALL]
    assert sizes == [7] * COUNT


def test_a_setting_that_no_topic_may_have_costs_the_coordinator_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Kafka: the broker's own setting may be smaller than the topic's."""
    broker = Broker(**{"offsets.topic.segment.bytes": "100000"})
    written: list[Any] = []

    def submit(decide: Callable[[MetadataImage], Any]) -> Deferred[Any]:
        decision = decide(broker.services.image)
        written.extend(decision.writes)
        done: Deferred[Any] = Deferred()
        done.resolve(decision.response)
        return done

    broker.services.controller = SimpleNamespace(submit=submit)
    error = broker.coordinator.ensure_topic().error()
    assert isinstance(error, ProtocolError)
    assert error.code == COORDINATOR_NOT_AVAILABLE
    assert not written
    assert "segment.bytes: Value must be at least 1048576" in caplog.text


# -- memory ---------------------------------------------------------------------------------------


def test_all_shards_share_one_bound_of_memory() -> None:
    broker = a_broker()
    large = member_memory.MEMORY_BYTES_MAX // 20
    codes = [broker.join(index, large) for index in (*ALL, *ALL, *ALL)]
    assert codes[0] is None, "the first member waits for others"
    assert codes[-1] == COORDINATOR_NOT_AVAILABLE


def test_what_a_shard_held_is_free_when_it_is_gone() -> None:
    broker = a_broker()
    large = member_memory.MEMORY_BYTES_MAX // 20
    while broker.join(0, large) is None:
        pass
    assert broker.join(1, large) == COORDINATOR_NOT_AVAILABLE
    broker.lead(0)
    broker.load_all()
    assert broker.join(1, large) is None


# -- ageing ---------------------------------------------------------------------------------------


def aged(broker: Broker) -> None:
    """All that is committed is nearly too old; it will be at the next check, in a millisecond."""
    broker.time.advance(7 * 24 * 60 * MINUTE_MS - 1)


def left(broker: Broker) -> list[int]:
    return [broker.host(index).shard.offsets.count for index in ALL]


def test_one_shard_after_the_other_and_never_much_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offset_commits, "SWEEP_COMMITS_MAX", 2)
    broker = a_broker()
    names = [name for name in map(str, range(100)) if key_hash(name) % COUNT == 0][:5]
    for name in names:
        broker.commit(0, "t", name)
    broker.commit(1, "t")
    broker.commit(2, "t")
    turns: list[list[int]] = []
    original = GroupShard.on_tick

    def on_tick(shard: GroupShard) -> Any:
        turns.append(left(broker))
        return original(shard)

    monkeypatch.setattr(GroupShard, "on_tick", on_tick)
    aged(broker)
    turns.clear()
    before = left(broker)
    broker.time.advance(1)
    assert left(broker) == [0, 0, 0]
    assert before == [5, 1, 1]
    # Of a group one commit and the group itself are looked at.
    assert [turn[0] for turn in turns[:5]] == [5, 4, 3, 2, 1]
    assert len(turns) == 7


def test_a_shard_that_is_lost_meanwhile_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ottla.runtime")
    broker = a_broker()
    for index in ALL:
        broker.commit(index, "t")
    original = GroupShard.on_tick

    def on_tick(shard: GroupShard) -> Any:
        if shard is first.shard and lose_it:
            broker.lead(1)
        return original(shard)

    first, lose_it = broker.host(0), False
    monkeypatch.setattr(GroupShard, "on_tick", on_tick)
    aged(broker)
    lose_it = True
    broker.time.advance(1)
    assert [broker.host(index).shard.offsets.count for index in (0, 2)] == [0, 0]
    assert not [one for one in caplog.records if one.name == "ottla.runtime"]


def test_nothing_is_swept_after_the_end() -> None:
    broker = a_broker()
    broker.commit(0, "t")
    aged(broker)
    hosts = list(broker.coordinator.hosts())
    broker.coordinator.close()
    broker.time.advance(MINUTE_MS)
    assert all(host.is_closed for host in hosts)
