"""Goal: whatever happens to brokers and to ZooKeeper, nothing that was acknowledged is lost,
changed, doubled or reordered, readers see one offset after the other, and every replica ends with
the same bytes.
Method: three brokers and three ZooKeeper servers as processes; each client library writes, two
read; one fault after the other, at random. Safety is judged by the whole history, progress only
after everything is healed.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

from ottla.client import Admin
from ottla.client.admin_values import NewTopic
from tests.chaos.cluster_checker import History, anomalies
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
from tests.cluster.waiting import until
from tests.patience import SECONDS_MAX
from tests.seeds import seed_for

SECONDS = float(os.environ.get("OTTLA_CLUSTER_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("OTTLA_CLUSTER_CHAOS_SEED", "0")) or seed_for("cluster chaos")
# A JVM more is for those who have the time: `make chaos`.
KINDS = (*PYTHON_KINDS, JAVA) if SECONDS > 60 else PYTHON_KINDS


def test_nothing_acknowledged_is_lost_whatever_happens(tmp_path: Path) -> None:
    history = History()
    chance = random.Random(SEED)
    with World(tmp_path) as world, contextlib.ExitStack() as stack:
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
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            world.misfortune(chance)
        world.heal()
        world.until_in_sync([topic_of(number) for number in range(len(KINDS))])
        told = f"seed {SEED}, after {world.faults}"
        until_all_write(writers, [writer.acked for writer in writers], told)
        for writer in writers:
            writer.finish()
        history.final = read_finally(world.bootstrap, len(KINDS))
        until(
            lambda: all(len(reader.reads) >= len(history.final) for reader in readers),
            f"all read everything, {told}",
        )
        for reader in readers:
            reader.stopping.set()
            reader.join(SECONDS_MAX)
            assert not reader.failed, f"{reader.failed}, {told}"
            history.reads += reader.reads
        assert anomalies(history)[:10] == [], told
        world.until_alike([topic_of(number) for number in range(len(KINDS))])


def create_topics(world: World) -> None:
    names = [topic_of(number) for number in range(len(KINDS))]
    with Admin(bootstrap_servers=world.bootstrap) as admin:
        outcomes = admin.create_topics([NewTopic(name, 1, 3) for name in names])
    assert not any(outcomes.values()), outcomes
    world.until_in_sync(names)


def until_all_write(writers: list[WriterProcess], before: list[int], told: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while any(one.acked <= count for one, count in zip(writers, before, strict=True)):
        silent = [
            one.last_words()
            for one, count in zip(writers, before, strict=True)
            if one.acked <= count
        ]
        assert time.monotonic() < deadline, f"no writes by {silent}, {told}"
        time.sleep(0.05)
