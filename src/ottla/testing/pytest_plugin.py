"""The pytest fixtures `ottla_broker` and `ottla_cluster`: fresh ones for each test that asks.

Settings come from a marker: `@pytest.mark.ottla(num_partitions=3)`; underscores stand for dots. For
a cluster `brokers=5` is how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ottla(**settings): settings of ottla_broker and ottla_cluster"
    )


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(_settings(request)) as broker:
        yield broker


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    settings = _settings(request)
    brokers = settings.pop("brokers", 3)
    with Cluster(int(str(brokers)), settings) as cluster:
        yield cluster


def _settings(request: pytest.FixtureRequest) -> dict[str, object]:
    settings: dict[str, object] = {}
    for marker in request.node.iter_markers("ottla"):
        settings.update({name.replace("_", "."): value for name, value in marker.kwargs.items()})
    return settings
