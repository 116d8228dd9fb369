"""Batches as a leader holds them, for tools that explain a log: headers, markers, what was aborted.

One fetch without a session for each call. Never gives a batch that is cut off, or whose checksum is
wrong; gives control batches and aborted ones, which consumers pass over.
"""

from __future__ import annotations

from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.admin_base import AdminBase, raise_for
from ottla.client.admin_values import BatchRange
from ottla.client.errors import error_for
from ottla.client.fetch_wire import FetchAnswer, FetchedPartition, read_fetch_answer
from ottla.protocol import error_codes as codes
from ottla.protocol import messages
from ottla.protocol.api_keys import FETCH
from ottla.records.batch_header import BATCH_LENGTH, HEADER_SIZE, LENGTH_END, read_header
from ottla.records.batch_view import is_intact

_BYTES = 1 << 20
_WAIT_MS = 0
# What another leader, or the same one a moment later, answers.
_PASSING = frozenset(
    {
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.LEADER_NOT_AVAILABLE,
        codes.UNKNOWN_LEADER_EPOCH,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_TOPIC_ID,
        codes.REPLICA_NOT_AVAILABLE,
    }
)


class AdminBatches(AdminBase):
    async def fetch_batches(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        committed: bool = False,
        max_bytes: int = _BYTES,
    ) -> BatchRange:
        """Whole batches from the one that holds `offset` on, about `max_bytes`, at least one.

        `committed`: up to the last stable offset, with the aborted transactions among them.
        OFFSET_OUT_OF_RANGE below the log start and above the high watermark.
        """
        what = f"records of {partition[0]}-{partition[1]}"
        core, deadline_ms = self._core, self._deadline_ms()

        async def attempt() -> tuple[FetchAnswer, FetchedPartition]:
            by_leader = await self._by_leader({partition: None}, deadline_ms)
            if not by_leader:
                core.metadata.request_update()
                raise error_for(codes.LEADER_NOT_AVAILABLE, what)
            (leader,) = by_leader
            fields = await self._fields(partition, offset, committed, max_bytes, deadline_ms)
            answer: FetchAnswer = await core.request(
                leader,
                FETCH,
                encode=lambda version: (messages.encode_request(FETCH, version, fields),),
                decode=read_fetch_answer,
            )
            raise_for(answer.error_code, what)
            found = answer.partitions[0]
            if found.error_code in _PASSING:
                core.metadata.request_update()
            raise_for(found.error_code, what)
            return answer, found

        answer, found = await core.retry(attempt, deadline_ms, what)
        return BatchRange(
            found.log_start_offset,
            found.last_stable_offset,
            found.high_watermark,
            found.aborted or [],
            _whole_batches(memoryview(answer.frame)[found.start : found.end], what),
        )

    async def _fields(
        self,
        partition: TopicPartition,
        offset: int,
        committed: bool,
        max_bytes: int,
        deadline_ms: float,
    ) -> dict[str, Any]:
        topic, index = partition
        info = await self._core.metadata.topic(topic, deadline_ms)
        wanted = {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": max_bytes,
        }
        return {
            "replica_id": -1,
            "max_wait_ms": _WAIT_MS,
            "min_bytes": 0,
            "max_bytes": max_bytes,
            "isolation_level": 1 if committed else 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "topic_id": info.topic_id, "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }


def _whole_batches(data: memoryview, what: str) -> list[bytes]:
    batches: list[bytes] = []
    at = 0
    while at + HEADER_SIZE <= len(data):
        end = at + LENGTH_END + read_header(data, at)[BATCH_LENGTH]
        if end > len(data):
            break
        batch = bytes(data[at:end])
        if not is_intact(batch):
            raise error_for(codes.CORRUPT_MESSAGE, what)
        batches.append(batch)
        at = end
    return batches
