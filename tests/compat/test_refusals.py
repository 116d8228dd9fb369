"""Goal: what a client must not do is refused by its code, as Kafka refuses it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from tests.compat.confluent import consumer, create_topic, new_name
from tests.compat.wire import ZSTD, Wire, batch_of, fetch_request, produce, produce_request
from tests.patience import SECONDS_MAX

CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
INVALID_TOPIC_EXCEPTION = 17
INVALID_REQUIRED_ACKS = 21
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100


def test_an_internal_topic_is_not_written_by_clients(bootstrap: str) -> None:
    reader = consumer(bootstrap, {"group.id": "makes-the-topic"})
    reader.committed([], timeout=SECONDS_MAX)
    reader.close()
    with Wire(bootstrap) as wire:
        answer = wire.call(produce_request("__consumer_offsets", batch_of([b"forged"])))
    partition = answer.responses[0].partition_responses[0]
    assert int(partition.error_code) == INVALID_TOPIC_EXCEPTION


def test_a_refused_batch_has_no_place_in_the_log(bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    broken = bytearray(batch_of([b"a bit of it is not what it was"]))
    broken[-1] ^= 1
    with Wire(bootstrap) as wire:
        kept = produce(wire, topic, batch_of([b"kept"]))
        refused = produce(wire, topic, bytes(broken))
    assert (int(kept.error_code), kept.log_start_offset) == (0, 0)
    assert int(refused.error_code) == CORRUPT_MESSAGE
    assert (refused.base_offset, refused.log_start_offset) == (-1, -1)


def test_what_is_not_one_batch_does_not_get_to_the_log(bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    one = batch_of([b"value"])
    old_format = one[:16] + b"\1" + one[17:]
    zstd = batch_of([b"value" * 20], codec=ZSTD)
    with Wire(bootstrap) as wire:

        def told(batch: bytes, version: int = 9) -> tuple[int, int]:
            answer = produce(wire, topic, batch, version=version)
            return int(answer.error_code), answer.log_start_offset

        for batches in (b"", one + one, one[:-1], one[:30], old_format):
            assert told(batches) == (INVALID_RECORD, -1)
        assert told(zstd, 6) == (UNSUPPORTED_COMPRESSION_TYPE, -1)
        assert told(one[:7] + b"\1" + one[8:]) == (INVALID_RECORD, 0), "its base offset is not 0"
        assert told(one) == (0, 0)


@pytest.mark.parametrize("version", [9, 12])
def test_acks_that_nobody_knows(bootstrap: str, version: int) -> None:
    topic = create_topic(bootstrap)
    with Wire(bootstrap) as wire:

        def told(name: str, partition: int = 0) -> int:
            options = {"acks": 2, "version": version, "partition": partition}
            return int(produce(wire, name, batch_of([b"value"]), **options).error_code)

        assert told(topic) == INVALID_REQUIRED_ACKS
        assert told(topic, 7) == UNKNOWN_TOPIC_OR_PARTITION
        assert told(new_name()) == UNKNOWN_TOPIC_OR_PARTITION
        assert told("no/name") == UNKNOWN_TOPIC_OR_PARTITION


def test_acks_that_nobody_knows_for_an_id_that_nobody_knows(bootstrap: str) -> None:
    schema: Any = import_module("kio.schema.produce.v13.request")
    data = schema.PartitionProduceData(index=0, records=batch_of([b"value"]))
    request = schema.ProduceRequest(
        transactional_id=None,
        acks=2,
        timeout=timedelta(seconds=10),
        topic_data=(schema.TopicProduceData(topic_id=uuid.uuid4(), partition_data=(data,)),),
    )
    with Wire(bootstrap) as wire:
        (answer,) = wire.call(request).responses
    assert [int(one.error_code) for one in answer.partition_responses] == [UNKNOWN_TOPIC_ID]


def test_a_client_that_claims_to_be_a_replica_gets_nothing(bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    request = replace(fetch_request(topic, 0), replica_id=7)
    with Wire(bootstrap) as wire:
        answer = wire.call(request)
    assert int(answer.responses[0].partitions[0].error_code) == NOT_LEADER_OR_FOLLOWER
