"""The busy client: 1 KB produced with acks=all at a steady rate, each answer timed.

What others do to the broker (a reader of cold data, a thousand connections, ten thousand
partitions) shows in its latencies. It costs a few per cent of a core, so that it measures the
broker and not the fight for the machine. For the percentiles a request that starts late because the
last answer came late is timed from when it was due: a stall must not hide the requests that it kept
from being sent. The average is of the answers alone, from sending to reading.
"""

from __future__ import annotations

import time

from bench.clients.command import run_as_command
from bench.percentiles import latency_figures
from bench.processes import cpu_seconds
from bench.wire import AnswerError, Connection, answer_of, frame
from ottla.protocol.api_keys import PRODUCE
from ottla.protocol.error_codes import NONE, name_of
from ottla.records.batch_builder import RecordToWrite, build_batch

VERSION = 9
REQUESTS_PER_S = 1000
_REQUESTS_BEFORE = 200


def measure(
    *, bootstrap: str, pid: int, topic: str, seconds: float, size: int = 1024
) -> dict[str, float]:
    request = produce_frame(topic, size)
    with Connection(bootstrap) as connection:
        for _ in range(_REQUESTS_BEFORE):
            _expect_stored(connection.exchange(request))
        before, begin = cpu_seconds(pid), time.perf_counter()
        from_due_s, answers_s = _timed(connection, request, topic, seconds)
        used, took_s = cpu_seconds(pid) - before, time.perf_counter() - begin
    return {
        **latency_figures(from_due_s),
        "average_ms": sum(answers_s) / len(answers_s) * 1e3,
        "cpu_percent": used / took_s * 100,
    }


def _timed(
    connection: Connection, request: bytes, topic: str, seconds: float
) -> tuple[list[float], list[float]]:
    """For each request the time from when it was due, and from when it was sent."""
    clock, sleep = time.perf_counter, time.sleep
    error_at = _error_position(topic)
    from_due_s: list[float] = []
    answers_s: list[float] = []
    due_s = clock()
    end_s = due_s + seconds
    while due_s < end_s:
        sent_s = clock()
        is_late = sent_s >= due_s
        if not is_late:
            sleep(due_s - sent_s)
            sent_s = clock()  # the timer's own lateness is not the broker's
        answer = connection.exchange(request)
        now_s = clock()
        answers_s.append(now_s - sent_s)
        from_due_s.append(now_s - (due_s if is_late else sent_s))
        if answer[error_at : error_at + 2] != b"\0\0":
            _expect_stored(answer)
        due_s += 1 / REQUESTS_PER_S
    return from_due_s, answers_s


def produce_frame(topic: str, size: int) -> bytes:
    """The same request every time: without a producer id the broker looks for no duplicates."""
    batch = build_batch([RecordToWrite(int(time.time() * 1000), None, bytes(size))])
    partitions = [{"index": 0, "records": batch}]
    topics = [{"name": topic, "partition_data": partitions}]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": topics}
    return frame(PRODUCE, VERSION, fields)


def _error_position(topic: str) -> int:
    """In an answer for one partition: after both header fields, three counts, name and index."""
    return 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def _expect_stored(answer: bytes) -> None:
    partition = answer_of(PRODUCE, VERSION, answer).responses[0].partition_responses[0]
    if partition.error_code != NONE:
        raise AnswerError(f"the busy client got {name_of(partition.error_code)}")


if __name__ == "__main__":
    run_as_command(measure)
