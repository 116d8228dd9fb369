"""Goal: what the codec writes is read by hand in every version, with the records where they stand;
no other bytes become anything but a refusal. Method: against the codec; cut and changed answers.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from ottla.base.errors import MalformedRequest
from ottla.client.fetch_wire import FetchAnswer, read_fetch_answer
from ottla.protocol import messages
from ottla.protocol.api_keys import FETCH
from tests.seeds import seed_for

TOPIC_ID = uuid.UUID(int=77)
VERSIONS = range(4, 19)


def partition(index: int, records: bytes | None, **others: Any) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": 0,
        "high_watermark": 50,
        "last_stable_offset": 40,
        "log_start_offset": 3,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": records,
        **others,
    }


def answer(version: int) -> bytes:
    aborted = [{"producer_id": 9, "first_offset": 12}, {"producer_id": 8, "first_offset": 2}]
    leader = {"leader_id": 2, "leader_epoch": 7}
    partitions = [
        partition(0, b"records of 0"),
        partition(1, b"", aborted_transactions=aborted, preferred_read_replica=3),
        partition(2, None, error_code=6, current_leader=leader),
    ]
    endpoints = [{"node_id": 2, "host": "two", "port": 9, "rack": "r"}]
    fields = {
        "throttle_time_ms": 5,
        "error_code": 0,
        "session_id": 11,
        "responses": [
            {"topic": "name", "topic_id": TOPIC_ID, "partitions": partitions},
            {"topic": "other", "topic_id": uuid.UUID(int=78), "partitions": []},
        ],
        "node_endpoints": endpoints if version >= 16 else [],
    }
    return messages.encode_response(FETCH, version, fields)


def read(version: int, body: bytes) -> FetchAnswer:
    frame = bytearray(b"head" + body)
    return read_fetch_answer(version, memoryview(frame)[4:])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read(version: int) -> None:
    found = read(version, answer(version))
    topic = TOPIC_ID if version >= 13 else "name"
    assert found.throttle_time_ms == 5
    assert (found.error_code, found.session_id) == (0, 11 if version >= 7 else 0)
    first, second, third = found.partitions
    assert (first.topic, first.partition, first.error_code) == (topic, 0, 0)
    assert bytes(found.frame[first.start : first.end]) == b"records of 0"
    assert (first.high_watermark, first.last_stable_offset) == (50, 40)
    assert first.log_start_offset == (3 if version >= 5 else -1)
    assert (first.aborted, first.preferred_replica, first.leader) == (None, -1, None)
    assert second.aborted == [(9, 12), (8, 2)]
    assert second.preferred_replica == (3 if version >= 11 else -1)
    assert second.start == second.end
    assert (third.error_code, third.start) == (6, third.end)
    assert third.leader == ((2, 7) if version >= 12 else None)
    assert found.endpoints == ([(2, "two", 9, "r")] if version >= 16 else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_cut_off_is_refused(version: int) -> None:
    whole = answer(version)
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            read(version, whole[:size])


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16, 18])
def test_changed_bytes_are_an_answer_or_a_refusal(version: int) -> None:
    chance = random.Random(seed_for("fetch answers"))
    for _ in range(300):
        body = bytearray(answer(version))
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 127, 128, 255))
        try:
            found = read(version, bytes(body))
        except MalformedRequest:
            continue
        for one in found.partitions:
            assert 0 <= one.start <= one.end <= len(found.frame)
