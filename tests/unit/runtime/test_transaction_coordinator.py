"""Goal: what the pure shards cannot do is done until it is done, and whoever asked is answered.
Method: a coordinator over a real partition in memory, virtual time, markers that are written,
refused or lost as each test says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError, StorageError
from ottla.base.ids import TopicPartition
from ottla.coordinator.shard import Fields, Transactional
from ottla.coordinator.transaction_asks import EndAsked, InitAsked
from ottla.coordinator.transaction_records import STATE_NAMES
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.metadata.topic_names import TRANSACTION_STATE
from ottla.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER,
    PRODUCER_FENCED,
    REQUEST_TIMED_OUT,
    TRANSACTION_COORDINATOR_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.replica_session import no_suspicion
from ottla.runtime.marker_writer import MarkerWriter
from ottla.runtime.peers import Peers
from ottla.runtime.shard_host import ShardHost
from ottla.runtime.transaction_coordinator import (
    MARKER_RETRY_MS,
    WRITE_TIMEOUT_MS,
    TransactionCoordinator,
)
from sim.groups.virtual import VirtualTime
from tests.unit.replication.replicas import TOPIC_ID, Replica, assigned
from tests.unit.runtime.played_peers import PlayedPeers

T0, T1 = ("t", 0), ("t", 1)
TICK_MS = 10_000
NEW = 2


class Setting:
    """Broker 1 leads `__transaction_state`; it is the markers' writer and the pool too."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.replica = Replica(1, in_sync_min=1)
        self.replica.assume(assigned(1, 1, 1, in_sync=(1,)))
        state = PartitionState(1, 1, (1,), (1,), 1)
        topic = TopicImage(TRANSACTION_STATE, TOPIC_ID, {0: state})
        self.new_id: Callable[[], Deferred[int]] = lambda: resolved(1000)
        self.written: list[tuple[TopicPartition, Transactional, bool]] = []
        self.revoked: list[TopicPartition] = []
        self.answers: dict[TopicPartition, Callable[[], Deferred[int]]] = {}
        services = SimpleNamespace(
            broker_id=1,
            config=BrokerConfig({}),
            clock=self.time,
            timers=self.time,
            pool=self,
            partitions=SimpleNamespace(find=lambda topic, index: self.replica.partition),
            image=MetadataImage(topics={TRANSACTION_STATE: topic}),
            new_producer_id=self._new_producer_id,
            suspect=no_suspicion,
        )
        writer, peers = cast(MarkerWriter, self), cast(Peers, PlayedPeers())
        self.coordinator = TransactionCoordinator(cast(Any, services), writer, peers)
        self.coordinator.markers = self
        self.coordinator.start()

    def run(self, work: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        return resolved(work(*arguments))

    def write(
        self,
        topic: str,
        index: int,
        marker: Transactional,
        *,
        client_version: int = 0,
        is_repeated: bool = False,
    ) -> Deferred[int]:
        self.written.append(((topic, index), marker, is_repeated))
        return self._answer((topic, index))

    def revoke(self, topic: str, index: int, producer_id: int) -> Deferred[int]:
        self.revoked.append((topic, index))
        return self._answer((topic, index))

    def _answer(self, place: TopicPartition) -> Deferred[int]:
        return self.answers[place]() if place in self.answers else resolved(0)

    def _new_producer_id(self) -> Deferred[int]:
        return self.new_id()

    # -- a client -----------------------------------------------------------------------------

    def init(self, **fields: Any) -> Deferred[Fields]:
        asked = InitAsked(**{"transactional_id": "x", "timeout_ms": 60_000, **fields})
        return self.coordinator.init_producer_id(asked)

    def open(self) -> None:
        assert self.init().result()["error_code"] == 0
        assert self.coordinator.add_partitions("x", 1000, 0, [T0, T1], NEW).result() == 0

    def prepare(self) -> Deferred[Fields]:
        return self.init(producer_id=1000, producer_epoch=0, enable_2pc=True, keep_prepared=True)

    def end(self) -> None:
        asked = EndAsked("x", 1000, 0, True, NEW)
        assert self.coordinator.end_transaction(asked).result()["error_code"] == 0

    def state(self) -> str:
        host = self.coordinator.host_of("x")
        assert isinstance(host, ShardHost)
        return STATE_NAMES[host.shard.transactions["x"].state]


def resolved(value: Any) -> Deferred[Any]:
    done: Deferred[Any] = Deferred()
    done.resolve(value)
    return done


def always(answer: Deferred[int]) -> Callable[[], Deferred[int]]:
    return lambda: answer


def failed(error: Exception) -> Deferred[Any]:
    done: Deferred[Any] = Deferred()
    done.fail(error)
    return done


@pytest.fixture
def setting() -> Setting:
    return Setting()


# -- markers that another coordinator asks for ------------------------------------------------


def test_a_marker_that_is_not_committed_in_time_is_not_waited_for(setting: Setting) -> None:
    late: Deferred[int] = Deferred()
    setting.answers[T0] = always(late)
    answer = setting.coordinator.write_marker("t", 0, Transactional(7, 1, True), NEW)
    setting.time.advance(WRITE_TIMEOUT_MS - 1)
    assert not answer.done
    setting.time.advance(1)
    assert answer.result() == REQUEST_TIMED_OUT
    late.resolve(0)  # nobody listens any more
    assert answer.result() == REQUEST_TIMED_OUT


def test_a_marker_that_comes_in_time_is_told_as_it_came(setting: Setting) -> None:
    for code in (0, NOT_LEADER_OR_FOLLOWER):
        later: Deferred[int] = Deferred()
        setting.answers[T0] = always(later)
        answer = setting.coordinator.write_marker("t", 0, Transactional(7, 1, True), NEW)
        setting.time.advance(WRITE_TIMEOUT_MS - 1)
        later.resolve(code)
        assert answer.result() == code
        setting.time.advance(WRITE_TIMEOUT_MS)


# -- a prepare --------------------------------------------------------------------------------


def test_a_partition_that_cannot_be_told_makes_the_client_ask_again(setting: Setting) -> None:
    setting.open()
    slow: Deferred[int] = Deferred()
    setting.answers = {T0: lambda: resolved(NOT_LEADER_OR_FOLLOWER), T1: always(slow)}
    first = setting.prepare()
    assert setting.revoked == [T0, T1] and not first.done
    slow.resolve(0)
    with pytest.raises(ProtocolError) as refused:
        first.result()
    assert refused.value.code == COORDINATOR_NOT_AVAILABLE
    setting.answers = {}
    assert setting.prepare().result()["error_code"] == 0
    assert setting.revoked == 2 * [T0, T1]


def test_a_topic_that_is_gone_has_no_writers(setting: Setting) -> None:
    setting.open()
    setting.answers[T1] = lambda: resolved(UNKNOWN_TOPIC_OR_PARTITION)
    assert setting.prepare().result()["error_code"] == 0


# -- fresh producer ids -----------------------------------------------------------------------


@pytest.mark.parametrize("failure", [ProtocolError(15), StorageError("/data", "commit")])
def test_without_a_fresh_id_nothing_is_begun_and_it_is_said(
    setting: Setting, failure: Exception
) -> None:
    setting.new_id = lambda: failed(failure)
    asked = setting.init()
    with pytest.raises(type(failure)):
        asked.result()
    setting.new_id = lambda: resolved(1000)
    assert setting.init().result() == {"error_code": 0, "producer_id": 1000, "producer_epoch": 0}


def test_a_fresh_id_that_takes_its_time(setting: Setting) -> None:
    later: Deferred[int] = Deferred()
    setting.new_id = lambda: later
    first, second = setting.init(), setting.init()
    assert not first.done and not second.done
    later.resolve(1000)
    told = [one.result()["producer_epoch"] for one in (first, second)]
    assert told == [0, 1]  # the second takes over what the first has begun


# -- markers of a decision --------------------------------------------------------------------


def test_a_marker_that_fails_is_written_again_as_a_repeated_one(setting: Setting) -> None:
    setting.open()
    setting.answers[T1] = lambda: resolved(NOT_LEADER_OR_FOLLOWER)
    setting.end()
    assert [(place, again) for place, _, again in setting.written] == [(T0, False), (T1, False)]
    setting.answers = {}
    setting.time.advance(MARKER_RETRY_MS)
    assert [(place, again) for place, _, again in setting.written[2:]] == [(T1, True)]
    assert setting.state() == "CompleteCommit"


def test_fenced_it_begins_again_with_the_next_tick_and_says_so(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.open()
    setting.answers = {
        T0: lambda: resolved(TRANSACTION_COORDINATOR_FENCED),
        T1: lambda: resolved(NOT_LEADER_OR_FOLLOWER),
    }
    with caplog.at_level(logging.WARNING, "ottla.runtime"):
        setting.end()
        count = len(setting.written)
        setting.time.advance(TICK_MS - MARKER_RETRY_MS)
        assert len(setting.written) == count  # nobody works on it meanwhile, T1 neither
        setting.time.advance(MARKER_RETRY_MS)
    told = [one.getMessage() for one in caplog.records if one.name == "ottla.runtime"]
    assert told == 2 * ["x: another coordinator has taken over in t-0"]
    assert [(place, again) for place, _, again in setting.written[count:]] == [
        (T0, True),
        (T1, True),
    ]
    assert setting.state() == "PrepareCommit"
    setting.answers = {}
    setting.time.advance(TICK_MS)
    assert setting.state() == "CompleteCommit"


# -- the next transaction ---------------------------------------------------------------------


def next_one(setting: Setting, patience_ms: int = 0) -> Deferred[int]:
    return setting.coordinator.add_partitions("x", 1000, 1, [T0], NEW, patience_ms)


def test_the_next_transaction_begins_when_the_last_marker_is_there(setting: Setting) -> None:
    late: Deferred[int] = Deferred()
    setting.answers[T1] = always(late)
    setting.open()
    setting.end()
    assert next_one(setting).result() == CONCURRENT_TRANSACTIONS, "without patience"
    both = [next_one(setting, 50), next_one(setting, 50)]
    setting.time.advance(49)
    assert not any(one.done for one in both)
    late.resolve(0)
    assert [one.result() for one in both] == [0, 0]
    assert setting.state() == "Ongoing"
    setting.time.advance(1)  # the patience of nobody runs out


def test_patience_with_the_last_transaction_runs_out(setting: Setting) -> None:
    late: Deferred[int] = Deferred()
    setting.answers[T1] = always(late)
    setting.open()
    setting.end()
    waiting = next_one(setting, 50)
    setting.time.advance(50)
    assert waiting.result() == CONCURRENT_TRANSACTIONS
    late.resolve(0)
    assert setting.state() == "CompleteCommit"


def test_another_refusal_does_not_wait(setting: Setting) -> None:
    setting.open()
    setting.end()
    fenced = setting.coordinator.add_partitions("x", 1000, 0, [T0], NEW, 50)
    assert fenced.result() == PRODUCER_FENCED
