"""Goal: a broker that waits for a controller heeds the order to stop, and hides nothing by it.
Method: a store in memory whose controller does nothing, and in it a topic that this broker led in
an earlier life.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ottla.broker.config_file import load_broker_config
from ottla.broker.node import Node
from ottla.broker.stores import OpenStore
from ottla.log import clean_shutdown
from ottla.metadata.memory_store import MemoryEnsemble, MemoryStore
from ottla.runtime.posix_files import PosixFiles
from ottla.testing.cluster import LoopPool
from tests.ports import free_port
from tests.unit.metadata.builders import Cluster


def a_store_without_duties() -> MemoryEnsemble:
    """Broker 1 is dead, and nobody has said so: it still leads."""
    cluster = Cluster(brokers=(2, 1))
    cluster.store.resign(1)
    cluster.store.campaign(2)
    cluster.reload()
    cluster.create_on("t", (1, 2))
    cluster.store.unregister(1)
    return cluster.store.ensemble


async def start(ensemble: MemoryEnsemble, data: Path, *, is_told_to_stop: bool) -> bool:
    peers, clients = free_port(), free_port()
    overrides = [
        "node.id=1",
        "ottla.metrics.listener=",
        f"listeners=PEERS://127.0.0.1:{peers},CLIENTS://127.0.0.1:{clients}",
        "listener.security.protocol.map=PEERS:PLAINTEXT,CLIENTS:PLAINTEXT",
        "inter.broker.listener.name=PEERS",
    ]
    config = load_broker_config(None, overrides, data_dir=str(data)).config
    loop: Any = asyncio.get_running_loop()
    opened = OpenStore(MemoryStore(ensemble), LoopPool(loop), is_cluster=True)
    node = Node(config, store=opened)
    stopping = asyncio.Event()
    if is_told_to_stop:
        stopping.set()
    has_started = await node.start(stopping)
    if has_started:
        await node.stop()
    return has_started


def test_it_ends_without_a_controller_and_not_as_a_clean_one(tmp_path: Path) -> None:
    ensemble = a_store_without_duties()
    assert not asyncio.run(start(ensemble, tmp_path, is_told_to_stop=True))
    assert not clean_shutdown.has_marker(PosixFiles(), str(tmp_path))
    assert not asyncio.run(start(ensemble, tmp_path, is_told_to_stop=True)), "all was let go"


def test_who_may_take_part_at_once_stops_as_ever(tmp_path: Path) -> None:
    cluster = Cluster(brokers=(2,))
    assert asyncio.run(start(cluster.store.ensemble, tmp_path, is_told_to_stop=False))
    assert clean_shutdown.has_marker(PosixFiles(), str(tmp_path))
