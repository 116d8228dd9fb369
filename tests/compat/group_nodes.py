"""The broker that the group tests share: short time-outs, no wait before the first rebalance."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.compat import confluent
from tests.compat.nodes import Node, node_kind

GROUP_OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "offsets.retention.check.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture(scope="session")
def group_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = node_kind()(tmp_path_factory.mktemp("groups"), GROUP_OVERRIDES)
    node.start()
    yield node
    node.close()


@pytest.fixture(scope="session")
def groups_at(request: pytest.FixtureRequest) -> str:
    """Where groups may be tried: host and port."""
    given = os.environ.get("OTTLA_COMPAT_BOOTSTRAP")
    if given is not None:
        return given
    node: Node = request.getfixturevalue("group_node")
    return node.bootstrap


@pytest.fixture
def topic(groups_at: str) -> str:
    return confluent.create_topic(groups_at, partitions=4)
