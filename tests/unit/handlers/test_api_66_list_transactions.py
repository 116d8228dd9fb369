"""Goal: transactions are listed by state, producer, duration and pattern.
Method: a shard without a broker behind the handler; codes as Kafka 4.3.1 gave them.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.transaction_asks import InitAsked
from ottla.handlers import api_66_list_transactions as module
from tests.unit.handlers.read_fakes import FakeServices, ask, versions_of
from tests.unit.handlers.transaction_fakes import transactional_services

VERSIONS = versions_of(module)
ALL = {"idle", "open"}


@pytest.fixture
def services() -> FakeServices:
    services, world = transactional_services()
    world.init_producer_id(InitAsked("idle", 60_000)).result()
    world.init_producer_id(InitAsked("open", 60_000)).result()
    world.add_partitions("open", 1001, 0, [("t", 0)], 0).result()
    return services


def listed(services: FakeServices, version: int, **filters: Any) -> tuple[int, list[str], set[str]]:
    asked = {"state_filters": [], "producer_id_filters": [], **filters}
    answer = ask(module, services, version, **asked)
    names = {one["transactional_id"] for one in answer["transaction_states"]}
    return answer["error_code"], list(answer["unknown_state_filters"]), names


@pytest.mark.parametrize("version", VERSIONS)
def test_states_and_producers(services: FakeServices, version: int) -> None:
    assert listed(services, version) == (0, [], ALL)
    assert listed(services, version, state_filters=["Ongoing"]) == (0, [], {"open"})
    assert listed(services, version, state_filters=["Empty", "No"]) == (0, ["No"], {"idle"})
    # A filter that nothing can match must not be taken for no filter.
    assert listed(services, version, state_filters=["No"]) == (0, ["No"], set())
    assert listed(services, version, producer_id_filters=[1000, 5]) == (0, [], {"idle"})


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_durations(services: FakeServices, version: int) -> None:
    assert listed(services, version, duration_filter=-1) == (0, [], ALL)
    assert listed(services, version, duration_filter=0) == (0, [], set())
    world = services.transactions  # type: ignore[attr-defined]
    held = world.held("open")
    world.shard.transactions["open"] = held._replace(started_ms=held.started_ms - 10)
    assert listed(services, version, duration_filter=9) == (0, [], {"open"})
    assert listed(services, version, duration_filter=10) == (0, [], set())


def test_patterns(services: FakeServices) -> None:
    assert listed(services, 2, transactional_id_pattern=None) == (0, [], ALL)
    assert listed(services, 2, transactional_id_pattern="") == (0, [], ALL)
    assert listed(services, 2, transactional_id_pattern="ope") == (0, [], set())
    assert listed(services, 2, transactional_id_pattern="o.*") == (0, [], {"open"})
    assert listed(services, 2, transactional_id_pattern="(") == (128, [], set())


@pytest.mark.parametrize("version", VERSIONS)
def test_while_a_part_is_loading_nothing_is_listed(services: FakeServices, version: int) -> None:
    services.transactions.refusal = 14  # type: ignore[attr-defined]
    assert listed(services, version) == (14, [], set())
