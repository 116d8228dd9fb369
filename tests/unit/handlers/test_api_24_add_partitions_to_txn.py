"""Goal: partitions are added to a transaction, or only verified, in every version.
Method: a shard without a broker behind the handler; codes as Kafka 4.3.1 gave them.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.transaction_asks import InitAsked
from ottla.handlers import api_24_add_partitions_to_txn as module
from tests.unit.coordinator.transaction_world import TransactionWorld
from tests.unit.handlers.read_fakes import FakeServices, a_topic, ask, versions_of
from tests.unit.handlers.transaction_fakes import transactional_services

VERSIONS = versions_of(module)
OLD_VERSIONS = range(4)
BATCHED = (4, 5)


@pytest.fixture
def services() -> FakeServices:
    services, world = transactional_services(a_topic("t"))
    world.init_producer_id(InitAsked("x", 60_000)).result()
    return services


def world_of(services: FakeServices) -> TransactionWorld:
    world: TransactionWorld = services.transactions  # type: ignore[attr-defined]
    return world


def add(
    services: FakeServices,
    version: int,
    partitions: list[int],
    *,
    topic: str = "t",
    verify: bool = False,
    **owner: Any,
) -> dict[int, int]:
    named = {"transactional_id": "x", "producer_id": 1000, "producer_epoch": 0, **owner}
    topics = [{"name": topic, "partitions": partitions}]
    if version >= 4:
        one = {**named, "verify_only": verify, "topics": topics}
        answer = ask(module, services, version, transactions=[one])
        assert answer["error_code"] == 0
        (result,) = answer["results_by_transaction"]
        assert result["transactional_id"] == named["transactional_id"]
        results = result["topic_results"]
    else:
        old = {f"v3_and_below_{name}": value for name, value in named.items()}
        answer = ask(module, services, version, **old, v3_and_below_topics=topics)
        results = answer["results_by_topic_v3_and_below"]
    assert [one["name"] for one in results] == [topic]
    return {
        one["partition_index"]: one["partition_error_code"]
        for one in results[0]["results_by_partition"]
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_added(services: FakeServices, version: int) -> None:
    assert add(services, version, [0, 1]) == {0: 0, 1: 0}
    held = world_of(services).held("x")
    assert held.partitions == {("t", 0), ("t", 1)}
    assert held.client_version == (2 if version >= 4 else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_added_where_brokers_have_a_listener_of_their_own(
    services: FakeServices, version: int
) -> None:
    services.inter_broker_listener = "REPLICATION"
    assert add(services, version, [0, 1]) == {0: 0, 1: 0}


@pytest.mark.parametrize("version", VERSIONS)
def test_all_or_none(services: FakeServices, version: int) -> None:
    assert add(services, version, [0, 7]) == {0: 55, 7: 3}
    assert add(services, version, [0], topic="nope") == {0: 3}
    assert world_of(services).state("x") == "Empty"


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_a_client_adds_no_internal_topic(version: int) -> None:
    services, world = transactional_services(a_topic("__consumer_offsets"))
    world.init_producer_id(InitAsked("x", 60_000)).result()
    assert add(services, version, [0, 99], topic="__consumer_offsets") == {0: 29, 99: 29}
    assert add(services, version, [0], topic="__transaction_state") == {0: 29}
    assert world.state("x") == "Empty"


@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_not(services: FakeServices, version: int) -> None:
    assert add(services, version, [0], producer_id=5) == {0: 49}
    assert add(services, version, [0], transactional_id="nobody") == {0: 49}
    assert add(services, version, [0], transactional_id="") == {0: 42}
    assert add(services, version, [0], producer_epoch=1) == {0: 90 if version >= 2 else 47}
    world_of(services).refusal = 16
    assert add(services, version, [0]) == {0: 16}


@pytest.mark.parametrize("version", BATCHED)
def test_verified_and_not_added(services: FakeServices, version: int) -> None:
    assert add(services, version, [0], verify=True) == {0: 120}
    assert add(services, version, [0], verify=True, transactional_id="") == {0: 42}
    assert add(services, version, [0]) == {0: 0}
    assert add(services, version, [0, 1], verify=True) == {0: 0, 1: 120}
    assert add(services, version, [0], verify=True, producer_epoch=9) == {0: 90}
    world_of(services).refusal = 14
    assert add(services, version, [0], verify=True) == {0: 14}


@pytest.mark.parametrize("version", BATCHED)
def test_many_transactions_in_one_request(services: FakeServices, version: int) -> None:
    world_of(services).init_producer_id(InitAsked("y", 60_000)).result()
    topics = [{"name": "t", "partitions": [0]}]
    asked = [
        {
            "transactional_id": name,
            "producer_id": producer_id,
            "producer_epoch": 0,
            "verify_only": False,
            "topics": topics,
        }
        for name, producer_id in (("x", 1000), ("y", 1001), ("z", 1))
    ]
    answer = ask(module, services, version, transactions=asked)
    codes = {
        one["transactional_id"]: one["topic_results"][0]["results_by_partition"][0][
            "partition_error_code"
        ]
        for one in answer["results_by_transaction"]
    }
    assert codes == {"x": 0, "y": 0, "z": 49}
