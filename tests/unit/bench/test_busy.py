"""Goal: the busy client sends a request that a broker takes, and sees an error in any answer.
Method: real formats, and a server in this process.
"""

from __future__ import annotations

import os

import pytest

from bench.clients.busy import VERSION, measure, produce_frame
from bench.wire import AnswerError
from ottla.protocol import messages
from ottla.protocol.api_keys import PRODUCE
from ottla.protocol.error_codes import NOT_LEADER_OR_FOLLOWER
from ottla.protocol.headers import read_request_header, response_header
from ottla.records.batch_view import is_intact
from tests.unit.bench.servers import serving

TOPIC = "busy"


def answer_with(error_code: int) -> bytes:
    partition = {
        "index": 0,
        "error_code": error_code,
        "base_offset": 7,
        "log_append_time_ms": -1,
        "log_start_offset": 0,
        "record_errors": [],
        "error_message": None,
    }
    fields = {"responses": [{"name": TOPIC, "partition_responses": [partition]}]}
    body = messages.encode_response(PRODUCE, VERSION, fields)
    return response_header(PRODUCE, VERSION, 1) + body


def test_its_request_is_one_whole_batch_with_acks_all() -> None:
    request = memoryview(produce_frame(TOPIC, 1024))[4:]
    fields = messages.decode_request(
        PRODUCE, VERSION, request[read_request_header(request).body_position :]
    )
    (topic,) = fields.topic_data
    assert (fields.acks, topic.name) == (-1, TOPIC)
    assert is_intact(topic.partition_data[0].records)


def test_it_counts_answers() -> None:
    with serving(lambda _: answer_with(0)) as bootstrap:
        figures = measure(bootstrap=bootstrap, pid=os.getpid(), topic=TOPIC, seconds=0.02)
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["p999_ms"]
    assert figures["average_ms"] > 0


@pytest.mark.parametrize("good_answers", [0, 205], ids=["at once", "while it is timed"])
def test_an_error_ends_it(good_answers: int) -> None:
    left = good_answers

    def answer(_: bytes) -> bytes:
        nonlocal left
        left -= 1
        return answer_with(0 if left >= 0 else NOT_LEADER_OR_FOLLOWER)

    refused = pytest.raises(AnswerError, match="NOT_LEADER_OR_FOLLOWER")
    with serving(answer) as bootstrap, refused:
        measure(bootstrap=bootstrap, pid=os.getpid(), topic=TOPIC, seconds=1)
