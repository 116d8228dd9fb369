"""Questions about offsets that only a partition's leader can answer: ends, times, epochs.

Owns the asking: partitions are asked for together, by leader. Whoever needs all answers gets them
(`list_offsets`): those whose leader has moved or is not known yet are asked for again until the
deadline, the others' answers are kept, and what no asking will change is raised. Whoever can use
some asks one leader once (`offsets_of`, `epoch_ends_of`) and gets what there is, and for each other
partition why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.base.ids import TopicPartition
from ottla.client.core import Core
from ottla.client.errors import ClientError, error_for
from ottla.protocol.api_keys import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from ottla.protocol.error_codes import LEADER_NOT_AVAILABLE, NONE, UNKNOWN_TOPIC_OR_PARTITION

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


class Answered(NamedTuple, Generic[T]):
    """What one leader said: a value or an error for each partition that it was asked for."""

    found: dict[TopicPartition, T]
    errors: dict[TopicPartition, ClientError]


class OffsetQuestions:
    def __init__(self, core: Core, *, read_committed: bool) -> None:
        self._core = core
        self._isolation_level = int(read_committed)

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], deadline_ms: float
    ) -> dict[TopicPartition, ListedOffset]:
        """By partition: the first record at or after a time, or an end (EARLIEST, LATEST)."""
        found: dict[TopicPartition, ListedOffset] = {}
        core = self._core

        async def attempt() -> None:
            nodes: dict[int, dict[TopicPartition, int]] = {}
            for key, time_ms in wanted.items():
                if key not in found:
                    nodes.setdefault(await self._leader(key, deadline_ms), {})[key] = time_ms
            asked = [core.spawn(self.offsets_of(node, these)) for node, these in nodes.items()]
            errors: list[ClientError] = []
            try:
                for flow in asked:
                    answered = await flow
                    found.update(answered.found)
                    errors += answered.errors.values()
            finally:  # one has failed, or nobody waits any more
                for flow in asked:
                    flow.cancel()
            if errors:
                core.metadata.request_update()
                raise min(errors, key=lambda error: error.retriable)

        await core.retry(attempt, deadline_ms, "offsets")
        return found

    async def offsets_of(
        self, node: int, wanted: Mapping[TopicPartition, int]
    ) -> Answered[ListedOffset]:
        """As `list_offsets`, of partitions that one broker leads, as far as it tells; once."""

        def of(topic: str, partition: int) -> dict[str, Any]:
            return {
                "partition_index": partition,
                "current_leader_epoch": self._core.cluster.leader_epoch_of(topic, partition),
                "timestamp": wanted[topic, partition],
            }

        def answers(answer: Any) -> Answers[ListedOffset]:
            for topic in answer.topics:
                for one in topic.partitions:
                    listed = ListedOffset(one.offset, one.timestamp, one.leader_epoch)
                    yield (topic.name, one.partition_index), one.error_code, listed

        fields = {
            "replica_id": -1,
            "isolation_level": self._isolation_level,
            "topics": by_topic(wanted, "name", of),
            "timeout_ms": self._core.settings.request_timeout_ms,
        }
        return await self._ask(node, LIST_OFFSETS, wanted, fields, answers)

    async def epoch_ends_of(
        self, node: int, epochs: Mapping[TopicPartition, int]
    ) -> Answered[EpochEnd]:
        """Where an epoch ended in this leader's log, by partition; as far as it tells, once."""

        def of(topic: str, partition: int) -> dict[str, Any]:
            return {
                "partition": partition,
                # As it is known at this attempt: there may be yet another leader by now.
                "current_leader_epoch": self._core.cluster.leader_epoch_of(topic, partition),
                "leader_epoch": epochs[topic, partition],
            }

        def answers(answer: Any) -> Answers[EpochEnd]:
            for topic in answer.topics:
                for one in topic.partitions:
                    end = EpochEnd(one.leader_epoch, one.end_offset)
                    yield (topic.topic, one.partition), one.error_code, end

        fields = {"replica_id": -1, "topics": by_topic(epochs, "topic", of)}
        return await self._ask(node, OFFSET_FOR_LEADER_EPOCH, epochs, fields, answers)

    async def _ask(
        self,
        node: int,
        api_key: int,
        keys: Iterable[TopicPartition],
        fields: dict[str, Any],
        answers: Callable[[Any], Answers[T]],
    ) -> Answered[T]:
        try:
            answer = await self._core.request(node, api_key, fields, purpose=QUESTIONS)
        except ClientError as error:
            return Answered({}, dict.fromkeys(keys, error))
        found: dict[TopicPartition, T] = {}
        errors: dict[TopicPartition, ClientError] = {}
        for key, code, value in answers(answer):
            if code == NONE:
                found[key] = value
            else:
                errors[key] = error_for(code, f"{key[0]}-{key[1]}")
        for key in keys:
            if key not in found and key not in errors:
                errors[key] = error_for(LEADER_NOT_AVAILABLE, "a leader left partitions out")
        return Answered(found, errors)

    async def _leader(self, key: TopicPartition, deadline_ms: float) -> int:
        topic, partition = key
        info = await self._core.metadata.topic(topic, deadline_ms)
        count = len(info.partitions)
        if partition >= count:
            self._core.metadata.request_update()  # it may be there soon
            what = f"{topic} has partitions 0 to {count - 1}, not {partition}"
            raise error_for(UNKNOWN_TOPIC_OR_PARTITION, what)
        leader = info.partitions[partition].leader
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
