"""One partition read from its beginning as fast as confluent-kafka takes it, by `assign`.

Again and again until the time is over, always to its end: what a consumer has fetched ahead when it
is stopped would cost the broker something that no figure counts.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from bench.clients.command import run_as_command
from bench.processes import cpu_seconds_of
from bench.wire import AnswerError

_AT_ONCE = 10_000
_WAIT_S = 10.0


def consume(
    *, bootstrap: str, pids: list[int], topic: str, records: int, size: int, seconds: float
) -> dict[str, float]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.consume(1, _WAIT_S)  # connected: from here on it counts
    passes, before, begin = 0, cpu_seconds_of(pids), time.perf_counter()
    while passes == 0 or time.perf_counter() < begin + seconds:
        consumer.assign([TopicPartition(topic, 0, 0)])
        _read_all(consumer, records)
        passes += 1
    took_s, used = time.perf_counter() - begin, cpu_seconds_of(pids) - before
    consumer.close()
    total = records * size * passes
    return {"mb_per_s": total / 2**20 / took_s, "cpu_s_per_gib": used / (total / 2**30)}


def _read_all(consumer: Consumer, records: int) -> None:
    got = 0
    while got < records:
        # More than there is would wait for its whole time.
        messages = consumer.consume(min(_AT_ONCE, records - got), _WAIT_S)
        if not messages or messages[-1].error() is not None:
            raise AnswerError(f"nothing more after {got} of {records} records")
        got += len(messages)


if __name__ == "__main__":
    run_as_command(consume)
