"""Goal: whatever happens to brokers and writers, a transaction is there as a whole or not at all:
no aborted read, no torn transaction, no lost commit, nothing left open after healing.
Method: writers of several libraries, with transactions over all partitions; two readers of what is
committed; one fault after the other, at random, and writers killed in between. Judged by the whole
history, progress only after everything is healed. In `make test` over three brokers in this
process; more than 20 of OTTLA_TRANSACTION_CHAOS_ROUNDS are for three broker processes and a
ZooKeeper ensemble.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from ottla.client import Admin
from ottla.testing import Cluster
from tests.chaos.cluster_world import World
from tests.chaos.nothing_open import until_nothing_is_open
from tests.chaos.transaction_history import TransactionHistory, anomalies
from tests.chaos.transaction_load import (
    ConfluentReader,
    OttlaReader,
    Reader,
    TransactionWriter,
    read_finally,
)
from tests.chaos.transaction_writers import KINDS
from tests.compat.nodes import wait_until
from tests.seeds import seed_for

ROUNDS = int(os.environ.get("OTTLA_TRANSACTION_CHAOS_ROUNDS", "5"))
IS_LONG = ROUNDS > 20
SEED = int(os.environ.get("OTTLA_TRANSACTION_CHAOS_SEED", "0")) or seed_for("transaction chaos")
# One whose epoch stays and one with an epoch for each transaction; the others take more time.
WRITERS = tuple(KINDS) if IS_LONG else ("confluent", "ottla")
TOPIC = "chaos-transactions"
PARTITIONS = 3
PARTS = 6
SECONDS_MAX = 240
WRITER_KILLED = 0.4
SETTINGS = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


class Surroundings(Protocol):
    faults: list[str]

    @property
    def bootstrap(self) -> str: ...
    def misfortune(self, chance: random.Random) -> None: ...
    def heal(self) -> None: ...


class SmallWorld:
    """Three brokers in this process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.faults: list[str] = []

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def misfortune(self, chance: random.Random) -> None:
        cluster, seconds = self._cluster, chance.uniform(0, 1.5)
        one, other = chance.sample(cluster.broker_ids, 2)
        faults: dict[str, tuple[Callable[[], None], Callable[[], object]]] = {
            f"kill {one}": (lambda: cluster.kill(one), lambda: cluster.start(one)),
            f"stop {one}": (lambda: cluster.stop(one), lambda: cluster.start(one)),
            f"pause {one}": (lambda: cluster.pause(one), lambda: cluster.resume(one)),
            f"cut {one} and {other}": (lambda: cluster.cut(one, other), cluster.heal),
            "kill everybody": (self._kill_everybody, cluster.start),
        }
        what = chance.choice(sorted(faults))
        self.faults.append(what)
        begin, end = faults[what]
        begin()
        time.sleep(seconds)
        end()

    def _kill_everybody(self) -> None:
        for broker_id in self._cluster.broker_ids:
            self._cluster.kill(broker_id)

    def heal(self) -> None:
        self._cluster.heal()


@contextlib.contextmanager
def surroundings(directory: Path) -> Iterator[Surroundings]:
    if IS_LONG:
        with World(directory) as world:
            yield world
    else:
        with Cluster(3, SETTINGS) as cluster:
            yield SmallWorld(cluster)


def test_a_transaction_is_whole_or_nothing_whatever_happens(tmp_path: Path) -> None:
    history, chance = TransactionHistory(PARTS), random.Random(SEED)
    with surroundings(tmp_path) as world, contextlib.ExitStack() as stack:
        place = (world.bootstrap, TOPIC, PARTITIONS)
        with Admin(bootstrap_servers=world.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        writers = [TransactionWriter(kind, place, history, tmp_path) for kind in WRITERS]
        for writer in writers:
            stack.callback(writer.kill)
        readers: list[Reader] = [ConfluentReader("confluent", place), OttlaReader("ottla", place)]
        for reader in readers:
            reader.start()
            stack.callback(reader.stopping.set)
        until_all_write(writers, "at first")
        for _ in range(ROUNDS):
            world.misfortune(chance)
            if chance.random() < WRITER_KILLED:
                chance.choice(writers).kill()
            for writer in writers:
                writer.keep_going()
        world.heal()
        told = f"seed {SEED}, after {world.faults}"
        until_all_write(writers, told)
        until_some_end_either_way(writers, history, told)
        for writer in writers:
            writer.finish()
        places = [(TOPIC, index) for index in range(PARTITIONS)]
        until_nothing_is_open(world.bootstrap, places, SECONDS_MAX)
        history.final = read_finally(place)
        for reader in readers:
            finish(reader, len(history.final), told)
            history.reads[reader.name] = reader.reads
    assert anomalies(history)[:10] == [], told


def until_all_write(writers: list[TransactionWriter], told: str) -> None:
    """Each has committed or aborted something more."""
    before = {writer.kind: writer.over for writer in writers}
    silent = list(writers)

    def all_do() -> bool:
        for writer in writers:
            writer.keep_going()
        silent[:] = [writer for writer in writers if writer.over <= before[writer.kind]]
        return not silent

    try:
        wait_until(all_do, SECONDS_MAX, told)
    except AssertionError:
        raise AssertionError(f"{told}: {[one.last_words() for one in silent]}") from None


def until_some_end_either_way(
    writers: list[TransactionWriter], history: TransactionHistory, told: str
) -> None:
    """Without a transaction of each kind nothing is proven; a slow machine comes to few of them."""

    def there_are() -> bool:
        for writer in writers:
            writer.keep_going()
        return bool(history.aborted and history.committed)

    wait_until(there_are, SECONDS_MAX, f"some are committed and some aborted, {told}")


def finish(reader: Reader, count: int, told: str) -> None:
    wait_until(
        lambda: len(reader.reads) >= count or not reader.is_alive(),
        SECONDS_MAX,
        f"{reader.name} reads {count}, {told}",
    )
    reader.stopping.set()
    reader.join(SECONDS_MAX)
    assert not reader.failed, f"{reader.failed}, {told}"
    assert len(reader.reads) >= count, f"{reader.name} ended early, {told}"
