"""Every key several times, for a topic that is compacted afterwards; confluent-kafka, acks=all."""

from __future__ import annotations

import random

from confluent_kafka import Producer

from bench.clients.command import run_as_command
from bench.clients.rdkafka_produce import FLUSH_SECONDS_MAX, QUEUE_RECORDS_MAX
from bench.topics import end_offset
from bench.wire import AnswerError

_POLL_EVERY = 1000


def produce(*, bootstrap: str, topic: str, records: int, keys: int, size: int) -> dict[str, float]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 16 * 1024,
            "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
        }
    )
    order = [number % keys for number in range(records)]
    random.Random(records).shuffle(order)  # the same on both sides
    payload = bytes(range(256)) * (size // 256 + 1)
    for number, key in enumerate(order):
        name = b"key %012d" % key
        while True:
            try:
                producer.produce(topic, payload[: size - len(name)], name)
                break
            except BufferError:
                producer.poll(0.01)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_SECONDS_MAX)
    arrived = end_offset(bootstrap, topic)
    if left or arrived != records:
        raise AnswerError(f"{arrived} of {records} records arrived, {left} were never sent")
    return {"records": float(records)}


if __name__ == "__main__":
    run_as_command(produce)
