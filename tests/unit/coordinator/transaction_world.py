"""A transaction shard without a broker: what it decides is kept at once, and markers are counted.

`records` is the log: a second shard can be loaded from it, as after a restart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.base.ids import TopicPartition
from ottla.coordinator.shard import Fields, Outcome, Record, Transactional
from ottla.coordinator.transaction_asks import (
    FRESH_ID_NEEDED,
    EndAsked,
    InitAsked,
    MarkerTask,
    TransactionConfig,
)
from ottla.coordinator.transaction_records import STATE_NAMES, Transaction
from ottla.coordinator.transaction_shard import TransactionShard

R = TypeVar("R")


class WorldClock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.wall_ahead_ms = 0
        """How far somebody has set the time of day."""

    def wall_ms(self) -> int:
        return self.now_ms + self.wall_ahead_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class TransactionWorld:
    """Also the door that handlers ask through. With `holds_markers` they wait for `write_held`."""

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.clock = WorldClock()
        self.config = config or TransactionConfig()
        self.records: list[Record] = []
        self.tasks: list[MarkerTask] = []
        self.markers: list[tuple[str, int, int, int, bool]] = []
        self.marker_code = 0
        self.holds_markers = False
        self.append_code = 0
        self.refusal = 0
        self.revoked: list[tuple[list[TopicPartition], int]] = []
        self.revoke_code = 0
        self.fresh_ids: Iterator[int] = itertools.count(1000)
        self.shard = self.new_shard()

    def new_shard(self) -> TransactionShard:
        return TransactionShard(
            config=self.config,
            clock=self.clock,
            begin_markers=self._begin_markers,
            revoke_writers=self._revoke_writers,
        )

    def reload(self, *, encoded: bool = True) -> None:
        """Another coordinator takes over, with nothing but the log."""
        self.tasks = []
        self.shard = self.new_shard()
        for record in self.records:
            self.shard.replay(Record(record.key, record.value) if encoded else record)
        self.settle(self.shard.resume_decided())

    # -- driving ----------------------------------------------------------------------------

    def settle(self, outcome: Outcome[R]) -> R:
        code = self.append_code if outcome.records else 0
        if code == 0:
            self.records += outcome.records
            for record in outcome.records:
                self.shard.replay(record)
        if outcome.on_settled is not None:
            outcome.on_settled(code)
        if code:
            raise ProtocolError(code)
        if isinstance(outcome.response, Deferred):
            return outcome.response.result()
        return outcome.response

    def _begin_markers(self, task: MarkerTask) -> None:
        self.tasks.append(task)
        if not self.holds_markers:
            self.write_held()

    def _revoke_writers(
        self, partitions: frozenset[TopicPartition], producer_id: int
    ) -> Deferred[int]:
        self.revoked.append((sorted(partitions), producer_id))
        done: Deferred[int] = Deferred()
        done.resolve(self.revoke_code)
        return done

    def write_held(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            for topic, index in sorted(task.partitions):
                self.markers.append(
                    (topic, index, task.producer_id, task.producer_epoch, task.committed)
                )
            self.settle(self.shard.complete(task))

    def held(self, transactional_id: str) -> Transaction:
        return self.shard.transactions[transactional_id]

    def state(self, transactional_id: str) -> str:
        return STATE_NAMES[self.held(transactional_id).state]

    # -- the door ---------------------------------------------------------------------------

    def _ask(self, decide: Callable[[], Outcome[R]]) -> Deferred[R]:
        answer: Deferred[R] = Deferred()
        if self.refusal:
            answer.fail(ProtocolError(self.refusal))
            return answer
        try:
            answer.resolve(self.settle(decide()))
        except ProtocolError as refused:
            answer.fail(refused)
        return answer

    def init_producer_id(self, asked: InitAsked) -> Deferred[Fields]:
        return self._with_id(lambda fresh: self.shard.init_producer_id(asked, fresh))

    def end_transaction(self, asked: EndAsked) -> Deferred[Fields]:
        return self._with_id(lambda fresh: self.shard.end_transaction(asked, fresh))

    def _with_id(self, decide: Callable[[int | None], Outcome[Fields]]) -> Deferred[Fields]:
        answer = self._ask(lambda: decide(None))
        if not self.refusal and not self.append_code and answer.result() is FRESH_ID_NEEDED:
            fresh = next(self.fresh_ids)
            return self._ask(lambda: decide(fresh))
        return answer

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        client_version: int,
        patience_ms: int = 0,
    ) -> Deferred[int]:
        return self._ask(
            lambda: self.shard.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, client_version
            )
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
    ) -> Deferred[dict[TopicPartition, int]]:
        return self._ask(
            lambda: Outcome(
                (),
                self.shard.verify_partitions(
                    transactional_id, producer_id, producer_epoch, partitions
                ),
            )
        )

    # The coordinator is here, so whoever asks wherever it is asks here.
    ask_to_add = add_partitions
    ask_to_verify = verify_partitions

    def write_marker(
        self,
        topic: str,
        index: int,
        marker: Transactional,
        client_version: int,
        *,
        is_repeated: bool = False,
    ) -> Deferred[int]:
        written: Deferred[int] = Deferred()
        if self.marker_code == 0:
            self.markers.append(
                (topic, index, marker.producer_id, marker.producer_epoch, bool(marker.committed))
            )
        written.resolve(self.marker_code)
        return written

    def host_of(self, transactional_id: str) -> TransactionWorld | int:
        return self.refusal or self

    def hosts(self) -> Iterator[TransactionWorld]:
        yield self

    def read(self, look: Callable[[TransactionShard], R]) -> Deferred[R]:
        return self._ask(lambda: Outcome((), look(self.shard)))

    def leader_of(self, transactional_id: str) -> int:
        return 1

    def is_loading(self) -> bool:
        return self.refusal == 14

    def ensure_topic(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        done.resolve(None)
        return done
