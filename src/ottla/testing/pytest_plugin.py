"""The pytest fixture `ottla_broker`: a fresh broker for each test that asks for one.

Settings come from a marker: `@pytest.mark.ottla(num_partitions=3)`; underscores stand for dots.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.broker import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ottla(**settings): settings of the ottla_broker fixture")


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    settings: dict[str, object] = {}
    for marker in request.node.iter_markers("ottla"):
        settings.update({name.replace("_", "."): value for name, value in marker.kwargs.items()})
    with Broker(settings) as broker:
        yield broker
