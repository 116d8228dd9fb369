"""Who writes and who reads in the chaos with transactions: writers as processes that are killed and
started again, read_committed readers as threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import confluent_kafka

from ottla.client import Consumer
from tests.chaos.transaction_history import Seen, TransactionHistory, Value
from tests.chaos.watched_consumer import WatchedConsumer
from tests.compat.confluent import read
from tests.compat.nodes import REPOSITORY
from tests.patience import SECONDS_MAX

READ_COMMITTED = "read_committed"
MODULE = "tests.chaos.transaction_writers"


class TransactionWriter:
    """`over` counts the transactions of which it was told how they ended. Its name, by which its
    values and its transactional id go, is that of its library."""

    def __init__(
        self, kind: str, place: tuple[str, str, int], history: TransactionHistory, directory: Path
    ) -> None:
        self.kind = kind
        self.over = 0
        self.lives = 0
        self._place = place
        self._history = history
        self._next = 0
        self._log_path = directory / f"transactions-{kind}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread()

    def keep_going(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._reap()
        bootstrap, topic, partitions = self._place
        numbers = (str(partitions), str(self._history.parts), str(self._next))
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, self.kind, self.kind, bootstrap, topic, *numbers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=REPOSITORY,
            )
        self.lives += 1
        self._thread = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._thread.start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                what, _, number = line.decode().rstrip().partition(" ")
                self._hear(what, int(number))

    def _hear(self, what: str, number: int) -> None:
        if what == "begin":
            self._next = number + 1
            return
        told = self._history.committed if what == "committed" else self._history.aborted
        told.add((self.kind, number))
        self.over += 1

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._reap()

    def finish(self) -> None:
        """What it is at is brought to its end, if there is one; nobody is there to go on."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(SECONDS_MAX)
        # All that it said has been heard: the next one has to know where to go on.
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None

    def last_words(self) -> str:
        return f"{self.kind}, {self.lives} lives: {self._log_path.read_text()[-500:]}"


class Reader(threading.Thread):
    """Reads what is committed, from the beginning, for as long as it may."""

    def __init__(self, name: str, place: tuple[str, str, int]) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap, self.topic, self.partitions = place
        self.reads: list[Seen] = []
        self.failed: list[str] = []
        self.stopping = threading.Event()


class ConfluentReader(Reader):
    def run(self) -> None:
        settings: dict[str, str | int] = {
            "bootstrap.servers": self.bootstrap,
            "isolation.level": READ_COMMITTED,
        }
        places = {(self.topic, partition): 0 for partition in range(self.partitions)}
        consumer = WatchedConsumer(
            settings, places, lambda message: self.reads.append(seen(message))
        )
        self.failed = consumer.failed
        consumer.read(self.stopping)


class OttlaReader(Reader):
    def run(self) -> None:
        with Consumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            isolation_level=READ_COMMITTED,
        ) as consumer:
            consumer.assign([(self.topic, one) for one in range(self.partitions)])
            while not self.stopping.is_set():
                for record in consumer.poll(0.2):
                    value = Value.of(bytes(record.value).decode())
                    self.reads.append(Seen(value, record.partition, record.offset))


def seen(message: confluent_kafka.Message) -> Seen:
    value = Value.of((message.value() or b"").decode())
    return Seen(value, message.partition() or 0, message.offset() or 0)


def read_finally(place: tuple[str, str, int]) -> list[Seen]:
    bootstrap, topic, partitions = place
    settings = {"isolation.level": READ_COMMITTED}
    committed = read(bootstrap, topic, partitions=range(partitions), settings=settings)
    return [seen(message) for message in committed]
