"""Goal: whatever happens to brokers, to ZooKeeper, to the network between them and to their disks,
nothing that was acknowledged is lost, changed, doubled or reordered, readers see one offset after
the other, and every replica ends with the same bytes.
Method: three brokers as processes, once with an ensemble of ZooKeeper, where processes are killed,
stopped and paused, once with a network that is divided and disks that are slow or full, and, at
full length and where they can be made, on three machines that are cut off, as is each server of
ZooKeeper from the others; each client library writes, two read; one fault after the other, at
random. Safety is judged by the whole history, progress only after everything is healed.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.client import Admin
from ottla.client.admin_values import NewTopic
from tests.chaos import machines
from tests.chaos.cluster_checker import History, Read, anomalies
from tests.chaos.cluster_load import (
    JAVA,
    PYTHON_KINDS,
    ConfluentReader,
    OttlaReader,
    Reader,
    WriterProcess,
    read_finally,
    topic_of,
)
from tests.chaos.cluster_world import World
from tests.chaos.divided_world import DividedWorld
from tests.chaos.machines_world import MachinesWorld
from tests.chaos.troubled_cluster import TroubledCluster
from tests.patience import HEAL_SECONDS_MAX
from tests.seeds import seed_for

SECONDS = float(os.environ.get("OTTLA_CLUSTER_CHAOS_SECONDS", "60"))
"""For all worlds together."""
SEED = int(os.environ.get("OTTLA_CLUSTER_CHAOS_SEED", "0")) or seed_for("cluster chaos")
# A JVM more is for those who have the time: `make chaos`.
IS_LONG = SECONDS > 60
KINDS = (*PYTHON_KINDS, JAVA) if IS_LONG else PYTHON_KINDS
PERSISTENT = ("confluent", "ottla")
"""They try for five minutes, longer than any fault lasts: no error may be one for good. aiokafka
tries for two, and Java's tool is ended in the middle of what it does."""
WORLDS: list[Callable[[Path], TroubledCluster]] = [World, DividedWorld]
if IS_LONG and machines.possible():
    WORLDS.append(MachinesWorld)


@pytest.mark.xdist_group("cluster chaos")
@pytest.mark.parametrize("kind_of_world", WORLDS)
def test_nothing_acknowledged_is_lost_whatever_happens(
    tmp_path: Path, kind_of_world: Callable[[Path], TroubledCluster]
) -> None:
    history = History()
    chance = random.Random(SEED)
    with kind_of_world(tmp_path) as world, contextlib.ExitStack() as stack:
        create_topics(world)
        writers = []
        for number, kind in enumerate(KINDS):
            writer = WriterProcess(kind, number, world.bootstrap, history.acks.append, tmp_path)
            stack.callback(writer.close)
            writers.append(writer)
        readers: list[Reader] = [
            ConfluentReader("confluent", world.bootstrap, len(KINDS)),
            OttlaReader("ottla", world.bootstrap, len(KINDS)),
        ]
        for reader in readers:
            reader.start()
            stack.callback(reader.stopping.set)
        until_all_write(writers, [0] * len(writers), "at first")
        deadline = time.monotonic() + SECONDS / len(WORLDS)
        while time.monotonic() < deadline:
            world.misfortune(chance)
        world.heal()
        world.until_in_sync([topic_of(number) for number in range(len(KINDS))])
        told = f"seed {SEED}, after {world.faults}"
        until_all_write(writers, [writer.acked for writer in writers], told)
        for writer in writers:
            writer.finish()
            if writer.kind in PERSISTENT:
                assert writer.gave_up == [], f"{writer.kind}, {told}"
        history.final = read_finally(world.bootstrap, len(KINDS))
        until_all_read(readers, history.final, told)
        for reader in readers:
            reader.stopping.set()
            reader.join(HEAL_SECONDS_MAX)
            assert not reader.failed, f"{reader.failed}, {told}"
            history.reads += reader.reads
        assert anomalies(history)[:10] == [], told
        world.until_alike([topic_of(number) for number in range(len(KINDS))])


def until_all_read(readers: list[Reader], final: list[Read], told: str) -> None:
    wanted = Counter(read.partition for read in final)

    def said(reader: Reader) -> str:
        found = Counter(read.partition for read in list(reader.reads))
        missing = {place: (found[place], count) for place, count in wanted.items()}
        return f"{reader.name} {reader.is_alive()} {reader.failed} {missing}"

    deadline = time.monotonic() + HEAL_SECONDS_MAX
    while any(len(reader.reads) < len(final) for reader in readers):
        assert time.monotonic() < deadline, f"{[said(reader) for reader in readers]}, {told}"
        assert not any(reader.failed for reader in readers), (
            f"{[said(reader) for reader in readers]}, {told}"
        )
        time.sleep(0.05)


def create_topics(world: TroubledCluster) -> None:
    """The first waits for its disk with every record: that is where a slow one is felt."""
    names = [topic_of(number) for number in range(len(KINDS))]
    topics = [NewTopic(name, 1, 3) for name in names]
    topics[0] = topics[0]._replace(configs={"flush.messages": "1"})
    with Admin(bootstrap_servers=world.bootstrap) as admin:
        outcomes = admin.create_topics(topics)
    assert not any(outcomes.values()), outcomes
    world.until_in_sync(names)


def until_all_write(writers: list[WriterProcess], before: list[int], told: str) -> None:
    deadline = time.monotonic() + HEAL_SECONDS_MAX
    while any(one.acked <= count for one, count in zip(writers, before, strict=True)):
        silent = [
            one.last_words()
            for one, count in zip(writers, before, strict=True)
            if one.acked <= count
        ]
        assert time.monotonic() < deadline, f"no writes by {silent}, {told}"
        time.sleep(0.05)
