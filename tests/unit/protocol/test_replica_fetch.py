"""Goal: followers and leaders understand each other, and an answer that is broken is refused.
Method: requests are read by the broker's own reader, answers come from its own packer; every cut
and many changed bytes of an answer.
"""

from __future__ import annotations

import random
import uuid
from types import SimpleNamespace

import pytest

from ottla.base.errors import MalformedRequest
from ottla.protocol.fetch import FetchedPartition, fetch_response_parts, read_fetch_request
from ottla.protocol.fetch_request import NO_HIGH_WATERMARK
from ottla.protocol.replica_fetch import (
    VERSION,
    pack_joining,
    pack_partition,
    pack_replica_fetch,
    pack_tail,
    read_replica_fetched,
)
from tests.seeds import seed_for

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def test_a_request() -> None:
    body = pack_replica_fetch(
        (500, 1, 10_485_760),
        (77, 3),
        {
            ONE.bytes: [pack_partition(4, 9, 1_000, 8, 10, 1_048_576, 0)],
            TWO.bytes: [
                pack_partition(index, 1, index, -1, 0, 5, 0)
                if index % 2
                else pack_joining((index, 1, index, -1, 0, 5), index + 1)
                for index in range(200)
            ],
        },
        {TWO.bytes: [7, 8]},
        pack_tail(3, 12_345),
    )
    request = read_fetch_request(VERSION, memoryview(body))
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
    assert (request.session_id, request.session_epoch) == (77, 3)
    assert (request.replica_id, request.replica_epoch) == (3, 12_345)
    assert request.isolation_level == 0
    assert request.rack_id == ""
    assert request.forgotten == [(None, TWO, [7, 8])]
    (_, first, [one]), (_, second, many) = request.topics
    assert (first, second) == (ONE, TWO)
    assert (one.partition, one.current_leader_epoch, one.fetch_offset) == (4, 9, 1_000)
    assert (one.last_fetched_epoch, one.log_start_offset, one.partition_max_bytes) == (
        8,
        10,
        1_048_576,
    )
    assert [each.fetch_offset for each in many] == list(range(200))
    known = [each.high_watermark for each in many]
    assert known == [NO_HIGH_WATERMARK if index % 2 else index + 1 for index in range(200)]


def an_answer() -> bytes:
    some = SimpleNamespace(size=300)
    topics = [
        (
            None,
            ONE,
            [
                FetchedPartition(0, 0, 50, 49, 7, None, -1, some),
                FetchedPartition(1, 0, 5, 5, 0, [(3, 4), (5, 6)], -1, None, (2, 40)),
            ],
        ),
        (None, TWO, [FetchedPartition(9, 6, -1, -1, -1, None, -1, None, None, (2, 8))]),
    ]
    parts, size = fetch_response_parts(VERSION, 0, 0, 77, topics)
    body = b"".join(b"r" * 300 if part is some else part for part in parts)
    assert len(body) == size
    return body


def test_an_answer() -> None:
    code, session_id, [with_records, parted, failed] = read_replica_fetched(memoryview(an_answer()))
    assert (code, session_id) == (0, 77)
    assert with_records.topic_id == ONE.bytes
    assert (with_records.partition, with_records.high_watermark) == (0, 50)
    assert with_records.log_start_offset == 7
    assert bytes(with_records.records) == b"r" * 300
    assert with_records.diverging is None
    assert (parted.partition, parted.diverging, len(parted.records)) == (1, (2, 40), 0)
    assert (failed.topic_id, failed.partition, failed.error_code) == (TWO.bytes, 9, 6)


def test_a_refusal_of_the_whole() -> None:
    parts, _ = fetch_response_parts(VERSION, 0, 70, 0, [])
    assert read_replica_fetched(memoryview(b"".join(parts))) == (70, 0, [])


def test_a_cut_answer_is_refused() -> None:
    answer = an_answer()
    for size in range(len(answer) - 1):
        with pytest.raises(MalformedRequest):
            read_replica_fetched(memoryview(answer[:size]))


def test_a_changed_answer_is_read_or_refused() -> None:
    chance = random.Random(seed_for("changed replica answers"))
    answer = an_answer()
    for _ in range(2_000):
        changed = bytearray(answer)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            read_replica_fetched(memoryview(bytes(changed)))
        except MalformedRequest:
            continue
