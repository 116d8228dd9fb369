"""The brokers of the world: who leads which partition, and what their handlers may ask.

Every partition has a leader of its own, and coordinators are leaders of partitions too. What one
of them asks of another goes over the network; within one, the real handlers, shards, hosts and
marker writers do what they do in a broker.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.base.ids import TopicPartition
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Fields, Outcome, Record, Transactional
from ottla.coordinator.shard_load import ShardLoad
from ottla.coordinator.transaction_asks import (
    FRESH_ID_NEEDED,
    EndAsked,
    InitAsked,
    MarkerTask,
    TransactionConfig,
)
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.handlers.context import Context
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.replication.partition import Partition
from ottla.runtime.marker_writer import MarkerWriter
from ottla.runtime.shard_host import HostTimers, ShardHost
from ottla.runtime.transaction_coordinator import _Marking
from ottla.runtime.transaction_patience import TransactionPatience
from sim.groups.virtual import VirtualTime
from sim.transactions.network import Network, Refused
from sim.transactions.replica import Replica

OFFSETS: TopicPartition = ("__consumer_offsets", 0)
STATE: TopicPartition = ("__transaction_state", 0)
TOPIC = "t"

COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
REQUEST_TIMED_OUT = 7
EPOCH_PER_TRANSACTION = 2
WRITE_TIMEOUT_MS = 5000
TICK_MS = 1000
BROKER_TIMEOUT_MS = 6000

R = TypeVar("R")


class Cluster:
    def __init__(
        self,
        time: VirtualTime,
        dice: Random,
        network: Network,
        partitions: int,
        config: TransactionConfig,
    ) -> None:
        self.time = time
        self.network = network
        self.data_places: list[TopicPartition] = [(TOPIC, index) for index in range(partitions)]
        self.replicas = {
            place: Replica(place, time, dice) for place in (*self.data_places, OFFSETS, STATE)
        }
        self.image = _image(partitions)
        self.config = BrokerConfig({})
        self.groups = Groups(self)
        self.coordinator = Coordinator(self, config)
        self.markers = MarkerWriter(cast(Any, self._services(None)), lambda index: self.groups.at())

    def find(self, topic: str, index: int) -> Partition | None:
        replica = self.replicas.get((topic, index))
        return None if replica is None else replica.partition

    def leader(self, version: int) -> Context:
        """What a handler has at a leader, which is not the coordinator."""
        return Context(cast(Any, self._services(self.remote())), version, "sim", "SIM", 1)

    def at_coordinator(self, version: int) -> Context:
        return Context(cast(Any, self._services(self.coordinator)), version, "sim", "SIM", 1)

    def remote(self) -> RemoteDoor:
        return RemoteDoor(self.network, self.coordinator)

    def _services(self, transactions: Any) -> SimpleNamespace:
        return SimpleNamespace(
            broker_id=1,
            clock=self.time,
            timers=self.time,
            config=self.config,
            partitions=self,
            image=self.image,
            groups=getattr(self, "groups", None),
            transactions=transactions,
            new_producer_id=lambda: _done(self.coordinator.fresh_id()),
            advertised_endpoint=lambda broker_id, listener: None,
        )

    # -- leaders come and go ----------------------------------------------------------------

    def kill(self, place: TopicPartition, *, loses: bool) -> None:
        if place == STATE:
            self.coordinator.host.close()
        elif place == OFFSETS:
            self.groups.host.close()
        self.replicas[place].die(loses=loses)

    def elect(self, place: TopicPartition) -> None:
        replica = self.replicas[place]
        if replica.partition is not None:
            return
        replica.lead()
        if place == STATE:
            self.coordinator.load()
        elif place == OFFSETS:
            self.groups.load()


class Coordinator:
    """Also the door of the handlers that run beside it."""

    def __init__(self, cluster: Cluster, config: TransactionConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._ids = itertools.count(1000)
        self._patience = TransactionPatience(
            cast(Any, cluster.time), lambda _, decide: self._write(decide)
        )
        self.load()
        self._schedule()

    @property
    def shard(self) -> TransactionShard:
        return self.host.shard

    def fresh_id(self) -> int:
        return next(self._ids)

    def load(self) -> None:
        cluster = self._cluster
        replica = cluster.replicas[STATE]
        assert replica.partition is not None
        self.host: ShardHost[TransactionShard] = ShardHost(
            replica.partition,
            self.replayed(),
            cast(Any, SimpleNamespace(clock=cluster.time, timers=cluster.time)),
            HostTimers(cast(Any, cluster.time)),
            lambda: WRITE_TIMEOUT_MS,
        )
        self.host.run(lambda shard: shard.resume_decided())

    def replayed(self) -> TransactionShard:
        shard = TransactionShard(
            config=self._config,
            clock=self._cluster.time,
            begin_markers=self._begin_markers,
            revoke_writers=self._revoke_writers,
        )
        replica = self._cluster.replicas[STATE]
        for record, _ in live_records(replica):
            shard.replay(record)
        return shard

    # -- what is asked ----------------------------------------------------------------------

    def _write(self, decide: Callable[[TransactionShard], Outcome[R]]) -> Deferred[R]:
        if self.host.is_closed:
            return _failed(NOT_COORDINATOR)
        return self.host.write(decide)

    def init_producer_id(self, asked: InitAsked) -> Deferred[Fields]:
        return self._with_id(lambda fresh: lambda shard: shard.init_producer_id(asked, fresh))

    def end_transaction(self, asked: EndAsked) -> Deferred[Fields]:
        return self._with_id(lambda fresh: lambda shard: shard.end_transaction(asked, fresh))

    def _with_id(
        self, decide: Callable[[int | None], Callable[[TransactionShard], Outcome[Fields]]]
    ) -> Deferred[Fields]:
        answer: Deferred[Fields] = Deferred()

        def decided(done: Deferred[Fields]) -> None:
            try:
                fields = done.result()
            except ProtocolError as refused:
                answer.fail(refused)
                return
            if fields is FRESH_ID_NEEDED:
                self._write(decide(self.fresh_id())).when_done(decided)
            else:
                answer.resolve(fields)

        self._write(decide(None)).when_done(decided)
        return answer

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        patience_ms: int = 0,
    ) -> Deferred[int]:
        def decide(shard: TransactionShard) -> Outcome[int]:
            return shard.add_partitions(
                transactional_id, producer_id, epoch, partitions, client_version
            )

        if patience_ms:
            return self._patience.ask(transactional_id, decide, patience_ms)
        return self._write(decide)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Deferred[dict[TopicPartition, int]]:
        return self._write(
            lambda shard: Outcome(
                (), shard.verify_partitions(transactional_id, producer_id, epoch, partitions)
            )
        )

    # -- what it does -----------------------------------------------------------------------

    def _schedule(self) -> None:
        self._cluster.time.call_later(TICK_MS, self._tick)

    def _tick(self) -> None:
        if not self.host.is_closed:
            for transactional_id in self.shard.timed_out():
                self.host.run(_abort(transactional_id))
            self.host.run(lambda shard: shard.resume_decided())
        self._schedule()

    def _begin_markers(self, task: MarkerTask) -> None:
        services = cast(Any, SimpleNamespace(timers=self._cluster.time))
        writer = cast(Any, RemoteWriter(self._cluster))
        _Marking(services, writer, self.host, task, self._patience.finished).begin()

    def _revoke_writers(
        self, partitions: frozenset[TopicPartition], producer_id: int
    ) -> Deferred[int]:
        done: Deferred[int] = Deferred()
        left = len(partitions)
        worst = 0

        def told(answer: Any) -> None:
            nonlocal left, worst
            left -= 1
            if answer != 0:
                worst = COORDINATOR_NOT_AVAILABLE
            if left == 0:
                done.resolve(worst)

        for topic, index in sorted(partitions):
            self._cluster.network.ask(
                _revoke(self._cluster, topic, index, producer_id), told, may_be_late=True
            )
        if left == 0:
            done.resolve(0)
        return done


class RemoteDoor:
    """How a leader asks the coordinator."""

    def __init__(self, network: Network, coordinator: Coordinator) -> None:
        self._network = network
        self._coordinator = coordinator

    def ask_to_add(self, *asked: Any) -> Deferred[int]:
        return self._ask(lambda: self._coordinator.add_partitions(*asked))

    def ask_to_verify(self, *asked: Any) -> Deferred[dict[TopicPartition, int]]:
        return self._ask(lambda: self._coordinator.verify_partitions(*asked))

    def _ask(self, act: Callable[[], Deferred[R]]) -> Deferred[R]:
        answer: Deferred[R] = Deferred()

        def told(result: Any) -> None:
            if result is None:
                answer.fail(ProtocolError(COORDINATOR_NOT_AVAILABLE))
            elif isinstance(result, Refused):
                answer.fail(ProtocolError(result.code))
            else:
                answer.resolve(result)

        # Longer than a client waits: it may have gone on when the answer comes.
        self._network.ask(act, told, may_be_late=True, timeout_ms=BROKER_TIMEOUT_MS)
        return answer


class RemoteWriter:
    """How the coordinator has a marker written by a leader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def write(
        self,
        topic: str,
        index: int,
        marker: Transactional,
        *,
        client_version: int = 0,
        is_repeated: bool = False,
    ) -> Deferred[int]:
        written: Deferred[int] = Deferred()

        def told(code: Any) -> None:
            written.resolve(REQUEST_TIMED_OUT if code is None else code)

        self._cluster.network.ask(
            lambda: self._cluster.markers.write(
                topic, index, marker, client_version=client_version, is_repeated=is_repeated
            ),
            told,
            # Without an epoch per transaction, nobody could tell a late marker from the next one.
            may_be_late=client_version == EPOCH_PER_TRANSACTION,
        )
        return written


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.load()

    def load(self) -> None:
        cluster = self._cluster
        replica = cluster.replicas[OFFSETS]
        assert replica.partition is not None
        timers = HostTimers(cast(Any, cluster.time))
        self.host: ShardHost[GroupShard] = ShardHost(
            replica.partition,
            self.replayed(timers),
            cast(Any, SimpleNamespace(clock=cluster.time, timers=cluster.time)),
            timers,
            lambda: WRITE_TIMEOUT_MS,
        )
        self.host.run(lambda shard: shard.on_loaded())

    def replayed(self, timers: HostTimers) -> GroupShard:
        cluster = self._cluster
        shard = GroupShard(
            config=GroupConfig(group_initial_rebalance_delay_ms=0),
            timers=timers,
            clock=cluster.time,
            new_uuid=lambda: uuid.UUID(int=7),
            image=cluster.image,
        )
        for record, producer_id in live_records(cluster.replicas[OFFSETS]):
            shard.replay(record, producer_id)
        return shard

    def at(self) -> ShardHost[GroupShard] | int:
        return NOT_COORDINATOR if self.host.is_closed else self.host

    def host_of(self, group_id: str) -> ShardHost[GroupShard] | int:
        return self.at()

    def partition_of(self, group_id: str) -> int:
        return OFFSETS[1]


