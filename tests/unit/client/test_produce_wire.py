"""Produce from the client's side, held against the broker's side of it."""

from __future__ import annotations

import uuid

import pytest

from ottla.client.produce_wire import PartitionAnswer, decode_produce, encode_produce
from ottla.protocol.produce import pack_produce_response, read_produce_request

IDS = {"first": uuid.UUID(int=2**128 - 5), "second": uuid.UUID(int=7)}
VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_says_what_is_meant(version: int) -> None:
    batches: dict[str, list[tuple[int, tuple[bytes, ...]]]] = {
        "first": [(0, (b"x" * 300,)), (5, (b"y", b"in two pieces"))],
        "second": [(1, (b"z" * 20_000,))],
    }
    parts = encode_produce(version, batches, IDS, transactional_id="id", acks=-1, timeout_ms=3000)
    read = read_produce_request(version, memoryview(b"".join(parts)))
    assert (read.transactional_id, read.acks, read.timeout_ms) == ("id", -1, 3000)
    assert [
        (
            name if name is not None else {IDS[one]: one for one in IDS}[topic_id or IDS["first"]],
            [(index, bytes(records or b"")) for index, records in partitions],
        )
        for name, topic_id, partitions in read.topics
    ] == [
        (name, [(index, b"".join(pieces)) for index, pieces in partitions])
        for name, partitions in batches.items()
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["first", "n" * 249])
def test_the_usual_answer(version: int, name: str) -> None:
    topic_id = IDS["first"]
    body = pack_produce_response(
        version, [(name, topic_id, [(3, 0, 77, 5, 0, [], None, None)])], 12
    )
    answer = decode_produce(version, body)
    key = topic_id if version >= 13 else name
    assert answer.partitions == {(key, 3): PartitionAnswer(0, 77, 5)}
    assert answer.throttle_time_ms == 12


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_with_everything(version: int) -> None:
    body = pack_produce_response(
        version,
        [
            ("first", IDS["first"], [(0, 6, -1, -1, -1, [(2, "bad")], "no", (4, 9))]),
            ("second", IDS["second"], [(1, 0, 5, -1, 0, [], None, None)]),
        ],
        0,
        [(4, "host", 9092, "rack")],
    )
    answer = decode_produce(version, body)
    keys = [IDS[name] if version >= 13 else name for name in ("first", "second")]
    first = answer.partitions[keys[0], 0]
    assert first.error_code == 6
    assert first.leader == ((4, 9) if version >= 10 else None)
    assert first.message == ("no" if version >= 8 else None)
    assert first.record_errors == (((2, "bad"),) if version >= 8 else ())
    assert answer.partitions[keys[1], 1].base_offset == 5
    assert answer.endpoints == (((4, "host", 9092, "rack"),) if version >= 10 else ())
