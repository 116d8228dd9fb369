"""Goal: copying goes on whatever happens to the leader, and asks for everybody as soon as it can.
Method: the fetchers of one broker over played peers and virtual time; the leader is a real
partition with real sessions, which answers when the test lets it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import PeerLost
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.protocol.error_codes import NOT_LEADER_OR_FOLLOWER
from ottla.protocol.fetch import FetchRequest, fetch_response_parts, read_fetch_request
from ottla.protocol.replica_fetch import VERSION
from ottla.replication.partition import Partition
from ottla.replication.replica_session import ReplicaSessions, Surroundings
from ottla.replication.throttle import Throttle
from ottla.runtime.peers import Peers
from ottla.runtime.replica_fetcher import FetcherServices
from ottla.runtime.replica_fetchers import ReplicaFetchers
from sim.groups.virtual import VirtualTime
from tests.unit.replication.replicas import TOPIC_ID, Replica, assigned


class PlayedPeers:
    """What was asked of whom; the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, FetchRequest, Deferred[memoryview]]] = []
        self.closed = 0

    def request(
        self, broker_id: int, purpose: str, api_key: int, version: int, body: bytes
    ) -> Deferred[memoryview]:
        assert (purpose, api_key, version) == ("replica", 1, VERSION)
        answer: Deferred[memoryview] = Deferred()
        self.asked.append((broker_id, read_fetch_request(VERSION, memoryview(body)), answer))
        return answer

    def close(self, broker_id: int | None = None, purpose: str | None = None) -> None:
        self.closed += 1


class Setting:
    """Broker 2 follows broker 1, which leads `count` partitions in epoch 5."""

    def __init__(self, count: int = 1, **settings: str) -> None:
        self.time = VirtualTime()
        self.peers = PlayedPeers()
        self.posted: list[Callable[[], None]] = []
        self.saved: list[tuple[str, Deferred[None]]] = []
        self.flushed: list[tuple[PartitionLog, Deferred[None]]] = []
        self.failures: list[Exception] = []
        self.broker_epoch = 77
        self.throttle = Throttle()
        services = FetcherServices(
            clock=self.time,
            timers=self.time,
            peers=cast(Peers, self.peers),
            post=self.posted.append,
            save_both_ends=self._save,
            flush=self._flush,
            storage_failed=self.failures.append,
        )
        self.fetchers = ReplicaFetchers(
            2, services, BrokerConfig(settings), self.throttle, lambda: self.broker_epoch
        )
        self.leaders = [Replica(1) for _ in range(count)]
        self.followers = [Replica(2) for _ in range(count)]
        for index in range(count):
            for replica in (self.leaders[index], self.followers[index]):
                replica.partition = Partition("topic", index, TOPIC_ID, "/data")
                replica.partition.log = replica.log
                replica.assume(assigned(1, 5))
        self.sessions = ReplicaSessions(
            Surroundings(
                broker_id=1,
                find=lambda topic_id, index: self.leaders[index].partition,
                may_be_member=lambda broker, epoch: True,
                propose=lambda partition, proposal: None,
                storage_failed=lambda failure: None,
                throttle=Throttle(),
                doubt=lambda partition, replica, epoch: None,
            ),
            lambda: 9,
        )

    def _save(self, path: str) -> Deferred[None]:
        self.saved.append((path, Deferred()))
        return self.saved[-1][1]

    def _flush(self, log: PartitionLog) -> Deferred[None]:
        self.flushed.append((log, Deferred()))
        return self.flushed[-1][1]

    def follow(self, *indexes: int) -> None:
        for index in indexes:
            self.fetchers.follow(self.followers[index].partition)
        self.turn()

    def turn(self) -> None:
        """The end of a turn of the loop."""
        while self.posted:
            self.posted.pop(0)()

    def serve(self) -> None:
        """The leader answers the oldest request."""
        _, request, answer = self.peers.asked.pop(0)
        session: Any = self.sessions.resolve(request, self.time.monotonic_ms())
        told: Any = []
        code, session_id = 0, 0
        if isinstance(session, int):
            code = session
        else:
            session.take(request, self.time.monotonic_ms())
            told, _ = session.collect(request.max_bytes)
            session_id = session.session_id
        topics = [(None, topic_id, [fetched]) for topic_id, fetched in told]
        parts, _ = fetch_response_parts(VERSION, 0, code, session_id, topics)
        body = b"".join(
            part if isinstance(part, bytes) else part.file.read_at(part.position, part.size)
            for part in parts
        )
        answer.resolve(memoryview(body))

    def lose(self) -> None:
        self.peers.asked.pop(0)[2].fail(PeerLost("gone"))

    def offsets(self) -> list[int]:
        return [replica.log.log_end_offset for replica in self.followers]


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_it_copies(setting: Setting) -> None:
    setting.leaders[0].produce(3)
    setting.follow(0)
    setting.serve()
    assert setting.offsets() == [3]
    setting.leaders[0].produce(2)
    setting.serve()
    assert setting.offsets() == [5]
    assert len(setting.peers.asked) == 1


