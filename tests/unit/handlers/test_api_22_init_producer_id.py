"""Goal: idempotent producers get an id each; what can not be served is refused as Kafka does.
Method: what Kafka 4.3.1 answered to the same fields, in every version.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import InvariantError, ProtocolError
from ottla.handlers import api_22_init_producer_id as module
from ottla.handlers.context import Context, Services
from tests.unit.handlers.read_fakes import FakeServices, an_image, ask, versions_of
from tests.unit.handlers.transaction_fakes import transactional_services

VERSIONS = versions_of(module)


def init(services: FakeServices, version: int, **fields: Any) -> tuple[int, int, int]:
    asked: dict[str, Any] = {
        "transactional_id": None,
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
        **fields,
    }
    answer = ask(module, services, version, **asked)
    assert answer["throttle_time_ms"] == 0
    return answer["error_code"], answer["producer_id"], answer["producer_epoch"]


def a_service(*producer_ids: int | ProtocolError) -> FakeServices:
    services = FakeServices(an_image())
    services.producer_ids = list(producer_ids)
    return services


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fresh_id_with_epoch_zero(version: int) -> None:
    services = a_service(7, 8, 9)
    assert init(services, version) == (0, 7, 0)
    assert init(services, version, transaction_timeout_ms=-1) == (0, 8, 0)
    # An idempotent producer that names its old id gets another one, too.
    assert init(services, version, producer_id=5, producer_epoch=3) == (0, 9, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_id_without_its_epoch_is_refused_where_it_can_be_told(version: int) -> None:
    for producer_id, producer_epoch in ((5, -1), (-1, 0), (-2, -1)):
        told = init(a_service(1), version, producer_id=producer_id, producer_epoch=producer_epoch)
        assert told == ((42, -1, -1) if version >= 3 else (0, 1, 0))


@pytest.mark.parametrize("version", VERSIONS)
def test_transactional_ids_that_are_refused(version: int) -> None:
    services = a_service()
    assert init(services, version, transactional_id="") == (42, -1, -1)
    for timeout_ms in (0, -1, 900_001):
        told = init(services, version, transactional_id="x", transaction_timeout_ms=timeout_ms)
        assert told == (50, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_start_of_a_transactional_id_has_the_next_epoch(version: int) -> None:
    services, world = transactional_services()
    world.fresh_ids = iter([70, 80])
    assert init(services, version, transactional_id="x") == (0, 70, 0)
    assert init(services, version, transactional_id="x") == (0, 70, 1)
    assert init(services, version, transactional_id="y") == (0, 80, 0)


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_fenced_producer_is_told_by_the_code_of_its_version(version: int) -> None:
    services, _ = transactional_services()
    assert init(services, version, transactional_id="x")[0] == 0
    told = init(services, version, transactional_id="x", producer_id=999, producer_epoch=0)
    assert told == (90 if version >= 4 else 47, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_coordinator_that_is_elsewhere_or_loading(version: int) -> None:
    services, world = transactional_services()
    for code in (14, 15, 16):
        world.refusal = code
        assert init(services, version, transactional_id="x") == (code, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_two_phase_commit_has_to_be_allowed(version: int) -> None:
    services, _ = transactional_services()
    told = init(services, version, transactional_id="x", enable2_pc=True)
    assert told == ((53, -1, -1) if version >= 6 else (0, 1000, 0))


def test_a_prepared_transaction_is_told() -> None:
    services, world = transactional_services()
    assert init(services, 6, transactional_id="x") == (0, 1000, 0)
    assert world.add_partitions("x", 1000, 0, [("t", 0)], 2).result() == 0
    asked: dict[str, Any] = {
        "transactional_id": "x",
        "transaction_timeout_ms": 0,
        "producer_id": 1000,
        "producer_epoch": 0,
        "enable2_pc": True,
        "keep_prepared_txn": True,
    }
    answer = ask(module, services, 6, **asked)
    assert (answer["producer_id"], answer["producer_epoch"]) == (1000, 1)
    assert answer["ongoing_txn_producer_id"] == 1000
    assert answer["ongoing_txn_producer_epoch"] == 0


def test_with_nothing_open_nothing_is_told() -> None:
    services, _ = transactional_services()
    answer = ask(module, services, 6, transactional_id="x", transaction_timeout_ms=60_000)
    assert answer["ongoing_txn_producer_id"] == answer["ongoing_txn_producer_epoch"] == -1


def test_no_id_to_be_had() -> None:
    assert init(a_service(ProtocolError(14)), 4) == (14, -1, -1)


def test_an_id_that_comes_later_and_one_that_never_does() -> None:
    services = a_service()
    waiting: list[Deferred[int]] = []

    def new_producer_id() -> Deferred[int]:
        waiting.append(Deferred())
        return waiting[-1]

    services.new_producer_id = new_producer_id  # type: ignore[method-assign]
    context = Context(cast(Services, services), 4, "test", "PLAINTEXT", 1)
    request = SimpleNamespace(
        transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
    )
    first = module.handle(context, request)
    second = module.handle(context, request)
    assert isinstance(first, Deferred) and not first.done
    assert isinstance(second, Deferred)
    waiting[0].resolve(12)
    assert first.result()["producer_id"] == 12
    waiting[1].fail(InvariantError("the store is gone"))
    with pytest.raises(InvariantError):
        second.result()
