"""What no stock client shows or sends, judged on the bytes: framing, versions, long polls."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from tests.compat import confluent
from tests.compat.wire import (
    ZSTD,
    Wire,
    batch_of,
    batches_in,
    fetch_request,
    produce,
    produce_request,
    response_class_of,
)


def api_versions(version: int) -> Any:
    schema: Any = import_module(f"kio.schema.api_versions.v{version}.request")
    software = {"client_software_name": "compat", "client_software_version": "1"}
    return schema.ApiVersionsRequest(**(software if version >= 3 else {}))


def ranges(wire: Wire) -> dict[int, tuple[int, int]]:
    keys = wire.call(api_versions(3)).api_keys
    return {key.api_key: (key.min_version, key.max_version) for key in keys}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_api_versions(bootstrap: str, version: int) -> None:
    with Wire(bootstrap) as wire:
        answer = wire.call(api_versions(version))
        assert int(answer.error_code) == 0
        assert len(answer.api_keys) > 20


def test_an_unknown_api_versions_version_is_answered_in_the_oldest_form(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        wire.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\x00")
        answer = wire.receive_frame()
        assert answer == struct.pack(">ihihhh", 7, 35, 1, 18, 0, 4)
        assert int(wire.call(api_versions(3)).error_code) == 0, "the connection stays"


def test_advertised_ranges_are_those_of_kafka(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        served = ranges(wire)
    assert served[0] == (0, 13)
    assert served[1] == (4, 18)
    assert served[2] == (1, 11)
    assert served[3] == (0, 13)
    assert served[18] == (0, 4)
    assert served[19] == (2, 7)
    assert served[20] == (1, 6)
    assert served[22][0] == 0


@pytest.mark.parametrize(("api_key", "version"), [(0, 2), (1, 3), (3, 99), (1000, 0)])
def test_an_unserved_version_closes_the_connection(
    bootstrap: str, api_key: int, version: int
) -> None:
    with Wire(bootstrap) as wire:
        wire.send_frame(struct.pack(">hhih", api_key, version, 1, -1) + bytes(32))
        assert wire.receive_frame() is None


@pytest.mark.parametrize("size", [-1, 0x7FFFFFFF])
def test_an_impossible_frame_size_closes_the_connection(bootstrap: str, size: int) -> None:
    with Wire(bootstrap) as wire:
        wire.socket.sendall(struct.pack(">i", size))
        assert wire.receive_frame() is None


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce_by_name(bootstrap: str, version: int) -> None:
    topic = confluent.create_topic(bootstrap)
    with Wire(bootstrap) as wire:
        for base_offset in (0, 2):
            answer = produce(wire, topic, batch_of([b"a", b"b"]), version=version)
            assert (int(answer.error_code), answer.base_offset) == (0, base_offset)
        missing = produce(wire, confluent.new_name("missing"), batch_of([b"a"]), version=version)
        assert int(missing.error_code) == 3


@pytest.mark.parametrize("version", range(4, 10))
def test_zstd_is_served_to_readers_of_before_it(bootstrap: str, version: int) -> None:
    """The version says in what words a reader asks, not what it can unpack."""
    topic = confluent.create_topic(bootstrap)
    schema: Any = import_module(f"kio.schema.fetch.v{version}.request")
    part = schema.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = schema.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=1,
        topics=(schema.FetchTopic(topic=topic, partitions=(part,)),),
        **({"forgotten_topics_data": ()} if version >= 7 else {}),
    )
    with Wire(bootstrap) as wire:
        for codec in (0, ZSTD):
            assert int(produce(wire, topic, batch_of([b"v" * 200], codec=codec)).error_code) == 0
        (answer,) = wire.call(request).responses[0].partitions
    assert int(answer.error_code) == 0
    assert [batch.codec for batch in batches_in(bytes(answer.records))] == [0, ZSTD]


def test_a_waiting_fetch_is_woken_by_an_append(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    with Wire(bootstrap) as reader, Wire(bootstrap) as writer:
        # It may wait longer than the connection's own time-out: only the append can end it.
        request = fetch_request(topic, 0, wait_ms=120_000)
        correlation_id = reader.send(request)
        assert int(produce(writer, topic, batch_of([b"wake up"])).error_code) == 0
        (part,) = reader.receive(request, correlation_id).responses[0].partitions
        assert b"wake up" in bytes(part.records)


def test_a_waiting_fetch_gets_everything_that_one_request_appends(bootstrap: str) -> None:
    """Not only the first partition of it, as if the rest had come later."""
    partitions = 3
    topic = confluent.create_topic(bootstrap, partitions=partitions)
    reading: Any = import_module("kio.schema.fetch.v12.request")
    writing: Any = import_module("kio.schema.produce.v9.request")
    wanted = [fetch_request(topic, 0, partition=index) for index in range(partitions)]
    asked = reading.FetchTopic(
        topic=topic, partitions=tuple(one.topics[0].partitions[0] for one in wanted)
    )
    waiting = replace(wanted[0], max_wait=timedelta(minutes=2), topics=(asked,))
    sent = [
        writing.PartitionProduceData(index=index, records=batch_of([b"of %d" % index]))
        for index in range(partitions)
    ]
    written = replace(
        produce_request(topic, b""),
        topic_data=(writing.TopicProduceData(name=topic, partition_data=tuple(sent)),),
    )
    with Wire(bootstrap) as reader, Wire(bootstrap) as writer:
        correlation_id = reader.send(waiting)
        writer.call(written)
        answered = reader.receive(waiting, correlation_id).responses[0].partitions
    assert [b"of %d" % one.partition_index in bytes(one.records) for one in answered] == [True] * 3


def test_pipelined_requests_are_answered_in_order(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    with Wire(bootstrap) as wire:
        requests = [
            request
            for number in range(20)
            for request in (
                produce_request(topic, batch_of([b"%d" % number])),
                # Waits for its time to pass: the answers behind it must wait as well.
                fetch_request(topic, number + 1, wait_ms=10),
                api_versions(3),
            )
        ]
        sent = [(request, wire.send(request)) for request in requests]
        answers = [wire.receive(request, correlation_id) for request, correlation_id in sent]
        assert [type(answer) for answer in answers] == [response_class_of(one) for one in requests]
        bases = [answer.responses[0].partition_responses[0].base_offset for answer in answers[::3]]
        assert bases == list(range(20))
