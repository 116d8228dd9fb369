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
    END_TXN,
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
        return await gather(flows)

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

        `forget`: the id will not be used again, so the cluster need not remember it, nor its
        producer. Whoever says so again is refused: nobody knows the id any more.
        """
        what = f"{'commit' if commit else 'abort'} of {transactional_id}"
        may_have_happened = 0

        def fields() -> Fields:
            nonlocal may_have_happened
            may_have_happened += 1
            return {
                "transactional_id": transactional_id,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "committed": commit,
                "forget_transactional_id": forget,
            }

        def code_of(answer: Any) -> int:
            nonlocal may_have_happened
            if answer.error_code == codes.COORDINATOR_LOAD_IN_PROGRESS:
                may_have_happened -= 1
            return int(answer.error_code)

        answer = await self._calls.ask(
            TRANSACTION,
            transactional_id,
            END_TXN,
            fields,
            self._deadline_ms(),
            what=what,
            code_of=code_of,
        )
        is_forgotten = answer.error_code == codes.INVALID_PRODUCER_ID_MAPPING and forget
        if is_forgotten and may_have_happened > 1:
            return  # by what we asked before: its answer was lost, or came too soon
        raise_for(answer.error_code, what)

    async def abort_transaction(self, transactional_id: str) -> bool:
        """Aborts what is open under this id, prepared or not, and fences its producers.

        Whether something was aborted: nothing may be open, or it was decided that it be committed.
        One that nobody knows is refused, with TRANSACTIONAL_ID_NOT_FOUND.
        """
        before = await self._describe_one(transactional_id)
        deadline_ms = self._deadline_ms()
        if before.timeout_ms == NO_TIMEOUT_MS:
            return await self._abort_kept(transactional_id, before.state, deadline_ms)
        answer, attempts = await self._take_over(transactional_id, deadline_ms, waits=False)
        if answer.error_code != codes.CONCURRENT_TRANSACTIONS:
            raise_for(answer.error_code, f"abort of {transactional_id}")
            # What was open is over: not by us, unless we asked before and heard nothing.
            is_ours = before.state == "Ongoing" and attempts > 1
            return is_ours or before.state == "PrepareAbort"
        # It was aborted by this very request, or decided before: that is seen until the next.
        decided = await self._describe_one(transactional_id)
        answer, _ = await self._take_over(transactional_id, deadline_ms)
        raise_for(answer.error_code, f"abort of {transactional_id}")
        return decided.state not in ("PrepareCommit", "CompleteCommit")

    async def _abort_kept(self, transactional_id: str, state: str, deadline_ms: float) -> bool:
        """What waits for a decision is not aborted in passing: it is taken over and decided."""
        answer, _ = await self._take_over(transactional_id, deadline_ms, keeps=True)
        raise_for(answer.error_code, f"abort of {transactional_id}")
        if answer.ongoing_txn_producer_id < 0:
            return state == "PrepareAbort"
        taken = PreparedTransaction(transactional_id, answer.producer_id, answer.producer_epoch)
        answer = await end_transaction(self._calls, taken, deadline_ms, commit=False)
        raise_for(answer.error_code, f"abort of {transactional_id}")
        return True

    async def _take_over(
        self,
        transactional_id: str,
        deadline_ms: float,
        *,
        keeps: bool = False,
        waits: bool = True,
    ) -> tuple[Any, int]:
        """InitProducerId, until nothing is under way; without `waits`, also while something is.

        The answer, and how often it was asked for.
        """
        attempts = 0

        def fields() -> Fields:
            nonlocal attempts
            attempts += 1
            return {
                "transactional_id": transactional_id,
                # Nobody writes under the epoch that this gives. But Kafka waits no longer for the
                # replicas of its own log, either: with a shorter one it could never answer.
                "transaction_timeout_ms": self._settings.request_timeout_ms,
                "producer_id": -1,
                "producer_epoch": -1,
                "enable2_pc": False,
                "keep_prepared_txn": keeps,
            }

        def code_of(answer: Any) -> int:
            is_answer = answer.error_code == codes.CONCURRENT_TRANSACTIONS and not waits
            return codes.NONE if is_answer else int(answer.error_code)

        answer = await self._calls.ask(
            TRANSACTION,
            transactional_id,
            INIT_PRODUCER_ID,
            fields,
            deadline_ms,
            what=f"abort of {transactional_id}",
            code_of=code_of,
            version_min=TWO_PHASE_VERSION if keeps else None,
        )
        return answer, attempts

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
