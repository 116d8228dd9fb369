"""Questions about offsets that only a partition's leader can answer: ends, times, epochs.

Owns the asking: partitions are asked for together, by leader; those whose leader has moved or is
not known yet are asked for again until the deadline, the others' answers are kept. What no asking
will change is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.base.ids import TopicPartition
from ottla.client.core import Core
from ottla.client.errors import BrokerError, ClientError, error_for, is_retriable_code
from ottla.client.pending import Flow
from ottla.protocol.api_keys import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from ottla.protocol.error_codes import LEADER_NOT_AVAILABLE, NONE

T = TypeVar("T")
Answers = Iterable[tuple[TopicPartition, int, T]]
"""Partition, error code, what was asked for."""

NOT_FOUND = -1
QUESTIONS = "questions"
"""A connection of their own: a fetch that waits for records would hold them up."""


class ListedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    leader_epoch: int
    end_offset: int


class OffsetQuestions:
    def __init__(self, core: Core, *, read_committed: bool) -> None:
        self._core = core
        self._isolation_level = int(read_committed)

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], deadline_ms: float
    ) -> dict[TopicPartition, ListedOffset]:
        """By partition: the first record at or after a time, or an end (EARLIEST, LATEST)."""

        def fields(keys: list[TopicPartition]) -> dict[str, Any]:
            def of(topic: str, partition: int) -> dict[str, Any]:
                return {
                    "partition_index": partition,
                    "current_leader_epoch": self._core.cluster.leader_epoch_of(topic, partition),
                    "timestamp": wanted[topic, partition],
                }

            return {
                "replica_id": -1,
                "isolation_level": self._isolation_level,
                "topics": by_topic(keys, "name", of),
                "timeout_ms": self._core.settings.request_timeout_ms,
            }

        def answers(answer: Any) -> Answers[ListedOffset]:
            for topic in answer.topics:
                for one in topic.partitions:
                    listed = ListedOffset(one.offset, one.timestamp, one.leader_epoch)
                    yield (topic.name, one.partition_index), one.error_code, listed

        return await self._ask(LIST_OFFSETS, list(wanted), fields, answers, deadline_ms)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], deadline_ms: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Where an epoch ended in the leader's log, by partition."""

        def fields(keys: list[TopicPartition]) -> dict[str, Any]:
            def of(topic: str, partition: int) -> dict[str, Any]:
                return {
                    "partition": partition,
                    # As it is known at this attempt: there may be yet another leader by now.
                    "current_leader_epoch": self._core.cluster.leader_epoch_of(topic, partition),
                    "leader_epoch": epochs[topic, partition],
                }

            return {"replica_id": -1, "topics": by_topic(keys, "topic", of)}

        def answers(answer: Any) -> Answers[EpochEnd]:
            for topic in answer.topics:
                for one in topic.partitions:
                    end = EpochEnd(one.leader_epoch, one.end_offset)
                    yield (topic.topic, one.partition), one.error_code, end

        return await self._ask(OFFSET_FOR_LEADER_EPOCH, list(epochs), fields, answers, deadline_ms)

    async def _ask(
        self,
        api_key: int,
        keys: list[TopicPartition],
        fields: Callable[[list[TopicPartition]], dict[str, Any]],
        answers: Callable[[Any], Answers[T]],
        deadline_ms: float,
    ) -> dict[TopicPartition, T]:
        found: dict[TopicPartition, T] = {}
        core = self._core

        async def attempt() -> None:
            nodes: dict[int, list[TopicPartition]] = {}
            for key in keys:
                if key not in found:
                    nodes.setdefault(await self._leader(key, deadline_ms), []).append(key)
            asked = [
                core.spawn(self._ask_node(node, api_key, fields(these)))
                for node, these in nodes.items()
            ]
            failure: ClientError | None = None
            for flow in asked:
                failure = await self._read(flow, answers, found) or failure
            if failure is not None:
                core.metadata.request_update()
                raise failure
            if len(found) < len(keys):
                raise error_for(LEADER_NOT_AVAILABLE, "a leader left partitions out")

        await core.retry(attempt, deadline_ms, "offsets")
        return found

    async def _ask_node(self, node: int, api_key: int, fields: dict[str, Any]) -> Any:
        return await self._core.request(node, api_key, fields, purpose=QUESTIONS)

    async def _read(
        self, flow: Flow[Any], answers: Callable[[Any], Answers[T]], found: dict[Any, T]
    ) -> ClientError | None:
        """What is worth another attempt."""
        try:
            answer = await flow
        except ClientError as error:
            if not error.retriable:
                raise
            return error
        failure: BrokerError | None = None
        for key, code, value in answers(answer):
            if code == NONE:
                found[key] = value
                continue
            failure = error_for(code, f"{key[0]}-{key[1]}")
            if not is_retriable_code(code):
                raise failure
        return failure

    async def _leader(self, key: TopicPartition, deadline_ms: float) -> int:
        topic, partition = key
        info = await self._core.metadata.topic(topic, deadline_ms)
        leader = info.partitions[partition].leader if partition < len(info.partitions) else -1
        if leader < 0:
            self._core.metadata.request_update()
            raise error_for(LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return leader


def by_topic(
    keys: Iterable[TopicPartition], name: str, of: Callable[[str, int], Any]
) -> list[dict[str, Any]]:
    """Topics with their partitions, as most requests have them."""
    topics: dict[str, list[Any]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(of(topic, partition))
    return [{name: topic, "partitions": partitions} for topic, partitions in topics.items()]
