"""Writers of the chaos with transactions: one client library each, a process of its own.

`python -m tests.chaos.transaction_writers KIND NAME BOOTSTRAP TOPIC PARTITIONS PARTS FIRST` runs
one transaction after the other, the first with number FIRST, each with PARTS values over the
partitions, and aborts one in five. Its lines: `begin N` before anything of it is sent, `committed
N` or `aborted N` when the library says so. It ends with its standard input; whatever its library
does not want to go on with ends it too, and whoever started it starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.chaos.transaction_history import Value

PAUSE_S = 0.01
CALL_SECONDS_MAX = 30
TIMEOUT_MS = 10_000
ABORTED_SHARE = 0.2


@dataclass(frozen=True)
class Task:
    name: str
    bootstrap: str
    topic: str
    partitions: int
    parts: int
    first: int

    @property
    def transactional_id(self) -> str:
        return f"chaos-{self.name}"


class Writer(ABC):
    def __init__(self, task: Task) -> None:
        self.task = task
        self._chance = random.Random(f"{task.name} {task.first}")
        self._number = task.first
        self._stop = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        sys.stdin.read()
        self._stop.set()

    @abstractmethod
    def run(self) -> None:
        """One transaction after the other until it shall stop."""

    def going_on(self) -> bool:
        return not self._stop.wait(PAUSE_S)

    def next_values(self) -> list[tuple[int, bytes]]:
        """The partitions and values of the next transaction, which begins with this."""
        task, number = self.task, self._number
        self._tell(f"begin {number}")
        values = [Value(task.name, number, part) for part in range(task.parts)]
        return [(value.part % task.partitions, value.text().encode()) for value in values]

    def is_to_commit(self) -> bool:
        return self._chance.random() >= ABORTED_SHARE

    def is_over(self, committed: bool) -> None:
        self._tell(f"{'committed' if committed else 'aborted'} {self._number}")
        self._number += 1

    def _tell(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class ConfluentWriter(Writer):
    def run(self) -> None:
        import confluent_kafka

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.task.bootstrap,
                "transactional.id": self.task.transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "message.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        producer.init_transactions(CALL_SECONDS_MAX)
        while self.going_on():
            producer.begin_transaction()
            for partition, value in self.next_values():
                producer.produce(self.task.topic, value, partition=partition)
            committed = self.is_to_commit()
            if committed:
                producer.commit_transaction(CALL_SECONDS_MAX)
            else:
                # What is still on its way may not overtake the abort, so nothing shall be.
                producer.flush(CALL_SECONDS_MAX)
                producer.abort_transaction(CALL_SECONDS_MAX)
            self.is_over(committed)


class OttlaWriter(Writer):
    def run(self) -> None:
        from ottla.client import Producer

        with Producer(
            bootstrap_servers=self.task.bootstrap,
            transactional_id=self.task.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=5_000,
            delivery_timeout_ms=TIMEOUT_MS,
            max_block_ms=CALL_SECONDS_MAX * 1000,
            linger_ms=0,
        ) as producer:
            while self.going_on():
                producer.begin_transaction()
                for partition, value in self.next_values():
                    producer.send(self.task.topic, value, partition=partition)
                committed = self.is_to_commit()
                if committed:
                    producer.commit_transaction()
                else:
                    producer.flush()
                    producer.abort_transaction()
                self.is_over(committed)


class KafkaPythonWriter(Writer):
    def run(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.task.bootstrap.split(","),
            transactional_id=self.task.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=5_000,
            delivery_timeout_ms=TIMEOUT_MS,
            max_block_ms=CALL_SECONDS_MAX * 1000,
            linger_ms=0,
            reconnect_backoff_max_ms=500,
        )
        with time_limit("init_transactions"):
            producer.init_transactions()
        while self.going_on():
            with time_limit("a transaction"):
                self._one(producer)

    def _one(self, producer: Any) -> None:
        producer.begin_transaction()
        futures = [
            producer.send(self.task.topic, value, partition=partition)
            for partition, value in self.next_values()
        ]
        for future in futures:
            future.get(timeout=CALL_SECONDS_MAX)
        committed = self.is_to_commit()
        if committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        self.is_over(committed)


@contextlib.contextmanager
def time_limit(what: str) -> Iterator[None]:
    """Ends this process after a while: kafka-python was seen to wait without a limit for an end of
    its transaction, with no request under way, when its coordinator had been away."""

    def give_up() -> None:
        sys.stderr.write(f"no end of {what}\n")
        sys.stderr.flush()
        os._exit(1)

    timer = threading.Timer(CALL_SECONDS_MAX, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class AiokafkaWriter(Writer):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.task.bootstrap,
            transactional_id=self.task.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=5_000,
            metadata_max_age_ms=1_000,
        )
        await asyncio.wait_for(producer.start(), CALL_SECONDS_MAX)
        while await asyncio.to_thread(self.going_on):
            # It has no time limits of its own.
            await asyncio.wait_for(self._one(producer), CALL_SECONDS_MAX)

    async def _one(self, producer: Any) -> None:
        await producer.begin_transaction()
        for partition, value in self.next_values():
            await producer.send_and_wait(self.task.topic, value, partition=partition)
        committed = self.is_to_commit()
        if committed:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
        self.is_over(committed)


KINDS: dict[str, type[Writer]] = {
    "confluent": ConfluentWriter,
    "ottla": OttlaWriter,
    "kafka-python": KafkaPythonWriter,
    "aiokafka": AiokafkaWriter,
}


if __name__ == "__main__":
    kind, name, bootstrap, topic, partitions, parts, first = sys.argv[1:]
    KINDS[kind](Task(name, bootstrap, topic, int(partitions), int(parts), int(first))).run()
