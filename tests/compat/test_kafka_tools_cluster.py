"""Goal: Kafka's own tools move partitions, elect leaders and forget brokers of a cluster of ours.
Method: four brokers in this process, each tool run as its shell script would run it, in one JVM.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster
from tests.compat.java_host import JavaHost

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]


class Tools:
    def __init__(self, java: JavaHost, cluster: Cluster) -> None:
        self._java = java
        self.cluster = cluster

    def run(self, main_class: str, *arguments: str) -> str:
        where = ("--bootstrap-server", self.cluster.bootstrap)
        done = self._java.tool(main_class, *arguments, *where)
        assert done.status == 0, done
        return done.output

    def create(self, name: str, assignment: str) -> None:
        made = self.run(
            "TopicCommand", "--create", "--topic", name, "--replica-assignment", assignment
        )
        assert f"Created topic {name}." in made


@pytest.fixture
def tools(java: JavaHost) -> Iterator[Tools]:
    with Cluster(4) as cluster:
        yield Tools(java, cluster)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.05)


def test_a_partition_moves_to_another_broker(tools: Tools, tmp_path: Path) -> None:
    tools.create("t", "1:2:3")
    plan = tmp_path / "plan.json"
    wanted = [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    command = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
    assert "Successfully started" in tools.run(*command, "--execute")
    until(lambda: "is completed" in tools.run(*command, "--verify"))
    described = tools.run("TopicCommand", "--describe", "--topic", "t")
    assert "Replicas: 4,2,3" in described
    assert tools.cluster.in_sync("t") == {2, 3, 4}
    assert "No partition reassignments found" in tools.run(
        "reassign.ReassignPartitionsCommand", "--list"
    )


def test_the_preferred_leader_is_elected_again(tools: Tools) -> None:
    tools.create("t", "1:2:3")
    tools.cluster.stop(1)
    assert tools.cluster.leader("t") == 2
    tools.cluster.start(1)
    until(lambda: tools.cluster.in_sync("t") == {1, 2, 3})
    assert tools.cluster.leader("t") == 2
    elected = tools.run(
        "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions"
    )
    assert "Successfully completed leader election (PREFERRED)" in elected
    assert tools.cluster.leader("t") == 1


def test_a_leader_at_any_price(tools: Tools) -> None:
    """Rows 16 and 17 of the features: it waits, until somebody decides otherwise."""
    tools.run(
        "TopicCommand",
        *("--create", "--topic", "t", "--replica-assignment", "1:2"),
        *("--config", "min.insync.replicas=1"),
    )
    tools.cluster.kill(2)
    until(lambda: tools.cluster.in_sync("t") == {1})
    tools.cluster.kill(1)
    tools.cluster.start(2)
    until(lambda: tools.cluster.leader("t") == -1)
    elected = tools.run(
        "LeaderElectionCommand",
        *("--election-type", "unclean", "--topic", "t", "--partition", "0"),
    )
    assert "Successfully completed leader election (UNCLEAN)" in elected
    assert tools.cluster.leader("t") == 2


def test_a_dead_broker_is_forgotten(tools: Tools) -> None:
    assert "127.0.0.1" in tools.run("ClusterTool", "list-endpoints")
    tools.cluster.stop(4)
    forgotten = tools.run("ClusterTool", "unregister", "--id", "4")
    assert "Broker 4 is no longer registered." in forgotten
    tools.cluster.start(4)
    tools.create("t", "4:1")
    assert tools.cluster.leader("t") == 4
