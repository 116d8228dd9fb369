"""Brokers for the compat tests.

`bootstrap` is the address of a broker that all tests share, each on topics of its own.
`make_node` gives a test brokers of its own, for restarts and for looking into their files.
OTTLA_COMPAT_NODE=kafka runs all of it against Apache Kafka; OTTLA_COMPAT_BOOTSTRAP=host:port takes
a broker that runs already as the shared one, and leaves out the tests that need their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.compat.java_host import JavaHost
from tests.compat.nodes import Node, ProcessNode, node_kind

MakeNode = Callable[..., Node]

# Housekeeping that a test wants to see must not take Kafka's usual minutes.
SHARED_OVERRIDES = {
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "OTTLA_COMPAT_BOOTSTRAP" not in os.environ:
        return
    own = [item for item in items if "make_node" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=own)
    items[:] = [item for item in items if item not in own]


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = node_kind()(tmp_path_factory.mktemp("shared"), SHARED_OVERRIDES)
    node.start()
    yield node
    node.close()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("OTTLA_COMPAT_BOOTSTRAP")
    if given is not None:
        return given
    node: Node = request.getfixturevalue("shared_node")
    return node.bootstrap


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHost]:
    host = JavaHost(tmp_path_factory.mktemp("java") / "jvm.log")
    yield host
    host.close()


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Starts a broker of the kind under test (or of `kind`) that ends with the test."""
    nodes: list[ProcessNode] = []

    def make(
        overrides: Mapping[str, str] | None = None, *, kind: type[ProcessNode] | None = None
    ) -> Node:
        node = (kind or node_kind())(tmp_path / f"node{len(nodes)}", overrides)
        nodes.append(node)
        node.start()
        return node

    yield make
    failures = []
    for node in nodes:
        try:
            node.close()
        except AssertionError as failure:
            failures.append(failure)
    assert failures == []
