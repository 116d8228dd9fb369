"""Writers of a chaos test: one client library each, idempotent, with a process and a topic each.

`python -m tests.chaos.cluster_writers KIND NAME BOOTSTRAP TOPIC` sends `NAME.0`, `NAME.1` and so on
at an easy pace, tells of each acknowledgement by a line `ack NUMBER OFFSET`, and ends, with all of
them told, when its standard input does. What a library gives up on is a line `gave up`: it may have
been written or not.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from abc import ABC, abstractmethod
from typing import Any

PAUSE_S = 0.02
DELIVERY_MS = 300_000


class Writer(ABC):
    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.topic = topic
        self._sent = 0
        self._stop = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        sys.stdin.read()
        self._stop.set()

    @abstractmethod
    def run(self) -> None:
        """Sends until it shall stop, and returns when all is told."""

    def next_value(self) -> tuple[int, bytes]:
        number = self._sent
        self._sent += 1
        return number, f"{self.name}.{number}".encode()

    def is_told(self, number: int, offset: int) -> None:
        sys.stdout.write(f"ack {number} {offset}\n")
        sys.stdout.flush()

    def gave_up(self, why: object) -> None:
        sys.stdout.write(f"gave up: {why!r}\n")
        sys.stdout.flush()

    def going_on(self) -> bool:
        return not self._stop.wait(PAUSE_S)

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()


class ConfluentWriter(Writer):
    def run(self) -> None:
        import confluent_kafka

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": DELIVERY_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        while self.going_on():
            number, value = self.next_value()

            def told(error: Any, message: Any, number: int = number) -> None:
                if error is None:
                    self.is_told(number, message.offset())
                else:
                    self.gave_up(error)

            producer.produce(self.topic, value, on_delivery=told)
            producer.poll(0)
        producer.flush(DELIVERY_MS / 1000)


class KafkaPythonWriter(Writer):
    def run(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=10_000,
            max_block_ms=DELIVERY_MS,
            reconnect_backoff_max_ms=500,
        )
        while self.going_on():
            number, value = self.next_value()

            def told(metadata: Any, number: int = number) -> None:
                self.is_told(number, metadata.offset)

            future = producer.send(self.topic, value)
            future.add_callback(told)
            future.add_errback(self.gave_up)
        producer.flush(timeout=DELIVERY_MS / 1000)
        producer.close()


class AiokafkaWriter(Writer):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=120_000,
            metadata_max_age_ms=1_000,
        )
        await producer.start()
        waiting: set[asyncio.Future[Any]] = set()
        while not self.is_stopping:
            await asyncio.sleep(PAUSE_S)
            number, value = self.next_value()
            future = await producer.send(self.topic, value)
            waiting.add(future)

            def told(done: asyncio.Future[Any], number: int = number) -> None:
                waiting.discard(done)
                if done.cancelled() or done.exception() is not None:
                    self.gave_up("cancelled" if done.cancelled() else done.exception())
                else:
                    self.is_told(number, done.result().offset)

            future.add_done_callback(told)
        if waiting:
            await asyncio.wait(set(waiting), timeout=DELIVERY_MS / 1000)
        await producer.stop()


class OttlaWriter(Writer):
    def run(self) -> None:
        from ottla.client import Producer

        with Producer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            linger_ms=0,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=10_000,
            max_block_ms=DELIVERY_MS,
        ) as producer:
            while self.going_on():
                number, value = self.next_value()

                def told(metadata: Any, error: Any, number: int = number) -> None:
                    if error is None:
                        self.is_told(number, metadata.offset)
                    else:
                        self.gave_up(error)

                producer.send(self.topic, value, on_delivery=told)


KINDS: dict[str, type[Writer]] = {
    "confluent": ConfluentWriter,
    "kafka-python": KafkaPythonWriter,
    "aiokafka": AiokafkaWriter,
    "ottla": OttlaWriter,
}


if __name__ == "__main__":
    kind, name, bootstrap, topic = sys.argv[1:]
    KINDS[kind](name, bootstrap, topic).run()
