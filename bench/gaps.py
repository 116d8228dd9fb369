"""How long a producer that never stops is without an acknowledgement, and whether a write fails."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

from confluent_kafka import Producer

from bench.errors import BenchError

SEND_EVERY_S = 0.005
FLUSH_SECONDS_MAX = 120


class SteadyWriter:
    """One record every few milliseconds, acks=all, from entering it to leaving it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self.acks_s: list[float] = []
        self.failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> SteadyWriter:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(SEND_EVERY_S):
            self._producer.produce(self._topic, b"x" * 100, on_delivery=self._told)
            self._producer.poll(0)
        self._producer.flush(FLUSH_SECONDS_MAX)

    def _told(self, error: Any, message: Any) -> None:
        if error is None:
            self.acks_s.append(time.monotonic())
        else:
            self.failures += 1

    def wait_for(self, count: int, seconds_max: float = 120.0) -> None:
        """So many acknowledgements more."""
        wanted, deadline = len(self.acks_s) + count, time.monotonic() + seconds_max
        while len(self.acks_s) < wanted:
            if time.monotonic() > deadline:
                raise BenchError(f"no {count} acknowledgements within {seconds_max:g} s")
            time.sleep(SEND_EVERY_S)

    def longest_gap_s(self, since_s: float) -> float:
        """Between two acknowledgements that follow each other, the second one after `since_s`."""
        pairs = zip(self.acks_s, self.acks_s[1:], strict=False)
        return max((after - before for before, after in pairs if after >= since_s), default=0.0)
