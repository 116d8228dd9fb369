"""`python -m bench.by_client.memory`: does the client's memory stay flat over an hour of traffic?

One process with all that the client offers at once: records with callbacks, synchronous sends,
tables, a group that commits, transactions, both APIs; topics keep a minute's worth. Resident memory
is noted each minute. The median of the last tenth over that of the tenth behind the first: more
than 1.1 fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pyarrow as pa

from bench.brokers import Ottla
from bench.processes import resident_bytes
from ottla.client import Consumer, Producer, process
from ottla.client.aio import AsyncConsumer, AsyncProducer

GROWTH_MAX = 1.1
NOTES = 60
WAIT_S = 60.0
# Of everything, each so often: enough for millions of records, and a machine that can do more.
PAUSE_S = 0.5
RECORDS, ROWS = 200, 5_000


class Traffic:
    """All the clients of the process, each in a thread of its own, until it is over."""

    def __init__(self, bootstrap: str) -> None:
        self.is_over = threading.Event()
        self.counts: dict[str, int] = {}
        self._bootstrap = bootstrap
        self._value = os.urandom(300)
        parts = (self._records, self._tables, self._group, self._transactions, self._by_asyncio)
        pool = ThreadPoolExecutor(len(parts))
        self._running = [pool.submit(part) for part in parts]
        for one in self._running:
            one.add_done_callback(lambda _: self.is_over.set())

    def end(self) -> None:
        """Raises what one of them failed with."""
        self.is_over.set()
        for one in self._running:
            one.result()

    def _goes_on(self) -> bool:
        return not self.is_over.wait(PAUSE_S)

    def _count(self, what: str, more: int) -> None:
        self.counts[what] = self.counts.get(what, 0) + more

    def _records(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while self._goes_on():
                for number in range(RECORDS):
                    key = str(number).encode()
                    headers = [("number", key)]
                    producer.send("records", self._value, key, headers, on_delivery=self._told)
                producer.send("records", self._value).result(WAIT_S)
                self._count("sent", RECORDS + 1)

    def _told(self, metadata: object, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._count("told", 1)

    def _tables(self) -> None:
        table = pa.table({"value": pa.array([self._value] * ROWS, pa.binary())})
        settings = {"bootstrap.servers": self._bootstrap, "auto.offset.reset": "earliest"}
        with (
            Producer(bootstrap_servers=self._bootstrap) as producer,
            Consumer(settings) as consumer,
        ):
            consumer.assign(("tables", 0))
            while self._goes_on():
                producer.send_table(table, "tables").result(WAIT_S)
                self._count("rows read", consumer.fetch_table(timeout_s=WAIT_S).num_rows)

    def _group(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
        while not self.is_over.is_set():
            with Consumer(settings) as consumer:  # and a rebalance now and then
                consumer.subscribe("records")
                until = time.monotonic() + 30
                while time.monotonic() < until and self._goes_on():
                    found = consumer.poll(1.0)
                    consumer.commit()
                    self._count("read by the group", len(found))

    def _transactions(self) -> None:
        reading = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "copiers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        writing = {"bootstrap.servers": self._bootstrap, "transactional.id": "copier"}
        with Consumer(reading) as consumer, Producer(writing) as producer:
            consumer.subscribe("records")
            copied = process(
                consumer,
                producer,
                lambda record: [("copies", record.value)],
                is_over=lambda: not self._goes_on(),
            )
            self._count("copied", copied)

    def _by_asyncio(self) -> None:
        asyncio.run(self._asyncio_loop())

    async def _asyncio_loop(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "auto.offset.reset": "earliest"}
        async with (
            AsyncProducer(bootstrap_servers=self._bootstrap) as producer,
            AsyncConsumer(settings) as consumer,
        ):
            consumer.assign(("asyncio", 0))
            while not self.is_over.is_set():
                sent = [await producer.send("asyncio", self._value) for _ in range(RECORDS)]
                await asyncio.gather(*sent)
                self._count("read by asyncio", len(await consumer.poll(1.0)))
                await asyncio.sleep(PAUSE_S)


def watched(bootstrap: str, seconds: float) -> list[int]:
    """Resident memory, so many times."""
    traffic, notes = Traffic(bootstrap), []
    try:
        for number in range(1, NOTES + 1):
            if traffic.is_over.wait(seconds / NOTES):
                break
            notes.append(resident_bytes(os.getpid()))
            counts = ", ".join(
                f"{name} {count:,}" for name, count in sorted(traffic.counts.items())
            )
            print(f"{number:3}/{NOTES}  {notes[-1] / 2**20:6.1f} MiB  {counts}", flush=True)
    finally:
        traffic.end()
    return notes


def main() -> int:
    parser = argparse.ArgumentParser("bench.by_client.memory", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    options = parser.parse_args()
    settings = {"log.retention.ms": "60000", "log.segment.bytes": str(16 << 20)}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        broker = Ottla(Path(directory) / "ottla", settings)
        try:
            broker.start()
            notes = watched(broker.bootstrap, options.seconds)
        finally:
            broker.stop()
    tenth = NOTES // 10
    growth = median(notes[-tenth:]) / median(notes[tenth : 2 * tenth])
    verdict = "yes" if growth <= GROWTH_MAX else "no"
    print(f"memory at the end over that of the beginning: {growth:.3f}, at most 1.1: {verdict}")
    return 0 if growth <= GROWTH_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
