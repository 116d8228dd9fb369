"""TxnOffsetCommit: offsets that wait for the end of a transaction.

Owns what may be committed within a transaction. The records are written as the producer's, and
replaying them keeps them aside until the transaction's marker comes.
"""

from __future__ import annotations

from typing import Any

from ottla.coordinator.group import Group
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.offset_commits import commit_record, is_too_long
from ottla.coordinator.offsets_records import NO_TIMESTAMP, Commit
from ottla.coordinator.shard import Caller, Fields, Outcome, Record, Transactional
from ottla.protocol.error_codes import (
    ILLEGAL_GENERATION,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)


def commit_in_transaction(context: GroupContext, request: Any, caller: Caller) -> Outcome[Fields]:
    refusal = _check(context.groups.get(request.group_id), request, caller.api_version)
    now_ms = context.clock.wall_ms()
    records: list[Record] = []
    results = []
    for asked in request.topics:
        topic = context.image.topics.get(asked.name)
        partitions = []
        for one in asked.partitions:
            index = one.partition_index
            metadata = one.committed_metadata or ""
            code = refusal
            if topic is None or index not in topic.partitions:
                code = UNKNOWN_TOPIC_OR_PARTITION
            elif code == NONE and is_too_long(metadata, context.config.offset_metadata_max_bytes):
                code = OFFSET_METADATA_TOO_LARGE
            elif code == NONE:
                commit = Commit(
                    one.committed_offset,
                    one.committed_leader_epoch,
                    metadata,
                    now_ms,
                    NO_TIMESTAMP,
                    topic.topic_id,
                )
                records.append(commit_record(request.group_id, asked.name, index, commit))
            partitions.append({"partition_index": index, "error_code": code})
        results.append({"name": asked.name, "partitions": partitions})
    return Outcome(
        records,
        {"throttle_time_ms": 0, "topics": results},
        transactional=Transactional(request.producer_id, request.producer_epoch),
    )


def _check(group: Group | None, request: Any, api_version: int) -> int:
    if group is None:
        return NONE if request.generation_id < 0 else ILLEGAL_GENERATION
    code = group.check_commit(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        api_version,
        transactional=True,
    )
    # No version of this API knows the newer code.
    return ILLEGAL_GENERATION if code == STALE_MEMBER_EPOCH else code
