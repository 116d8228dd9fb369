"""One side of the comparison: a warm broker, what was prepared in it, and brokers beside it.

Owns their directories and their ends. Topics of a case are removed when it is over, and their pages
with them, so that writing back the data of one case does not slow down the next.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import KINDS, SHARED_SETTINGS, Broker
from bench.cluster import Cluster
from bench.page_cache import make_room
from bench.topics import create_replicated, create_topic, delete_topics

DELETE_SECONDS_MAX = 10
_POLL_S = 0.05


class Side:
    def __init__(self, label: str, kind: str, directory: Path) -> None:
        self.label = label
        self._kind = kind
        self._directory = directory
        self._numbers = itertools.count(1)
        self._beside: dict[str, Broker] = {}
        self._prepared: set[str] = set()
        self._cluster: Cluster | None = None
        self._prepared_in_cluster: set[str] = set()
        self.broker = self.new_broker("main")

    def new_broker(self, name: str, settings: Mapping[str, str] = SHARED_SETTINGS) -> Broker:
        """On a directory that nobody has used; not started yet."""
        return KINDS[self._kind](self._directory / f"{name}-{next(self._numbers)}", settings)

    def start(self) -> None:
        self.broker.start()

    def prepare_once(self, name: str, prepare: Callable[[Broker], None]) -> None:
        """What is prepared in the main broker stays for all rounds."""
        if name not in self._prepared:
            prepare(self.broker)
            self._prepared.add(name)

    def beside(
        self,
        name: str,
        prepare: Callable[[Broker], None],
        settings: Mapping[str, str] = SHARED_SETTINGS,
    ) -> Broker:
        """A second broker that is started and prepared once and stays for the rounds of a block."""
        if name not in self._beside:
            broker = self.new_broker(name, settings)
            try:
                broker.start()
                prepare(broker)
            except BaseException:
                self.discard(broker)  # also on Ctrl-C: nobody else knows of it yet
                raise
            self._beside[name] = broker
        return self._beside[name]

    def new_cluster(self, name: str) -> Cluster:
        """Three nodes on a directory that nobody has used; not started yet."""
        directory = self._directory / f"{name}-{next(self._numbers)}"
        return Cluster(self._kind, directory, SHARED_SETTINGS)

    def cluster(self, prepare: Callable[[Cluster], None]) -> Cluster:
        """Three nodes that are started and warmed once and stay for the rounds of a block."""
        if self._cluster is None:
            cluster = self.new_cluster("cluster")
            try:
                cluster.start()
                prepare(cluster)
            except BaseException:
                self.discard(cluster)
                raise
            self._cluster = cluster
            self._prepared_in_cluster.clear()
        return self._cluster

    def prepare_cluster_once(self, name: str, prepare: Callable[[Cluster], None]) -> None:
        """What is prepared in the warm cluster stays for as long as that does."""
        if self._cluster is not None and name not in self._prepared_in_cluster:
            prepare(self._cluster)
            self._prepared_in_cluster.add(name)

    @contextmanager
    def cluster_topic(
        self, cluster: Cluster, name: str, partitions: int = 1, room: int = 0
    ) -> Iterator[str]:
        """A topic with three replicas for one run of a case; `room` as in `topic`, for each."""
        fresh = f"{name}-{next(self._numbers)}"
        create_replicated(cluster.any_node, fresh, partitions, 3)
        try:
            make_room(self._directory, 3 * room)
            yield fresh
        finally:
            delete_topics(cluster.any_node, fresh)

    def close_beside(self) -> None:
        if self._cluster is not None:
            self.discard(self._cluster)
            self._cluster = None
        for broker in self._beside.values():
            self.discard(broker)
        self._beside.clear()

    def discard(self, broker: Broker | Cluster) -> None:
        broker.stop()
        shutil.rmtree(broker.directory, ignore_errors=True)

    def close(self) -> None:
        for broker in (*self._beside.values(), self.broker):
            broker.stop()
        if self._cluster is not None:
            self._cluster.stop()

    @contextmanager
    def topic(self, name: str, partitions: int = 1, room: int = 0) -> Iterator[str]:
        """A topic of its own for one run of a case, and `room` for so many bytes in memory."""
        fresh = f"{name}-{next(self._numbers)}"
        create_topic(self.broker.bootstrap, fresh, partitions)
        try:
            make_room(self._directory, room)
            yield fresh
        finally:
            # A broker that has ended in the meantime has nothing left to remove.
            self.broker.expect_alive()
            delete_topics(self.broker.bootstrap, fresh)
            _wait_until_gone(self.broker.data, fresh)


def _wait_until_gone(data: Path, topic: str) -> None:
    """Kafka renames first (`topic-0.ID-delete`) and removes in the background."""
    deadline = time.monotonic() + DELETE_SECONDS_MAX
    while any(data.glob(f"{topic}-*")) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
