"""The transaction coordinator of a broker: a shard for each partition of `__transaction_state`.

Owns what the pure shards cannot do: it asks for producer ids, writes the markers of what was
decided and tells the shard when all are there, and looks for what has run out of time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Timer
from ottla.coordinator.shard import Fields, Outcome, Transactional
from ottla.coordinator.transaction_asks import (
    FRESH_ID_NEEDED,
    EndAsked,
    InitAsked,
    MarkerTask,
    TransactionConfig,
)
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import TRANSACTION_STATE
from ottla.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    NONE,
    REQUEST_TIMED_OUT,
    TRANSACTION_COORDINATOR_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.runtime.marker_router import REVOKING_EPOCH, MarkerRouter
from ottla.runtime.marker_writer import MarkerWriter
from ottla.runtime.peers import Peers
from ottla.runtime.shard_host import HostTimers, ShardHost
from ottla.runtime.shard_loader import Replay
from ottla.runtime.shard_set import ShardServices, ShardSet
from ottla.runtime.transaction_patience import TransactionPatience
from ottla.runtime.transaction_questions import Owner, TransactionQuestions

log = logging.getLogger("ottla.runtime")

R = TypeVar("R")
TransactionHost = ShardHost[TransactionShard]

# A record of the coordinator that is not committed by then is not waited for any longer.
WRITE_TIMEOUT_MS = 5_000

# A partition that could not take its marker (its leader is away, its log is loading) is asked
# again after so long.
MARKER_RETRY_MS = 100

# The transaction is over there already (it was ended by hand), or the topic is gone.
NOTHING_LEFT = (NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PRODUCER_EPOCH)


class TransactionServices(ShardServices, Protocol):
    broker_id: int

    def new_producer_id(self) -> Deferred[int]: ...


class Markers(Protocol):
    """The way of a marker to its partition; see `MarkerWriter` and `MarkerRouter`."""

    def write(
        self,
        topic: str,
        index: int,
        marker: Transactional,
        *,
        client_version: int = 0,
        is_repeated: bool = False,
    ) -> Deferred[int]: ...
    def revoke(self, topic: str, index: int, producer_id: int) -> Deferred[int]: ...


class TransactionCoordinator:
    """`peers`: other brokers, which lead some of the partitions and coordinate some of the ids."""

    def __init__(self, services: TransactionServices, markers: MarkerWriter, peers: Peers) -> None:
        self._services = services
        self._config = transaction_config(services.config)
        self._local_markers = markers
        self.markers: Markers = MarkerRouter(
            services.broker_id, lambda: services.image, markers, peers
        )
        self._questions = TransactionQuestions(services.broker_id, self, peers)
        self._shards: ShardSet[TransactionShard] = ShardSet(
            services,
            TRANSACTION_STATE,
            "transaction.state.log.num.partitions",
            self._new_shard,
            self._on_hosted,
            lambda: WRITE_TIMEOUT_MS,
        )
        self._patience = TransactionPatience(services.timers, self._write)
        self._timeout_tick: Timer | None = None
        self._expiry_tick: Timer | None = None

    # -- who is responsible -----------------------------------------------------------------

    def host_of(self, transactional_id: str) -> TransactionHost | int:
        return self._shards.host_of(transactional_id)

    def leader_of(self, transactional_id: str) -> int:
        return self._shards.leader_of(transactional_id)

    def hosts(self) -> Iterator[TransactionHost]:
        return self._shards.hosts()

    def is_loading(self) -> bool:
        return self._shards.is_loading()

    def ensure_topic(self) -> Deferred[None]:
        return self._shards.ensure_topic()

    # -- what is asked ----------------------------------------------------------------------

    def init_producer_id(self, asked: InitAsked) -> Deferred[Fields]:
        return self._with_fresh_id(
            asked.transactional_id,
            lambda fresh_id: lambda shard: shard.init_producer_id(asked, fresh_id),
        )

    def end_transaction(self, asked: EndAsked) -> Deferred[Fields]:
        return self._with_fresh_id(
            asked.transactional_id,
            lambda fresh_id: lambda shard: shard.end_transaction(asked, fresh_id),
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        patience_ms: int = 0,
    ) -> Deferred[int]:
        """`patience_ms`: how long the markers of the last transaction are waited for."""

        def decide(shard: TransactionShard) -> Outcome[int]:
            return shard.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, client_version
            )

        if patience_ms:
            return self._patience.ask(transactional_id, decide, patience_ms)
        return self._write(transactional_id, decide)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Deferred[dict[TopicPartition, int]]:
        return self._write(
            transactional_id,
            lambda shard: Outcome(
                (),
                shard.verify_partitions(transactional_id, producer_id, producer_epoch, partitions),
            ),
        )

    def ask_to_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        patience_ms: int,
    ) -> Deferred[int]:
        owner = Owner(transactional_id, producer_id, producer_epoch)
        return self._questions.add(owner, partitions, client_version, patience_ms)

    def ask_to_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Deferred[dict[TopicPartition, int]]:
        owner = Owner(transactional_id, producer_id, producer_epoch)
        return self._questions.verify(owner, partitions)

    def write_marker(
        self,
        topic: str,
        index: int,
        marker: Transactional,
        client_version: int,
        *,
        is_repeated: bool = False,
    ) -> Deferred[int]:
        if marker.producer_epoch == REVOKING_EPOCH:
            return self._local_markers.revoke(topic, index, marker.producer_id)
        written = self._local_markers.write(
            topic, index, marker, client_version=client_version, is_repeated=is_repeated
        )
        return written if written.done else self._in_time(written)

    def _in_time(self, written: Deferred[int]) -> Deferred[int]:
        """Whoever asked asks for others too: one that can't be committed must not hold them up."""
        answer: Deferred[int] = Deferred()

        def on_time() -> None:
            if not answer.done:
                answer.resolve(REQUEST_TIMED_OUT)

        def done(outcome: Deferred[int]) -> None:
            timer.cancel()
            if not answer.done:
                outcome.tell(answer)

        timer = self._services.timers.call_later(WRITE_TIMEOUT_MS, on_time)
        written.when_done(done)
        return answer

    def _write(
        self, transactional_id: str, decide: Callable[[TransactionShard], Outcome[R]]
    ) -> Deferred[R]:
        host = self._shards.host_of(transactional_id)
        if isinstance(host, int):
            refused: Deferred[R] = Deferred()
            refused.fail(ProtocolError(host))
            return refused
        return host.write(decide)

    def _with_fresh_id(
        self,
        transactional_id: str,
        decide: Callable[[int | None], Callable[[TransactionShard], Outcome[Fields]]],
    ) -> Deferred[Fields]:
        """Most decisions need no new producer id, so one is taken only when it is asked for."""
        first = self._write(transactional_id, decide(None))
        if first.done and not _wants_id(first):
            return first
        answer: Deferred[Fields] = Deferred()

        def with_id(taken: Deferred[int]) -> None:
            try:
                fresh_id = taken.result()
            except OttlaError as failure:
                answer.fail(failure)
                return
            self._write(transactional_id, decide(fresh_id)).when_done(
                lambda done: _pass_on(done, answer)
            )

        def decided(done: Deferred[Fields]) -> None:
            if _wants_id(done):
                self._services.new_producer_id().when_done(with_id)
            else:
                _pass_on(done, answer)

        first.when_done(decided)
        return answer

    # -- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """The logs are open: whatever is led here is loaded, and what was decided is finished."""
        self._shards.follow(self._services.image)
        self._schedule_timeouts()
        self._schedule_expiry()

    def on_image(self, image: MetadataImage) -> None:
        self._shards.follow(image)

    def follow_again(self) -> None:
        """The image is the same, but what is led here is not."""
        self._shards.follow(self._services.image)

    def on_config(self, config: BrokerConfig) -> None:
        self._config = transaction_config(config)
        for host in self._shards.hosts():
            host.shard.config = self._config

    def close(self) -> None:
        for tick in (self._timeout_tick, self._expiry_tick):
            if tick is not None:
                tick.cancel()
        self._shards.close()

    def _new_shard(self, index: int, timers: HostTimers) -> tuple[TransactionShard, Replay]:
        shard = TransactionShard(
            config=self._config,
            clock=self._services.clock,
            begin_markers=lambda task: self._begin_markers(index, task),
            revoke_writers=self._revoke_writers,
        )
        return shard, shard.replay

    def _on_hosted(self, index: int, host: TransactionHost) -> None:
        host.shard.config = self._config
        host.run(lambda shard: shard.resume_decided())

    # -- markers ----------------------------------------------------------------------------

    def _begin_markers(self, index: int, task: MarkerTask) -> None:
        host = self._shards.host_at(index)
        if not isinstance(host, int):
            _Marking(self._services, self.markers, host, task, self._patience.finished).begin()

    def _revoke_writers(
        self, partitions: frozenset[TopicPartition], producer_id: int
    ) -> Deferred[int]:
        """A partition that cannot be told now makes the client ask again: it is told then."""
        done: Deferred[int] = Deferred()
        left = len(partitions)
        if left == 0:
            done.resolve(NONE)
        code = NONE

        def told(outcome: Deferred[int]) -> None:
            nonlocal left, code
            left -= 1
            if outcome.result() not in (NONE, UNKNOWN_TOPIC_OR_PARTITION):
                code = COORDINATOR_NOT_AVAILABLE
            if left == 0:
                done.resolve(code)

        for topic, index in sorted(partitions):
            self.markers.revoke(topic, index, producer_id).when_done(told)
        return done

    # -- time -------------------------------------------------------------------------------

    def _schedule_timeouts(self) -> None:
        interval_ms = self._services.config.get_int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        )
        self._timeout_tick = self._services.timers.call_later(interval_ms, self._on_timeout_tick)

    def _on_timeout_tick(self) -> None:
        for host in self._shards.hosts():
            for transactional_id in host.shard.timed_out():
                log.info("transaction of %s ran out of time: aborting it", transactional_id)
                host.run(_abort(transactional_id))
            host.run(lambda shard: shard.resume_decided())
        self._schedule_timeouts()

    def _schedule_expiry(self) -> None:
        interval_ms = self._services.config.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        )
        self._expiry_tick = self._services.timers.call_later(interval_ms, self._on_expiry_tick)

    def _on_expiry_tick(self) -> None:
        for host in self._shards.hosts():
            self._sweep(host)
        self._schedule_expiry()

    def _sweep(self, host: TransactionHost) -> None:
        def swept(outcome: Deferred[bool]) -> None:
            try:
                has_more = outcome.result()
            except OttlaError as refused:
                log.warning("old transactional ids could not be forgotten: %s", refused)
                return
            if has_more:
                self._services.timers.call_later(0, lambda: self._sweep(host))

        host.write(lambda shard: shard.sweep()).when_done(swept)