def live_records(replica: Replica) -> list[tuple[Record, int]]:
    load = ShardLoad(0)
    load.read(replica.content(replica.log.log_end_offset))
    return [(Record(key, value), producer) for key, value, producer in load.live_records()]


def _abort(transactional_id: str) -> Callable[[TransactionShard], Outcome[Fields]]:
    return lambda shard: shard.abort_timed_out(transactional_id)


def _revoke(
    cluster: Cluster, topic: str, index: int, producer_id: int
) -> Callable[[], Deferred[int]]:
    return lambda: cluster.markers.revoke(topic, index, producer_id)


def _done(value: R) -> Deferred[R]:
    done: Deferred[R] = Deferred()
    done.resolve(value)
    return done


def _failed(code: int) -> Deferred[Any]:
    failed: Deferred[Any] = Deferred()
    failed.fail(ProtocolError(code))
    return failed


def _image(partitions: int) -> MetadataImage:
    state = PartitionState(1, 0, (1, 2), (1, 2))
    counts = {TOPIC: partitions, OFFSETS[0]: 1, STATE[0]: 1}
    topics = {
        name: TopicImage(
            name, uuid.uuid5(uuid.NAMESPACE_OID, name), dict.fromkeys(range(count), state)
        )
        for name, count in counts.items()
    }
    return MetadataImage(
        topics=topics, topic_names_by_id={topic.topic_id: name for name, topic in topics.items()}
    )
