"""One record at a time: produced with acks=all, then taken by a consumer of the same process.

The same round as in Kafka's EndToEndLatency: the next record is sent when the last one was
acknowledged and has arrived.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.clients.command import run_as_command
from bench.percentiles import latency_figures
from bench.processes import cpu_seconds
from bench.wire import AnswerError

_WAIT_S = 10.0
# The first rounds connect, find the leader and park the first long poll.
_ROUNDS_BEFORE = 100


def measure(*, bootstrap: str, pid: int, topic: str, seconds: float, size: int) -> dict[str, float]:
    shared = {"bootstrap.servers": bootstrap, "socket.nagle.disable": True}
    producer = Producer({**shared, "acks": "all", "linger.ms": 0})
    consumer = Consumer({**shared, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    payload = bytes(size)
    for _ in range(_ROUNDS_BEFORE):
        _round(producer, consumer, topic, payload)
    latencies_s: list[float] = []
    before, end = cpu_seconds(pid), time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        _round(producer, consumer, topic, payload)
        latencies_s.append(time.perf_counter() - begin)
    used = cpu_seconds(pid) - before
    consumer.close()
    return {**latency_figures(latencies_s), "cpu_ms_per_round": used / len(latencies_s) * 1e3}


def _round(producer: Producer, consumer: Consumer, topic: str, payload: bytes) -> None:
    producer.produce(topic, payload)
    if producer.flush(_WAIT_S):
        raise AnswerError("a record was not acknowledged")
    message = consumer.poll(_WAIT_S)
    if message is None or message.error() is not None:
        raise AnswerError("a record did not arrive")


if __name__ == "__main__":
    run_as_command(measure)
