"""AddPartitionsToTxn 0-5: which partitions a transaction is going to write to.

v2 tells PRODUCER_FENCED apart; v3 flexible; v4 is for brokers: many transactions at once, added or
only verified. Some clients add their partitions with it all the same (@platformatic/kafka), and
Kafka lets them where it has no authorizer. All partitions of a transaction are added or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import gather
from ottla.handlers.transaction_requests import PATIENCE_MS, Answer, answered, code_for
from ottla.metadata import topic_names
from ottla.protocol.error_codes import (
    INVALID_REQUEST,
    NONE,
    OPERATION_NOT_ATTEMPTED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)

API_KEY = 24
VERSIONS = (0, 5)

BATCHED_FROM = 4
OLD_CLIENT, EPOCH_PER_TRANSACTION = 0, 2

Codes = Mapping[TopicPartition, int]


def handle(context: Context, request: Any) -> Answer:
    if context.api_version >= BATCHED_FROM:
        answers = [_one_of_many(context, one) for one in request.transactions]
        return gather(
            answers, lambda results: {"error_code": NONE, "results_by_transaction": results}
        )
    partitions = _partitions_of(request.v3_and_below_topics)

    def fields_of(codes: Codes) -> Fields:
        return {"results_by_topic_v3_and_below": _topics(request.v3_and_below_topics, codes)}

    return _add(
        context,
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        partitions,
        fields_of,
    )


def _one_of_many(context: Context, asked: Any) -> Answer:
    partitions = _partitions_of(asked.topics)

    def fields_of(codes: Codes) -> Fields:
        return {
            "transactional_id": asked.transactional_id,
            "topic_results": _topics(asked.topics, codes),
        }

    name = asked.transactional_id
    if asked.verify_only and not name:
        return fields_of(dict.fromkeys(partitions, INVALID_REQUEST))
    if not asked.verify_only:
        return _add(context, name, asked.producer_id, asked.producer_epoch, partitions, fields_of)
    verified = context.services.transactions.verify_partitions(
        name, asked.producer_id, asked.producer_epoch, partitions
    )
    return answered(
        verified,
        fields_of,
        lambda code: fields_of(dict.fromkeys(partitions, code)),
    )


def _add(
    context: Context,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: list[TopicPartition],
    fields_of: Any,
) -> Answer:
    image = context.services.image
    is_new = context.api_version >= BATCHED_FROM
    unfit = {one: UNKNOWN_TOPIC_OR_PARTITION for one in partitions if image.partition(*one) is None}
    if not is_new:  # a client has no business with internal topics
        internal = [one for one in partitions if one[0] in topic_names.INTERNAL]
        unfit.update(dict.fromkeys(internal, TOPIC_AUTHORIZATION_FAILED))
    if unfit:
        return dict(fields_of({**dict.fromkeys(partitions, OPERATION_NOT_ATTEMPTED), **unfit}))

    def with_code(code: int) -> Fields:
        told = code_for(code, context.api_version)
        return dict(fields_of(dict.fromkeys(partitions, told)))

    if not transactional_id:
        return with_code(INVALID_REQUEST)
    added = context.services.transactions.add_partitions(
        transactional_id,
        producer_id,
        producer_epoch,
        partitions,
        EPOCH_PER_TRANSACTION if is_new else OLD_CLIENT,
        0 if is_new else PATIENCE_MS,
    )
    return answered(added, with_code, with_code)


def _partitions_of(topics: Iterable[Any]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _topics(topics: Iterable[Any], codes: Codes) -> list[Fields]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[topic.name, index]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]
