"""What one request costs the broker: processor time of a broker process, over a real socket.

    python bench/micro/bench_requests.py [SOURCES ...]

SOURCES are `src` directories, of this version (the default) and of others to compare it with. One
broker runs from each of them, and they get the same requests in turn, a few at a time, so that what
else the machine does falls on all of them. The time is the kernel's count in nanoseconds
(`/proc/PID/task/*/schedstat`), of all threads; printed are the lowest and the median of the turns.
On a busy machine the lowest is worth most, and a comparison more than any figure.
"""

from __future__ import annotations

import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.brokers import SHARED_SETTINGS, Ottla
from bench.groups import commit_frame, wait_until_coordinated
from bench.topics import create_topic, topic_id
from bench.wire import Connection, frame
from ottla.protocol.api_keys import FETCH, PRODUCE
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.crc32c import crc32c

TURNS = 25
IN_FLIGHT = 5
PRODUCER_ID = 7_000
SEQUENCE_AT, CHECKSUM_AT, CHECKED_FROM = 53, 17, 21
SOURCES = str(Path(__file__).parents[2] / "src")


class From(Ottla):
    """A broker of the sources in a directory."""

    sources = SOURCES

    def command(self) -> list[str]:
        return ["env", f"PYTHONPATH={self.sources}", *super().command()]


def processor_us(pid: int) -> float:
    """Threads that have ended are not counted: the broker's stay."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1000


class Producing:
    """An idempotent producer with five requests in flight, one batch to each partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, count: int, size: int) -> None:
        create_topic(bootstrap, topic, partitions)
        value = bytes(range(250)) * 5
        record = RecordToWrite(time.time_ns() // 1_000_000, None, value[:size])
        batch = build_batch(
            [record] * count, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0
        )
        data = [{"index": index, "records": batch} for index in range(partitions)]
        named = [{"name": topic, "partition_data": data}]
        fields = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": named}
        self._frame = bytearray(frame(PRODUCE, 9, fields))
        self._places = [at for at in range(len(self._frame)) if self._frame.startswith(batch, at)]
        self._batch_size, self._count, self._sequence = len(batch), count, 0
        self._connection = Connection(bootstrap)

    def __call__(self, requests: int) -> None:
        for number in range(requests + IN_FLIGHT):
            if number >= IN_FLIGHT:
                self._connection.receive()
            if number < requests:
                self._connection.socket.sendall(self._next())

    def _next(self) -> bytearray:
        for at in self._places:
            struct.pack_into(">i", self._frame, at + SEQUENCE_AT, self._sequence)
            checked = memoryview(self._frame)[at + CHECKED_FROM : at + self._batch_size]
            struct.pack_into(">I", self._frame, at + CHECKSUM_AT, crc32c(checked))
        self._sequence += self._count
        return self._frame


class Reading:
    """Fetches of 1 MiB of what is in the page cache, one at a time."""

    def __init__(self, bootstrap: str) -> None:
        Producing(bootstrap, "read", 1, 15, 1024)(400)
        self._connection = Connection(bootstrap)
        self._topic_id = topic_id(bootstrap, "read")

    def __call__(self, requests: int) -> None:
        for number in range(requests):
            self._connection.exchange(fetch(self._topic_id, 15 * (number % 100)))


class Waiting:
    """A fetch at the end of the log waits, and a record of 200 B wakes it."""

    def __init__(self, bootstrap: str) -> None:
        self._produce = Producing(bootstrap, "wait", 1, 1, 200)
        self._connection = Connection(bootstrap)
        self._topic_id = topic_id(bootstrap, "wait")
        self._offset = 0

    def __call__(self, requests: int) -> None:
        for _ in range(requests):
            self._connection.socket.sendall(fetch(self._topic_id, self._offset))
            self._offset += 1
            self._produce(1)
            self._connection.receive()


class Committing:
    """Groups that commit one offset each, all at once and each on a connection of its own."""

    def __init__(self, bootstrap: str, clients: int) -> None:
        topic = f"committed-{clients}"
        create_topic(bootstrap, topic, 1)
        groups = [f"commits-{number}" for number in range(clients)]
        wait_until_coordinated(bootstrap, groups, topic)
        self._clients = [
            (Connection(bootstrap), commit_frame(group, topic, 1, 1000)) for group in groups
        ]

    def __call__(self, requests: int) -> None:
        for _ in range(requests // len(self._clients)):
            for connection, request in self._clients:
                connection.socket.sendall(request)
            for connection, _ in self._clients:
                connection.receive()


def fetch(of_topic: object, offset: int) -> bytes:
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    fields = {
        "replica_id": -1,
        "max_wait_ms": 30_000,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": of_topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return frame(FETCH, 17, fields)


LOADS: dict[str, tuple[int, Callable[[str], Callable[[int], None]]]] = {
    "produce 15 of 1 KB to one partition": (200, lambda to: Producing(to, "one", 1, 15, 1024)),
    "the same to each of 12 partitions": (40, lambda to: Producing(to, "twelve", 12, 15, 1024)),
    "produce 9 of 100 B": (400, lambda to: Producing(to, "small", 1, 9, 100)),
    "fetch 1 MiB": (40, Reading),
    "wait for a record of 200 B, and produce it": (150, Waiting),
    "commit one offset": (400, lambda to: Committing(to, 1)),
    "the same by 50 clients at once": (1000, lambda to: Committing(to, 50)),
}


def main() -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers = []
        for number, sources in enumerate(sys.argv[1:] or [SOURCES]):
            broker = From(directory / str(number), SHARED_SETTINGS)
            broker.sources = str(Path(sources).resolve())
            stack.enter_context(broker)
            broker.start()
            brokers.append(broker)
        for name, (requests, load) in LOADS.items():
            loads = [load(broker.bootstrap) for broker in brokers]
            used: list[list[float]] = [[] for _ in brokers]
            for _ in range(TURNS):
                for broker, work, costs in zip(brokers, loads, used, strict=True):
                    before = processor_us(broker.pid)
                    work(requests)
                    costs.append((processor_us(broker.pid) - before) / requests)
            for broker, costs in zip(brokers, used, strict=True):
                lowest, middle = min(costs), statistics.median(costs)
                print(f"{name:44} {lowest:8.1f} {middle:8.1f} µs  {broker.sources}", flush=True)


if __name__ == "__main__":
    main()
