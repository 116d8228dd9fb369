"""Goal: the end of a transaction in every version, and from v5 on the epoch to go on with.
Method: a shard without a broker behind the handler; codes as Kafka 4.3.1 gave them.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.transaction_asks import InitAsked
from ottla.handlers import api_26_end_txn as module
from tests.unit.handlers.read_fakes import FakeServices, ask, versions_of
from tests.unit.handlers.transaction_fakes import transactional_services

VERSIONS = versions_of(module)


def an_open_transaction(client_version: int) -> FakeServices:
    services, world = transactional_services()
    world.init_producer_id(InitAsked("x", 60_000)).result()
    assert world.add_partitions("x", 1000, 0, [("t", 0)], client_version).result() == 0
    return services


def end(services: FakeServices, version: int, **changed: Any) -> tuple[int, int, int]:
    asked = {
        "transactional_id": "x",
        "producer_id": 1000,
        "producer_epoch": 0,
        "committed": True,
        **changed,
    }
    answer = ask(module, services, version, **asked)
    return answer["error_code"], answer["producer_id"], answer["producer_epoch"]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_ended(version: int, committed: bool) -> None:
    services = an_open_transaction(2 if version >= 5 else 0)
    told = end(services, version, committed=committed)
    assert told == ((0, 1000, 1) if version >= 5 else (0, -1, -1))
    world = services.transactions  # type: ignore[attr-defined]
    assert world.markers == [("t", 0, 1000, 1 if version >= 5 else 0, committed)]


@pytest.mark.parametrize("version", VERSIONS)
def test_refused(version: int) -> None:
    services = an_open_transaction(0)
    fenced = 90 if version >= 2 else 47
    assert end(services, version, transactional_id="") == (42, -1, -1)
    assert end(services, version, transactional_id="nobody") == (49, -1, -1)
    assert end(services, version, producer_id=5) == (49, -1, -1)
    assert end(services, version, producer_epoch=1) == (fenced, -1, -1)
    services.transactions.refusal = 16  # type: ignore[attr-defined]
    assert end(services, version) == (16, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_id_that_is_not_used_again_is_forgotten_if_the_version_has_tags(version: int) -> None:
    services = an_open_transaction(2 if version >= 5 else 0)
    assert end(services, version, forget_transactional_id=True)[0] == 0
    world = services.transactions  # type: ignore[attr-defined]
    assert ("x" in world.shard.transactions) == (version < 3)
