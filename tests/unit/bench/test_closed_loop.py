"""Goal: every answer is counted once, an error is never counted as done.
Method: a server in this process; commit requests and answers in their real formats.
"""

from __future__ import annotations

import threading

import pytest

from bench.closed_loop import run_closed_loop
from bench.groups import COMMIT_VERSION, commit_error_position, commit_frame
from bench.wire import AnswerError
from ottla.protocol import messages
from ottla.protocol.api_keys import OFFSET_COMMIT
from ottla.protocol.error_codes import NOT_COORDINATOR
from ottla.protocol.headers import response_header
from tests.unit.bench.servers import serving

TOPIC = "orders"
REQUESTS = [commit_frame(f"group-{number}", TOPIC, 2, 1000) for number in range(3)]
FOREVER_S = 60.0


def answer_with(error_code: int) -> bytes:
    partitions = [{"partition_index": index, "error_code": error_code} for index in range(2)]
    fields = {"throttle_time_ms": 0, "topics": [{"name": TOPIC, "partitions": partitions}]}
    body = messages.encode_response(OFFSET_COMMIT, COMMIT_VERSION, fields)
    return response_header(OFFSET_COMMIT, COMMIT_VERSION, 1) + body


def test_it_ends_after_the_count_and_leaves_no_answer_behind() -> None:
    answered, lock = 0, threading.Lock()

    def count(_: bytes) -> bytes:
        nonlocal answered
        with lock:
            answered += 1
        return answer_with(0)

    with serving(count) as bootstrap:
        done, _ = run_closed_loop(bootstrap, REQUESTS, commit_error_position(TOPIC), FOREVER_S, 30)
    assert done == answered
    assert 30 <= done < 30 + 2 * len(REQUESTS)


def test_it_ends_when_the_time_is_over() -> None:
    with serving(lambda _: answer_with(0)) as bootstrap:
        done, _ = run_closed_loop(bootstrap, REQUESTS, commit_error_position(TOPIC), 0.0)
    assert len(REQUESTS) <= done <= 2 * len(REQUESTS)


def test_an_error_code_ends_it() -> None:
    refused = pytest.raises(AnswerError, match="NOT_COORDINATOR")
    with serving(lambda _: answer_with(NOT_COORDINATOR)) as bootstrap, refused:
        run_closed_loop(bootstrap, REQUESTS, commit_error_position(TOPIC), FOREVER_S, 30)


def test_a_closed_connection_ends_it() -> None:
    with serving(lambda _: b"") as bootstrap, pytest.raises(AnswerError, match="0 bytes"):
        run_closed_loop(bootstrap, REQUESTS, commit_error_position(TOPIC), FOREVER_S, 30)