def test_many_that_come_together_are_asked_for_together() -> None:
    setting = Setting(3)
    setting.follow(0, 1, 2)
    [(broker_id, request, _)] = setting.peers.asked
    assert broker_id == 1
    assert [len(partitions) for _, _, partitions in request.topics] == [3]


def test_a_new_one_does_not_wait_for_the_leader_to_have_news() -> None:
    setting = Setting(2)
    setting.follow(0)
    setting.serve()
    setting.follow(1)
    assert len(setting.peers.asked) == 2
    setting.leaders[1].produce()
    setting.serve()
    setting.serve()
    assert setting.offsets() == [0, 1]
    assert len(setting.peers.asked) == 1, "one request at a time again"


def test_a_lost_leader_is_asked_again_after_a_while_and_then_less_often(setting: Setting) -> None:
    setting.follow(0)
    pauses = []
    for _ in range(8):
        setting.lose()
        began_ms = setting.time.monotonic_ms()
        while not setting.peers.asked:
            setting.time.advance(10)
        pauses.append(setting.time.monotonic_ms() - began_ms)
    assert pauses == [50, 100, 200, 400, 800, 1000, 1000, 1000]
    setting.leaders[0].produce()
    setting.serve()
    assert setting.offsets() == [1]
    setting.lose()
    setting.time.advance(50)
    assert len(setting.peers.asked) == 1


def test_who_comes_while_the_leader_is_away_waits_as_well() -> None:
    setting = Setting(2)
    setting.follow(0)
    setting.lose()
    setting.follow(1)
    assert not setting.peers.asked
    setting.time.advance(50)
    [(_, request, _)] = setting.peers.asked
    assert [len(partitions) for _, _, partitions in request.topics] == [2]


def test_an_answer_that_is_none_ends_the_connection(setting: Setting) -> None:
    setting.follow(0)
    setting.peers.asked.pop()[2].resolve(memoryview(b"\0"))
    assert setting.peers.closed == 1
    setting.time.advance(50)
    setting.serve()


def test_a_partition_in_trouble_is_asked_for_again_on_its_own() -> None:
    setting = Setting(2)
    setting.leaders[1].assume(assigned(3, 6))
    setting.follow(0, 1)
    setting.serve()  # partition 1 is led by another, which only its leader knows yet
    setting.serve()
    setting.leaders[1] = Replica(1)
    setting.leaders[1].partition = Partition("topic", 1, TOPIC_ID, "/data")
    setting.leaders[1].partition.log = setting.leaders[1].log
    setting.leaders[1].assume(assigned(1, 5))
    setting.leaders[1].produce()
    setting.time.advance(50)
    while setting.peers.asked and setting.offsets()[1] == 0:
        setting.serve()
    assert setting.offsets() == [0, 1]
    assert NOT_LEADER_OR_FOLLOWER == 6


def test_who_is_followed_no_more_is_copied_no_more(setting: Setting) -> None:
    setting.follow(0)
    setting.fetchers.unfollow(setting.followers[0].partition)
    setting.turn()
    assert setting.fetchers.count() == 0
    setting.leaders[0].produce()
    setting.serve()
    assert setting.offsets() == [0]
    assert not setting.peers.asked


def test_a_partition_changes_its_leader() -> None:
    setting = Setting(1)
    setting.follow(0)
    setting.followers[0].assume(assigned(3, 6))
    setting.fetchers.follow(setting.followers[0].partition)
    setting.turn()
    assert [broker_id for broker_id, _, _ in setting.peers.asked] == [1, 3]
    assert setting.fetchers.count() == 1


