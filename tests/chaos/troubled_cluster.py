"""What a chaos test asks of a cluster of three: faults, healing, and what lies on the disks."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.client import Admin
from tests.cluster.waiting import until
from tests.patience import HEAL_SECONDS_MAX

BROKERS = (1, 2, 3)
SESSION_MS = 6_000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "8000",
    # Small segments, so that faults hit rolls and recoveries too.
    "log.segment.bytes": "1048576",
    "log.retention.ms": "-1",
}


class TroubledCluster(ABC):
    def __init__(self) -> None:
        self.bootstrap = ""
        self.faults: list[str] = []

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    def misfortune(self, chance: random.Random) -> None:
        """One fault, for as long as it lasts; healed when this returns."""

    @abstractmethod
    def heal(self) -> None:
        """All brokers run, and nobody had ended by itself."""

    @abstractmethod
    def data_of(self, broker: int) -> Path:
        """Where its partitions are."""

    def until_in_sync(self, topics: list[str]) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:

            def whole() -> bool:
                found = {topic.name: topic.partitions for topic in admin.list_topics()}
                return all(
                    name in found and all(len(one.in_sync) == 3 for one in found[name])
                    for name in topics
                )

            until(whole, f"everybody in sync after {self.faults}", HEAL_SECONDS_MAX)

    def until_alike(self, topics: list[str]) -> None:
        def alike(topic: str) -> bool:
            return len({self._bytes_of(broker, topic) for broker in BROKERS}) == 1

        for topic in topics:
            told = f"{topic} is the same everywhere after {self.faults}"
            until(partial(alike, topic), told, HEAL_SECONDS_MAX)

    def _bytes_of(self, broker: int, topic: str) -> bytes:
        directory = self.data_of(broker) / f"{topic}-0"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
