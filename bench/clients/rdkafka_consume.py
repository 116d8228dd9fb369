"""One partition read from its beginning as fast as confluent-kafka takes it, by `assign`."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from bench.clients.command import run_as_command
from bench.processes import cpu_seconds
from bench.wire import AnswerError

_AT_ONCE = 10_000
_WAIT_S = 10.0


def consume(*, bootstrap: str, pid: int, topic: str, records: int, size: int) -> dict[str, float]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = len(consumer.consume(1, _WAIT_S))  # connected: from here on it counts
    before, begin = cpu_seconds(pid), time.perf_counter()
    while got < records:
        # More than there is would wait for its whole time.
        messages = consumer.consume(min(_AT_ONCE, records - got), _WAIT_S)
        if not messages or messages[-1].error() is not None:
            raise AnswerError(f"nothing more after {got} of {records} records of {topic}")
        got += len(messages)
    seconds, used = time.perf_counter() - begin, cpu_seconds(pid) - before
    consumer.close()
    total = records * size
    return {"mb_per_s": total / 2**20 / seconds, "cpu_s_per_gib": used / (total / 2**30)}


if __name__ == "__main__":
    run_as_command(consume)
