"""WriteTxnMarkers 1-2: the end of a transaction, partition by partition.

Sent by coordinators, and by people who abort a transaction that hangs (`kafka-transactions abort`).
v2 tells whether the producer's epoch grows with each transaction: then a marker of an epoch that
the partition has seen is refused. A coordinator may not know whether an earlier one arrived, so
what comes from other brokers is not written again where the transaction is over.
"""

from __future__ import annotations

from typing import Any

from ottla.base.ids import TopicPartition
from ottla.coordinator.shard import Fields, Transactional
from ottla.handlers.context import Context
from ottla.handlers.group_requests import gather
from ottla.handlers.transaction_requests import Answer, answered
from ottla.protocol.error_codes import UNKNOWN_SERVER_ERROR

API_KEY = 27
VERSIONS = (1, 2)

# Between brokers it is no marker: the partition has to ask again before it appends.
LOWEST_EPOCH = -1


def handle(context: Context, request: Any) -> Answer:
    answers = [_write(context, marker) for marker in request.markers]
    return gather(answers, lambda markers: {"markers": markers})


def _write(context: Context, asked: Any) -> Answer:
    marker = Transactional(
        asked.producer_id,
        asked.producer_epoch,
        bool(asked.transaction_result),
        asked.coordinator_epoch,
    )
    places = [(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]
    answers = [_write_one(context, place, marker, asked.transaction_version) for place in places]

    def combine(results: list[Fields]) -> Fields:
        codes = {place: fields["code"] for place, fields in zip(places, results, strict=True)}
        return {
            "producer_id": asked.producer_id,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": index, "error_code": codes[topic.name, index]}
                        for index in topic.partition_indexes
                    ],
                }
                for topic in asked.topics
            ],
        }

    return gather(answers, combine)


def _write_one(
    context: Context, place: TopicPartition, marker: Transactional, client_version: int
) -> Answer:
    if marker.producer_id < 0 or marker.producer_epoch < LOWEST_EPOCH:
        return _with_code(UNKNOWN_SERVER_ERROR)  # no producer has these; as Kafka says it
    is_from_broker = context.listener_name == context.services.inter_broker_listener
    written = context.services.transactions.write_marker(
        *place, marker, client_version, is_repeated=is_from_broker
    )
    return answered(written, _with_code, _with_code)


def _with_code(code: int) -> Fields:
    return {"code": code}
