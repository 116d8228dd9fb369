"""DescribeProducers 0: who writes to a partition, and whose transaction is open (KIP-664).

Any replica may be asked, since every one of them has the state.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ProtocolError
from ottla.handlers.answer_budget import entries
from ottla.handlers.context import Context
from ottla.handlers.local_partitions import find_replica
from ottla.log.producer_state import ProducerEntry
from ottla.metadata import topic_names
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR, NONE, message_of

API_KEY = 61
VERSIONS = (0, 0)

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields:
    budget = entries()
    # One that is asked for again is told again, as by Kafka, but described once.
    known: dict[tuple[str, int], Fields] = {}

    def describe(topic: str, index: int) -> Fields:
        answer = known.get((topic, index))
        if answer is None:
            answer = known[topic, index] = _describe(context, topic, index)
        budget.take(1 + len(answer["active_producers"]))
        return answer

    topics = [
        {
            "name": topic.name,
            "partitions": [describe(topic.name, index) for index in topic.partition_indexes],
        }
        for topic in request.topics
    ]
    return {"throttle_time_ms": 0, "topics": topics}


def _describe(context: Context, topic: str, index: int) -> Fields:
    try:
        topic_names.validate(topic)
    except ProtocolError as refused:
        return _answer(index, refused.code, refused.message)
    partition = find_replica(context.services, topic, index)
    if isinstance(partition, int):
        return _answer(index, partition, message_of(partition))
    if partition.log is None:
        return _answer(index, KAFKA_STORAGE_ERROR, message_of(KAFKA_STORAGE_ERROR))
    answer = _answer(index, NONE, None)
    answer["active_producers"] = [
        _producer(entry) for entry in partition.log.producers.entries.values()
    ]
    return answer


def _answer(index: int, code: int, message: str | None) -> Fields:
    return {
        "partition_index": index,
        "error_code": code,
        "error_message": message,
        "active_producers": [],
    }


def _producer(entry: ProducerEntry) -> Fields:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": entry.last_sequence(),
        "last_timestamp": entry.timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": entry.transaction_first_offset,
    }
