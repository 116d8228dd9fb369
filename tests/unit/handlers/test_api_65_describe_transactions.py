"""Goal: a transaction is described as it stands; unknown ids are told apart from absent ones.
Method: a shard without a broker behind the handler; codes as Kafka 4.3.1 gave them.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.transaction_asks import InitAsked
from ottla.handlers import answer_budget
from ottla.handlers import api_65_describe_transactions as module
from ottla.handlers.reply import CloseConnection
from tests.unit.handlers.read_fakes import FakeServices, ask
from tests.unit.handlers.transaction_fakes import transactional_services


def describe(services: FakeServices, *names: str) -> list[dict[str, Any]]:
    answer = ask(module, services, 0, transactional_ids=list(names))
    return list(answer["transaction_states"])


def test_described() -> None:
    services, world = transactional_services()
    world.init_producer_id(InitAsked("x", 60_000)).result()
    (empty,) = describe(services, "x")
    assert (empty["transaction_state"], empty["transaction_start_time_ms"]) == ("Empty", -1)
    world.add_partitions("x", 1000, 0, [("t", 1), ("s", 0), ("t", 0)], 0).result()
    assert describe(services, "x") == [
        {
            "error_code": 0,
            "transactional_id": "x",
            "transaction_state": "Ongoing",
            "transaction_timeout_ms": 60_000,
            "transaction_start_time_ms": world.clock.wall_ms(),
            "producer_id": 1000,
            "producer_epoch": 0,
            "topics": [
                {"topic": "s", "partitions": [0]},
                {"topic": "t", "partitions": [0, 1]},
            ],
        }
    ]


def test_not_to_be_had() -> None:
    services, world = transactional_services()
    codes = [one["error_code"] for one in describe(services, "nobody", "")]
    assert codes == [105, 42]
    world.refusal = 16
    assert [one["error_code"] for one in describe(services, "x")] == [16]
    assert describe(services) == []


def test_one_that_is_named_again_is_told_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_budget, "RESPONSE_ENTRIES_MAX", 1_000)
    services, world = transactional_services()
    world.init_producer_id(InitAsked("x", 60_000)).result()
    world.add_partitions("x", 1000, 0, [("t", 1), ("s", 0), ("t", 0)], 0).result()
    told = describe(services, "x", "nobody", "x")
    assert [one["transactional_id"] for one in told] == ["x", "nobody", "x"]
    assert told[0] == told[2]
    with pytest.raises(CloseConnection, match="more than 1,000 entries"):
        describe(services, *["x"] * 200)
