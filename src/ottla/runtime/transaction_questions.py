"""Asks the coordinator of a transaction, wherever it is, whether a partition is in it or to add it.

Leaders ask before they append for a transaction (KIP-890). A coordinator that is here is asked
directly, another one by AddPartitionsToTxn, many transactions in one request. An answer that was
lost is told as a coordinator that is not available: the producer tries again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, NamedTuple, Protocol

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.base.ids import TopicPartition
from ottla.protocol.api_keys import ADD_PARTITIONS_TO_TXN
from ottla.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, NONE
from ottla.runtime.peer_batches import PeerBatches
from ottla.runtime.peers import Peers

VERSION = 5

Codes = dict[TopicPartition, int]


class Coordinator(Protocol):
    """The one on this broker."""

    def leader_of(self, transactional_id: str) -> int: ...
    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        patience_ms: int = 0,
    ) -> Deferred[int]: ...
    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Deferred[Codes]: ...


class Owner(NamedTuple):
    """Whose transaction it is."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class _Asked(NamedTuple):
    owner: Owner
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    answer: Deferred[Codes]


class TransactionQuestions:
    def __init__(self, broker_id: int, local: Coordinator, peers: Peers) -> None:
        self._broker_id = broker_id
        self._local = local
        self._remote = PeerBatches(peers, _QuestionPacking())

    def add(
        self,
        owner: Owner,
        partitions: Collection[TopicPartition],
        client_version: int,
        patience_ms: int,
    ) -> Deferred[int]:
        """0 when they are all in the transaction; fails with a ProtocolError otherwise.

        Another broker is asked for many at once: its answer must not wait for one of them.
        """
        coordinator = self._local.leader_of(owner.transactional_id)
        if coordinator == self._broker_id:
            return self._local.add_partitions(*owner, partitions, client_version, patience_ms)
        added: Deferred[int] = Deferred()

        def answered(outcome: Deferred[Codes]) -> None:
            try:
                codes = outcome.result()
            except ProtocolError as refused:
                added.fail(refused)
                return
            # All partitions are added or none.
            added.resolve(next((code for code in codes.values() if code != NONE), NONE))

        self._ask(coordinator, owner, partitions, verify_only=False).when_done(answered)
        return added

    def verify(self, owner: Owner, partitions: Collection[TopicPartition]) -> Deferred[Codes]:
        coordinator = self._local.leader_of(owner.transactional_id)
        if coordinator == self._broker_id:
            return self._local.verify_partitions(*owner, partitions)
        return self._ask(coordinator, owner, partitions, verify_only=True)

    def _ask(
        self,
        coordinator: int,
        owner: Owner,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Deferred[Codes]:
        answer: Deferred[Codes] = Deferred()
        if coordinator < 0:
            answer.fail(ProtocolError(COORDINATOR_NOT_AVAILABLE))
        else:
            self._remote.put(coordinator, _Asked(owner, tuple(partitions), verify_only, answer))
        return answer


class _QuestionPacking:
    api_key = ADD_PARTITIONS_TO_TXN
    version = VERSION
    purpose = "transactions"

    def key_of(self, asked: _Asked) -> Hashable:
        return asked.owner.transactional_id

    def pack(self, items: list[_Asked]) -> dict[str, Any]:
        return {"transactions": [_fields(asked) for asked in items]}

    def on_answer(self, items: list[_Asked], answer: Any) -> None:
        if answer.error_code != NONE:
            for asked in items:
                asked.answer.fail(ProtocolError(answer.error_code))
            return
        results = {one.transactional_id: one.topic_results for one in answer.results_by_transaction}
        for asked in items:
            codes = {
                (topic.name, one.partition_index): one.partition_error_code
                for topic in results.get(asked.owner.transactional_id, ())
                for one in topic.results_by_partition
            }
            if codes.keys() >= set(asked.partitions):
                asked.answer.resolve(codes)
            else:
                asked.answer.fail(ProtocolError(COORDINATOR_NOT_AVAILABLE))

    def on_lost(self, items: list[_Asked]) -> None:
        for asked in items:
            asked.answer.fail(ProtocolError(COORDINATOR_NOT_AVAILABLE))


def _fields(asked: _Asked) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, index in asked.partitions:
        topics.setdefault(topic, []).append(index)
    return {
        "transactional_id": asked.owner.transactional_id,
        "producer_id": asked.owner.producer_id,
        "producer_epoch": asked.owner.producer_epoch,
        "verify_only": asked.verify_only,
        "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
    }
