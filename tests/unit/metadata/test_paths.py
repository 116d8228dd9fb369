"""Goal: nodes are where Kafka has them, and no name that a client chooses can leave its place.
Method: the paths themselves; awkward names there and back.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import paths


def test_kafkas_places() -> None:
    assert paths.broker_id(3) == "/brokers/ids/3"
    assert paths.topic("orders") == "/brokers/topics/orders"
    assert paths.partition_state("orders", 2) == "/brokers/topics/orders/partitions/2/state"
    assert paths.topic_configs("orders") == "/config/topics/orders"
    assert paths.broker_configs("3") == "/config/brokers/3"
    assert paths.broker_configs("") == "/config/brokers/<default>"
    assert paths.broker_epoch(3) == "/brokers/epochs/3"


@pytest.mark.parametrize("name", ["a/b", "../../controller", ".", "..", "a b", "ü", "%2F", "/"])
def test_awkward_names_stay_in_their_place(name: str) -> None:
    for path, folder in (
        (paths.group_configs(name), paths.GROUP_CONFIGS),
        (paths.client_metrics_configs(name), paths.CLIENT_METRICS_CONFIGS),
    ):
        last = path.removeprefix(folder)
        assert "/" not in last
        assert last not in ("", ".", "..")
        assert paths.entity_name(last) == name


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_every_name_comes_back(name: str) -> None:
    assert paths.entity_name(paths.entity(name)) == name
