"""Transactions seen from outside: list, describe, complete what was prepared, end what hangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.admin_base import AdminBase, Fields, PartitionResult, by_topic, raise_for
from ottla.client.admin_values import (
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.coordinators import TRANSACTION
from ottla.client.pending import gather
from ottla.client.transactions import (
    TWO_PHASE_VERSION,
    PreparedTransaction,
    end_transaction,
)
from ottla.protocol import error_codes as codes
from ottla.protocol.api_keys import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)

# The time-out of transactions that are never aborted for their age (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1


class AdminTransactions(AdminBase):
    async def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        *,
        longer_than_ms: int = -1,
    ) -> list[TransactionListing]:
        """Of all coordinators, sorted by transactional id."""
        fields = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
            "duration_filter": longer_than_ms,
            "transactional_id_pattern": None,
        }
        answers = await self._ask_brokers(
            LIST_TRANSACTIONS,
            fields,
            "list of transactions",
            code_of=lambda answer: int(answer.error_code),
        )
        found: dict[str, TransactionListing] = {}
        for node_id, answer in answers.items():
            raise_for(answer.error_code, "list of transactions")
            for one in answer.transaction_states:
                found[one.transactional_id] = TransactionListing(
                    one.transactional_id, one.producer_id, one.transaction_state, node_id
                )
        return [found[name] for name in sorted(found)]

    async def describe_transactions(
        self, transactional_ids: Sequence[str]
    ) -> list[TransactionDescription]:
        flows = [self._core.spawn(self._describe_one(each)) for each in transactional_ids]
        return await gather(list(flows))

    async def _describe_one(self, transactional_id: str) -> TransactionDescription:
        answer = await self._calls.ask(
            TRANSACTION,
            transactional_id,
            DESCRIBE_TRANSACTIONS,
            lambda: {"transactional_ids": [transactional_id]},
            self._deadline_ms(),
            what=f"transactional id {transactional_id}",
            code_of=lambda answer: int(answer.transaction_states[0].error_code),
        )
        one = answer.transaction_states[0]
        raise_for(one.error_code, f"transactional id {transactional_id}")
        return TransactionDescription(
            transactional_id,
            one.producer_id,
            one.producer_epoch,
            one.transaction_state,
            one.transaction_timeout_ms,
            None if one.transaction_start_time_ms < 0 else one.transaction_start_time_ms,
            sorted((each.topic, index) for each in one.topics for index in each.partitions),
            await self._calls.coordinators.find(TRANSACTION, transactional_id),
        )

    async def complete_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        forget: bool = False,
    ) -> None:
        """Decides a transaction that its producer prepared; the same again changes nothing.

        `forget`: the id will not be used again, so the cluster need not remember it.
        """
        prepared = PreparedTransaction(transactional_id, producer_id, epoch)
        deadline_ms = self._deadline_ms()
        answer = await end_transaction(self._calls, prepared, deadline_ms, commit=commit)
        what = f"{'commit' if commit else 'abort'} of {transactional_id}"
        raise_for(answer.error_code, what)
        if forget:
            # Only what is decided: else an answer that is lost could not be told from a refusal.
            answer = await end_transaction(
                self._calls, prepared, deadline_ms, commit=commit, forget=True
            )
            if answer.error_code != codes.INVALID_PRODUCER_ID_MAPPING:
                raise_for(answer.error_code, f"forgetting {transactional_id}")

    async def abort_transaction(self, transactional_id: str) -> None:
        """Aborts what is open under this id, prepared or not, and fences its producers.

        One that nobody knows is refused, with TRANSACTIONAL_ID_NOT_FOUND.
        """
        before = await self._describe_one(transactional_id)
        is_two_phase = before.timeout_ms == NO_TIMEOUT_MS
        what = f"abort of {transactional_id}"
        deadline_ms = self._deadline_ms()
        answer = await self._calls.ask(
            TRANSACTION,
            transactional_id,
            INIT_PRODUCER_ID,
            lambda: {
                "transactional_id": transactional_id,
                # Nobody writes under the epoch that this gives.
                "transaction_timeout_ms": 1,
                "producer_id": -1,
                "producer_epoch": -1,
                "enable2_pc": False,
                "keep_prepared_txn": is_two_phase,
            },
            deadline_ms,
            what=what,
            version_min=TWO_PHASE_VERSION if is_two_phase else None,
        )
        raise_for(answer.error_code, what)
        if is_two_phase and answer.ongoing_txn_producer_id >= 0:
            # What waits for a decision is not aborted in passing. It was taken over: decide it.
            taken = PreparedTransaction(transactional_id, answer.producer_id, answer.producer_epoch)
            answer = await end_transaction(self._calls, taken, deadline_ms, commit=False)
            raise_for(answer.error_code, what)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Who has written to each partition, and which of them has a transaction open there."""

        def fields_of(some: Mapping[TopicPartition, Any]) -> Fields:
            return {
                "topics": [
                    {"name": name, "partition_indexes": each}
                    for name, each in by_topic(some).items()
                ]
            }

        def results_of(answer: Any) -> dict[TopicPartition, PartitionResult]:
            return {
                (topic.name, one.partition_index): (
                    one.error_code,
                    one.error_message,
                    [_producer(each) for each in one.active_producers],
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._ask_leaders(
            DESCRIBE_PRODUCERS, dict.fromkeys(partitions), fields_of, results_of, "producers"
        )

    async def abort_hanging_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Writes an abort marker into one partition: for a transaction no coordinator knows of."""
        topic, index = partition
        marker = {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [index]}],
            "coordinator_epoch": max(coordinator_epoch, 0),
            "transaction_version": 0,
        }

        def results_of(answer: Any) -> dict[TopicPartition, PartitionResult]:
            return {
                (each.name, one.partition_index): (one.error_code, None, None)
                for written in answer.markers
                for each in written.topics
                for one in each.partitions
            }

        await self._ask_leaders(
            WRITE_TXN_MARKERS,
            {partition: None},
            lambda some: {"markers": [marker]},
            results_of,
            "abort of a transaction",
        )


def _producer(one: Any) -> ProducerDescription:
    start = one.current_txn_start_offset
    return ProducerDescription(
        one.producer_id,
        one.producer_epoch,
        one.last_sequence,
        one.last_timestamp,
        one.coordinator_epoch,
        None if start < 0 else start,
    )