class _Marking:
    """One decision: the partitions that still lack their marker."""

    def __init__(
        self,
        services: TransactionServices,
        writer: Markers,
        host: TransactionHost,
        task: MarkerTask,
        finished: Callable[[str], None],
    ) -> None:
        self._services = services
        self._writer = writer
        self._host = host
        self._task = task
        self._finished = finished
        self._left = set(task.partitions)
        self._is_repeated = task.is_repeated
        self._is_given_up = False
        self._marker = Transactional(
            task.producer_id, task.producer_epoch, task.committed, host.leader_epoch
        )

    def begin(self) -> None:
        if not self._left:
            self._complete()
            return
        for topic, index in sorted(self._left):
            self._writer.write(
                topic,
                index,
                self._marker,
                client_version=self._task.client_version,
                is_repeated=self._is_repeated,
            ).when_done(self._answer_of((topic, index)))

    def _answer_of(self, place: TopicPartition) -> Callable[[Deferred[int]], None]:
        def written(outcome: Deferred[int]) -> None:
            code = outcome.result()
            if self._is_given_up:
                return
            if code in NOTHING_LEFT:
                self._left.discard(place)
                if not self._left:
                    self._complete()
            elif code == TRANSACTION_COORDINATOR_FENCED:
                self._give_up(place)
            else:
                self._services.timers.call_later(MARKER_RETRY_MS, lambda: self._again(place))

        return written

    def _again(self, place: TopicPartition) -> None:
        if self._host.is_closed or self._is_given_up or place not in self._left:
            return
        topic, index = place
        # It is not known whether the one that failed is in the log all the same.
        self._writer.write(
            topic,
            index,
            self._marker,
            client_version=self._task.client_version,
            is_repeated=True,
        ).when_done(self._answer_of(place))

    def _complete(self) -> None:
        self._host.run(lambda shard: shard.complete(self._task))
        self._host.run(self._tell)

    def _tell(self, shard: TransactionShard) -> Outcome[None]:
        """A decision of its own: its turn comes when the end has been replayed."""
        self._finished(self._task.transactional_id)
        return Outcome((), None)

    def _give_up(self, place: TopicPartition) -> None:
        """A newer coordinator was there. If there is none, so that this one goes on, the next tick
        of the time-outs begins again: what was decided is not left alone without a word.
        """
        name = self._task.transactional_id
        log.warning("%s: another coordinator has taken over in %s-%d", name, *place)
        self._is_given_up = True
        self._host.run(lambda shard: shard.give_up(self._task))


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        timeout_ms_max=config.get_int("transaction.max.timeout.ms"),
        id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
        two_phase_commit=config.get_bool("transaction.two.phase.commit.enable"),
    )


def _abort(transactional_id: str) -> Callable[[TransactionShard], Outcome[Fields]]:
    return lambda shard: shard.abort_timed_out(transactional_id)


def _wants_id(done: Deferred[Fields]) -> bool:
    try:
        return done.result() is FRESH_ID_NEEDED
    except OttlaError:
        return False


def _pass_on(done: Deferred[R], answer: Deferred[R]) -> None:
    try:
        value = done.result()
    except OttlaError as error:
        answer.fail(error)
    else:
        answer.resolve(value)
