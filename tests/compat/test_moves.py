"""Goal: Kafka's tools send a replica to another disk of its broker, and see it arrive.
Method: a broker with two log dirs; kafka-reassign-partitions with a throttle, so that it can be
seen on its way, and kafka-log-dirs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.java_host import JavaHost
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]

VALUES = [b"%d:" % number + bytes(1_000) for number in range(3_000)]


class Operator:
    """Runs the tools on one broker."""

    def __init__(self, java: JavaHost, bootstrap: str, directory: Path) -> None:
        self._java = java
        self._bootstrap = bootstrap
        self._plan = directory / "plan.json"
        metadata = confluent.admin_client(bootstrap).list_topics(timeout=SECONDS_MAX)
        (self.broker_id,) = metadata.brokers

    def _tool(self, main_class: str, *arguments: str) -> str:
        done = self._java.tool(main_class, "--bootstrap-server", self._bootstrap, *arguments)
        assert done.status == 0, done
        return done.output

    def reassign(self, *arguments: str) -> str:
        tool = "reassign.ReassignPartitionsCommand"
        return self._tool(tool, "--reassignment-json-file", str(self._plan), *arguments)

    def plan(self, topic: str, log_dir: str) -> None:
        wanted = {
            "topic": topic,
            "partition": 0,
            "replicas": [self.broker_id],
            "log_dirs": [log_dir],
        }
        self._plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))

    def places(self, topic: str) -> dict[str, dict[str, Any]]:
        text = self._tool("LogDirsCommand", "--describe", "--topic-list", topic)
        (broker,) = json.loads(text.strip().splitlines()[-1])["brokers"]
        return {one["logDir"]: part for one in broker["logDirs"] for part in one["partitions"]}


def test_a_replica_is_sent_to_another_disk(
    java: JavaHost, make_node: MakeNode, tmp_path: Path
) -> None:
    dirs = [str(tmp_path / "one"), str(tmp_path / "two")]
    node = make_node({"log.dirs": ",".join(dirs), "log.segment.bytes": str(1 << 20)})
    topic = confluent.create_topic(node.bootstrap)
    confluent.send_values(node.bootstrap, topic, VALUES)
    operator = Operator(java, node.bootstrap, tmp_path)
    (here,) = operator.places(topic)
    (there,) = (path for path in dirs if path != here)
    operator.plan(topic, there)
    slowly = ("--replica-alter-log-dirs-throttle", "100000")
    assert f"Successfully started moving log directory to {there}" in operator.reassign(
        "--execute", *slowly
    )
    on_its_way = operator.places(topic)
    assert on_its_way[here]["isFuture"] is False
    assert on_its_way[here]["size"] > len(VALUES) * 1_000
    assert on_its_way[there]["isFuture"] is True
    assert on_its_way[there]["size"] < on_its_way[here]["size"]
    assert 0 < on_its_way[there]["offsetLag"] <= len(VALUES)
    still = operator.reassign("--verify", "--preserve-throttles")
    assert f"replica {topic}-0-{operator.broker_id} is still in progress" in still
    quickly = ("--replica-alter-log-dirs-throttle", "100000000")
    operator.reassign("--execute", "--additional", *quickly)
    wait_until(lambda: list(operator.places(topic)) == [there], SECONDS_MAX, "it is there")
    arrived = operator.places(topic)[there]
    assert (arrived["isFuture"], arrived["offsetLag"]) == (False, 0)
    done = operator.reassign("--verify")
    assert f"replica {topic}-0-{operator.broker_id} completed successfully" in done
    assert confluent.read_values(node.bootstrap, topic) == VALUES
