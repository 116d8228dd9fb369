"""A real ZooKeeper for the tests of a cluster: one server for each worker, a chroot for each test.

`zookeeper` is that server with a chroot of the test's own; `ensemble` three servers that belong to
the test alone, for killing and pausing them. `clusters` makes clusters: inside this process, or,
with OTTLA_CLUSTER_PROCESSES set as in `make chaos`, processes on an ensemble of three.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.runtime.zookeeper_server import ZooKeeperServers
from ottla.testing import Cluster
from tests.cluster.processes import Clusters, of_processes
from tests.cluster.zookeeper import ZooKeeper
from tests.patience import SESSION_MS


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


@pytest.fixture(scope="session")
def lasting_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    """Nobody kills or pauses these."""
    servers = ZooKeeperServers(tmp_path_factory.mktemp("ensemble"), count=3, durable=False)
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
def lasting_sessions() -> dict[str, object]:
    """Settings of a cluster in which nobody who is paused is taken for dead, or found to lag, while
    a test looks at the others: in-sync sets stay as they are, however slow the machine is."""
    return {
        "zookeeper.session.timeout.ms": SESSION_MS,
        "replica.lag.time.max.ms": 2 * SESSION_MS,
    }


@pytest.fixture
def clusters(request: pytest.FixtureRequest, tmp_path: Path) -> Clusters:
    if not os.environ.get("OTTLA_CLUSTER_PROCESSES"):
        return Cluster
    servers: ZooKeeperServers = request.getfixturevalue("lasting_ensemble")
    return of_processes(tmp_path, servers.connect)
