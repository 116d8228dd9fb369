"""Goal: offsets of a group join a transaction by the partition that holds the group.
Method: a shard without a broker behind the handler; codes as Kafka 4.3.1 gave them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.transaction_asks import InitAsked
from ottla.handlers import api_25_add_offsets_to_txn as module
from tests.unit.handlers.read_fakes import ask, versions_of
from tests.unit.handlers.transaction_fakes import transactional_services

VERSIONS = versions_of(module)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_partition_of_the_group_is_added(version: int) -> None:
    services, world = transactional_services()
    services.groups = SimpleNamespace(partition_of=len)  # type: ignore[attr-defined]
    world.init_producer_id(InitAsked("x", 60_000)).result()

    def add(**changed: Any) -> int:
        asked = {"transactional_id": "x", "producer_id": 1000, "producer_epoch": 0, **changed}
        return int(ask(module, services, version, group_id="four", **asked)["error_code"])

    assert add(transactional_id="") == 42
    assert add(transactional_id="nobody") == 49
    assert add(producer_id=1) == 49
    assert add(producer_epoch=1) == (90 if version >= 2 else 47)
    assert world.state("x") == "Empty"
    assert add() == 0
    assert world.held("x").partitions == {("__consumer_offsets", 4)}
    world.refusal = 15
    assert add() == 15
