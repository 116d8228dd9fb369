"""Sends the batches of one writer: one of each partition at a time, so that order needs no care.

While one `send` is under way its caller makes the next batches; there are two of them in memory at
most. A batch whose answer was lost is sent again with the same sequence, which the broker knows.
What is over for good (fenced, too large, not allowed) ends the writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.base.ports import Buffer
from ottla.client.errors import BrokerError, ClientError, ConnectionLostError, error_for
from ottla.client.pending import Flow
from ottla.client.produce_wire import encode_produce
from ottla.protocol.api_keys import ADD_PARTITIONS_TO_TXN, PRODUCE
from ottla.protocol.error_codes import (
    DUPLICATE_SEQUENCE_NUMBER,
    MESSAGE_TOO_LARGE,
    NONE,
    RECORD_LIST_TOO_LARGE,
)
from ottla.spark.errors import RowError
from ottla.spark.record_batches import Envelope, PartitionBatch, halves_of
from ottla.spark.wire import Wire

Place = tuple[str, int]

# Produce 13 names topics by id; names do as well.
_BY_NAME_MAX = 12
_BEFORE_TRANSACTIONS_V2 = 11


class BatchSender:
    """`transactional_id` None: at least once, without a transaction; `record_bytes_max` 0: what the
    topics take."""

    def __init__(
        self,
        wire: Wire,
        transactional_id: str | None,
        envelope: Envelope,
        record_bytes_max: int = 0,
    ) -> None:
        self._record_bytes_max = record_bytes_max
        self._wire = wire
        self._transactional_id = transactional_id
        self._envelope = envelope
        self._added: set[Place] = set()
        self._coming: Flow[None] | None = None

    def send(self, batches: Iterable[PartitionBatch]) -> None:
        """Returns when the ones before are stored; these are on their way."""
        made = list(batches)
        for one in made if self._record_bytes_max else ():
            if one.count == 1 and one.size > self._record_bytes_max:
                raise RowError(
                    f"a record of {one.size} bytes for {one.topic} is above "
                    f"kafka.max.request.size {self._record_bytes_max}: raise it, or filter such "
                    "rows out before the sink"
                )
        self.flush()
        shell = self._wire.shell
        shell.enter()
        try:
            self._coming = self._wire.core.spawn(self.send_all(made))
        finally:
            shell.leave()

    def flush(self) -> None:
        """Everything is stored, or this raises."""
        coming, self._coming = self._coming, None
        if coming is not None:
            self._wire.shell.wait(coming)

    async def send_all(self, batches: Iterable[PartitionBatch]) -> None:
        waiting: dict[Place, deque[PartitionBatch]] = {}
        for one in batches:
            waiting.setdefault((one.topic, one.partition), deque()).append(one)
        while waiting:
            await self._wire.retried(lambda: self._round(waiting), "producing")
            for place in [place for place, left in waiting.items() if not left]:
                del waiting[place]

    async def _round(self, waiting: dict[Place, deque[PartitionBatch]]) -> None:
        """The first batch of each partition. What is stored is taken out; raises for the rest."""
        by_leader: dict[int, list[PartitionBatch]] = {}
        for place, left in waiting.items():
            if left:
                leader = await self._wire.leader_of(*place)
                by_leader.setdefault(leader, []).append(left[0])
        by_itself = self._wire.adds_partitions_itself()
        if self._transactional_id is not None and not by_itself:
            await self._add([place for place, left in waiting.items() if left])
        version_max = _BY_NAME_MAX if by_itself else _BEFORE_TRANSACTIONS_V2
        core = self._wire.core
        asked = [
            core.request(leader, PRODUCE, encode=self._said(some), version_max=version_max)
            for leader, some in by_leader.items()
        ]
        failure: ClientError | None = None
        for pending in asked:
            try:
                answer = await pending
            except ConnectionLostError as lost:
                core.metadata.request_update()
                failure = lost
                continue
            failure = self._take(answer, waiting) or failure
        if failure is not None:
            raise failure

    def _take(self, answer: Any, waiting: dict[Place, deque[PartitionBatch]]) -> BrokerError | None:
        failure = None
        for topic in answer.responses:
            for one in topic.partition_responses:
                left = waiting[topic.name, one.index]
                if one.error_code in (NONE, DUPLICATE_SEQUENCE_NUMBER):
                    left.popleft()
                elif one.error_code in (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE):
                    self._divide(left)
                else:
                    self._wire.core.metadata.request_update()
                    failure = error_for(
                        one.error_code, f"{topic.name}-{one.index}", one.error_message
                    )
        return failure

    def _divide(self, left: deque[PartitionBatch]) -> None:
        batch = left[0]
        if batch.count == 1:
            raise RowError(
                f"a record of {batch.size} bytes is larger than {batch.topic} takes: raise "
                "its max.message.bytes, or filter such rows out before the sink"
            )
        left.popleft()
        left.extendleft(reversed(halves_of(batch, self._envelope)))

    def _said(self, batches: list[PartitionBatch]) -> Callable[[int], Sequence[Buffer]]:
        by_topic: dict[str, list[tuple[int, Sequence[Buffer]]]] = {}
        for one in batches:
            pieces = (one.header, one.records)
            by_topic.setdefault(one.topic, []).append((one.partition, pieces))
        return lambda version: encode_produce(
            version,
            by_topic,
            {},
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._wire.settings.request_timeout_ms,
        )

    async def _add(self, places: list[Place]) -> None:
        """For brokers before KIP-890: the coordinator is told of each partition first."""
        new = [place for place in places if place not in self._added]
        if not new:
            return
        assert self._transactional_id is not None
        topics: dict[str, list[int]] = {}
        for topic, partition in new:
            topics.setdefault(topic, []).append(partition)
        answer = await self._wire.ask_transactions(
            self._transactional_id,
            ADD_PARTITIONS_TO_TXN,
            {
                "v3_and_below_transactional_id": self._transactional_id,
                "v3_and_below_producer_id": self._envelope.producer.producer_id,
                "v3_and_below_producer_epoch": self._envelope.producer.epoch,
                "v3_and_below_topics": [
                    {"name": name, "partitions": some} for name, some in topics.items()
                ],
                "transactions": [],
            },
            version_max=3,
        )
        for topic in answer.results_by_topic_v3_and_below:
            for one in topic.results_by_partition:
                if one.partition_error_code != NONE:
                    raise self._wire.transaction_error(
                        self._transactional_id, one.partition_error_code
                    )
        self._added.update(new)
