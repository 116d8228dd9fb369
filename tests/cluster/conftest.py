"""A real ZooKeeper for the tests of a cluster: one server for each worker, a chroot for each test.

`zookeeper` is that server with a chroot of the test's own; `ensemble` three servers that belong to
the test alone, for killing and pausing them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.runtime.zookeeper_server import ZooKeeperServers
from tests.cluster.zookeeper import ZooKeeper


@pytest.fixture(scope="session")
def zookeeper_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    servers = ZooKeeperServers(tmp_path_factory.mktemp("zookeeper"), durable=False)
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
def zookeeper(zookeeper_servers: ZooKeeperServers) -> Iterator[ZooKeeper]:
    one = ZooKeeper(zookeeper_servers, f"/{uuid.uuid4().hex}")
    yield one
    one.close()


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeper]:
    servers = ZooKeeperServers(tmp_path / "zookeeper", count=3, durable=False)
    servers.start()
    one = ZooKeeper(servers, "/ottla")
    yield one
    one.close()
    servers.stop()
