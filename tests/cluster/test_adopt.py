"""From one node to a cluster: `ottla cluster adopt`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla.broker.adopt import adopt
from ottla.metadata import paths
from ottla.metadata.store import ABSENT, StoreRefused, Write
from ottla.runtime import embedded_store
from ottla.runtime.embedded_store import EmbeddedStore
from tests.cluster.zookeeper import ZooKeeper
from tests.compat.nodes import OTTLA, OttlaNode

SECONDS_MAX = 120
CLUSTER_ID = b'{"version":"1","id":"9B0Gb9fHTdyps9xXL8uT-Q"}'


def single_node(directory: Path, *, topics: int = 1) -> dict[str, bytes]:
    """The metadata of a node that was stopped, and what of it must move."""
    directory.mkdir(exist_ok=True)
    store = EmbeddedStore(str(directory))
    kept = {paths.CLUSTER_ID: CLUSTER_ID, paths.broker_epoch(0): b"{}", "/controller_epoch": b"3"}
    for number in range(topics):
        kept[paths.topic(f"t{number}")] = b"x" * 1_000
        kept[paths.partition_state(f"t{number}", 0)] = b"y" * 1_000
    store.commit([Write(path, content, ABSENT) for path, content in kept.items()])
    store.commit([Write(paths.CONTROLLER, b"{}", ABSENT), Write(paths.broker_id(0), b"{}", ABSENT)])
    store.close()
    return kept


def contents(zookeeper: ZooKeeper) -> dict[str, bytes]:
    return {path: node.content for path, node in zookeeper.store().load().nodes.items()}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    one = OttlaNode(tmp_path)
    yield one
    if one.process is not None:
        one.kill()


def test_records_and_topics_are_there_in_the_cluster(zookeeper: ZooKeeper, node: OttlaNode) -> None:
    node.start()
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce("orders", b"3 cups")
    assert producer.flush(SECONDS_MAX) == 0
    command = [str(OTTLA), "cluster", "adopt", "--data", str(node.data), "--zookeeper"]
    refused = subprocess.run(
        [*command, zookeeper.connect], check=False, capture_output=True, timeout=SECONDS_MAX
    )
    assert (refused.returncode, b"in use by another broker" in refused.stderr) == (1, True)
    node.stop()

    done = subprocess.run(
        [*command, zookeeper.connect], check=True, capture_output=True, timeout=SECONDS_MAX
    )
    assert b"adopted 1 topic of cluster" in done.stdout
    assert f"node.id=0 --override zookeeper.connect={zookeeper.connect}".encode() in done.stdout

    node.overrides = {
        "node.id": "0",
        "zookeeper.connect": zookeeper.connect,
        "offsets.topic.replication.factor": "1",  # there is no other broker yet
    }
    node.start()
    reader = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe(["orders"])
    record = reader.poll(SECONDS_MAX)
    assert record is not None
    assert record.value() == b"3 cups"
    reader.close()
    node.stop()

    node.overrides = {}
    with pytest.raises(AssertionError, match="ottla cluster adopt"):
        node.start()
    assert node.process is not None
    node.process.wait()
    node.process = None


def test_everything_moves_but_who_is_alive(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    kept = single_node(tmp_path, topics=300)  # more than one commit takes
    adoption = adopt(str(tmp_path), zookeeper.settings())
    assert (adoption.broker_id, adoption.topic_count) == (0, 300)
    assert contents(zookeeper) == kept
    with pytest.raises(StoreRefused, match="already"):
        adopt(str(tmp_path), zookeeper.settings())


def test_an_interrupted_adoption_can_be_done_again(
    zookeeper: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = single_node(tmp_path)
    partly = zookeeper.store()
    for path in (paths.topic("t0"), paths.partition_state("t0", 0)):
        partly.commit([Write(path, kept[path], ABSENT)])
    adopt(str(tmp_path), zookeeper.settings())
    # All was written, but the file still has its old name.
    (tmp_path / embedded_store.ADOPTED_FILE_NAME).rename(tmp_path / embedded_store.FILE_NAME)
    adopt(str(tmp_path), zookeeper.settings())
    assert contents(zookeeper) == kept


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        (paths.topic("other"), b"x", "not empty: it has /brokers/topics/other"),
        (paths.topic("t0"), b"changed", "not empty: it has /brokers/topics/t0"),
        (paths.CLUSTER_ID, b'{"version":"1","id":"another"}', "belongs to cluster another"),
        (paths.broker_id(7), b"{}", "not empty: it has /brokers/ids/7"),
    ],
)
def test_a_store_that_is_not_empty_is_refused(
    zookeeper: ZooKeeper, tmp_path: Path, path: str, content: bytes, reason: str
) -> None:
    single_node(tmp_path)
    store = zookeeper.store()
    store.commit([Write(path, content, ABSENT)])
    with pytest.raises(StoreRefused, match=reason):
        adopt(str(tmp_path), zookeeper.settings())
    assert contents(zookeeper) == {path: content}
    assert (tmp_path / embedded_store.FILE_NAME).exists()


def test_nothing_to_adopt(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="there is no single node"):
        adopt(str(tmp_path), zookeeper.settings())
    EmbeddedStore(str(tmp_path)).close()
    with pytest.raises(StoreRefused, match="never been started"):
        adopt(str(tmp_path), zookeeper.settings())