def test_a_cut_is_on_the_disk_before_more_is_copied(setting: Setting) -> None:
    follower = setting.followers[0]
    follower.world.epoch = 3
    follower.world.fill(2)
    follower.world.flush()
    setting.leaders[0].produce()
    setting.follow(0)
    setting.serve()
    [(path, saved)] = setting.saved
    assert path == "/data"
    assert not setting.peers.asked
    saved.resolve(None)
    setting.turn()
    setting.serve()
    assert follower.content() == setting.leaders[0].content()


def test_another_life_of_this_broker_begins_again(setting: Setting) -> None:
    setting.follow(0)
    setting.serve()
    setting.broker_epoch = 78
    setting.fetchers.on_registered()
    setting.turn()
    request = setting.peers.asked[-1][1]
    assert (request.replica_epoch, request.session_epoch) == (78, 0)
    setting.fetchers.on_registered()
    setting.turn()
    assert len(setting.peers.asked) == 2


def test_each_leader_hears_of_another_life_whoever_was_followed_since_it_began() -> None:
    """A fetcher may be made between the image that has the new life and `on_registered`: that one
    asks in the new life already, and the others in the old one, for ever refused."""
    setting = Setting(2)
    setting.follow(0)
    setting.broker_epoch = 78
    setting.followers[1].assume(assigned(3, 6))
    setting.follow(1)
    setting.fetchers.on_registered()
    setting.turn()
    epochs = {broker_id: request.replica_epoch for broker_id, request, _ in setting.peers.asked}
    assert epochs == {1: 78, 3: 78}


def test_what_has_to_be_safe_is_synced_before_it_is_told(setting: Setting) -> None:
    follower = setting.followers[0]
    follower.log.config = replace(follower.log.config, flush_messages=1)
    setting.leaders[0].produce()
    setting.follow(0)
    setting.serve()
    [(log, flushed)] = setting.flushed
    assert log is follower.log
    assert not setting.peers.asked
    follower.world.flush()
    flushed.resolve(None)
    setting.turn()
    assert len(setting.peers.asked) == 1


def test_a_throttled_replica_copies_slowly(setting: Setting) -> None:
    setting.throttle.set_rate(100, now_ms=0)
    setting.throttle.set_replicas({"topic": ["0:2"]})
    setting.followers[0].assume(assigned(1, 5, 1, in_sync=(1, 3)))
    setting.leaders[0].produce(2)
    setting.follow(0)
    setting.serve()
    assert setting.offsets() == [2]
    assert not setting.peers.asked
    setting.time.advance(5_000)
    assert len(setting.peers.asked) == 1


@pytest.mark.parametrize("rate", [1_000_000, None])
def test_who_was_told_to_wait_asks_again_when_the_throttle_is_another(
    setting: Setting, rate: int | None
) -> None:
    setting.throttle.set_rate(1, now_ms=0)
    setting.throttle.set_replicas({"topic": ["0:2"]})
    setting.followers[0].assume(assigned(1, 5, 1, in_sync=(1, 3)))
    setting.leaders[0].produce(2)
    setting.follow(0)
    setting.serve()
    setting.leaders[0].produce(2)
    setting.time.advance(10_000)
    assert not setting.peers.asked
    assert setting.throttle.set_rate(rate, now_ms=10_000)
    setting.fetchers.on_throttle_changed()
    setting.time.advance(1)
    setting.serve()
    assert setting.offsets() == [4]


def test_limits_are_those_of_the_settings() -> None:
    setting = Setting(1, **{"replica.fetch.wait.max.ms": "123", "replica.fetch.max.bytes": "456"})
    setting.follow(0)
    [(_, request, _)] = setting.peers.asked
    assert request.max_wait_ms == 123
    assert request.topics[0][2][0].partition_max_bytes == 456


def test_closed_it_asks_no_more(setting: Setting) -> None:
    setting.follow(0)
    setting.fetchers.close()
    setting.lose()
    setting.time.advance(10_000)
    assert not setting.peers.asked
    setting.fetchers.follow(setting.followers[0].partition)
    setting.turn()
    assert not setting.peers.asked
