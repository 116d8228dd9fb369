"""Records of one size as fast as confluent-kafka (librdkafka) sends them, acks=all, one topic."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from bench.clients.command import run_as_command
from bench.processes import cpu_seconds
from bench.topics import end_offset
from bench.wire import AnswerError

FLUSH_SECONDS_MAX = 120
_POLL_EVERY = 1000
# Enough to keep librdkafka busy; more would only be memory that the page cache could use.
QUEUE_RECORDS_MAX = 200_000


def produce(
    *, bootstrap: str, pid: int, topic: str, records: int, size: int, linger_ms: float = 5
) -> dict[str, float]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
        }
    )
    producer.list_topics(topic, 30)  # the connection is not part of the figure
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    before, begin = cpu_seconds(pid), time.perf_counter()
    for number in range(records):
        _send(producer, topic, payload)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_SECONDS_MAX)
    seconds, used = time.perf_counter() - begin, cpu_seconds(pid) - before
    # No callback per record: it would cost more than the record. The log says whether all arrived.
    arrived = end_offset(bootstrap, topic)
    if left or arrived != records:
        raise AnswerError(f"{arrived} of {records} records arrived, {left} were never sent")
    total = records * size
    return {"mb_per_s": total / 2**20 / seconds, "cpu_s_per_gib": used / (total / 2**30)}


def _send(producer: Producer, topic: str, payload: bytes) -> None:
    while True:
        try:
            producer.produce(topic, payload)
            return
        except BufferError:
            producer.poll(0.01)


if __name__ == "__main__":
    run_as_command(produce)
