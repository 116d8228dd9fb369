"""Goal: what a client must not do is refused by its code, as Kafka refuses it."""

from __future__ import annotations

from dataclasses import replace

from tests.compat.confluent import consumer, create_topic
from tests.compat.wire import Wire, batch_of, fetch_request, produce, produce_request
from tests.patience import SECONDS_MAX

CORRUPT_MESSAGE = 2
NOT_LEADER_OR_FOLLOWER = 6
INVALID_TOPIC_EXCEPTION = 17


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


def test_a_client_that_claims_to_be_a_replica_gets_nothing(bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    request = replace(fetch_request(topic, 0), replica_id=7)
    with Wire(bootstrap) as wire:
        answer = wire.call(request)
    assert int(answer.responses[0].partitions[0].error_code) == NOT_LEADER_OR_FOLLOWER
