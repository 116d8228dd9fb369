"""Goal: admin clients learn the cluster's id, its brokers and its controller.
Method: what Kafka 4.3.1 answered to each kind of endpoint and choice, in every version.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import api_60_describe_cluster as module
from tests.unit.handlers.read_fakes import (
    FakeServices,
    a_broker,
    an_image,
    ask,
    versions_of,
)

VERSIONS = versions_of(module)


def describe(services: FakeServices, version: int, **fields: Any) -> dict[str, Any]:
    asked = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
        **fields,
    }
    return ask(module, services, version, **asked)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_broker(version: int) -> None:
    services = FakeServices(an_image(brokers=[a_broker(rack="r1")]))
    broker = {"broker_id": 1, "host": "host1", "port": 9092, "rack": "r1", "is_fenced": False}
    assert describe(services, version) == {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "endpoint_type": 1,
        "cluster_id": "9B0Gb9fHTdyps9xXL8uT-Q",
        "controller_id": 1,
        "brokers": [broker],
        "cluster_authorized_operations": -(2**31),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_authorized_operations(version: int) -> None:
    services = FakeServices(an_image())
    answer = describe(services, version, include_cluster_authorized_operations=True)
    assert answer["cluster_authorized_operations"] == 8096


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (3, 115), (0, 115)])
def test_other_endpoints_are_refused_where_they_can_be_told(
    version: int, endpoint_type: int, code: int
) -> None:
    answer = describe(
        FakeServices(an_image()),
        version,
        endpoint_type=endpoint_type,
        include_cluster_authorized_operations=True,
    )
    if version == 0:
        assert answer["error_code"] == 0
        return
    assert answer.pop("error_message")
    assert answer == {
        "throttle_time_ms": 0,
        "error_code": code,
        "endpoint_type": 1,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": [],
        "cluster_authorized_operations": -(2**31),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_fenced_brokers_only_when_asked_for_and_none_without_the_listener(version: int) -> None:
    brokers = [a_broker(1), a_broker(2, fenced=True), a_broker(3, endpoints={"OTHER": ("h", 1)})]
    services = FakeServices(an_image(brokers=brokers))
    assert [each["broker_id"] for each in describe(services, version)["brokers"]] == [1]
    told = describe(services, version, include_fenced_brokers=True)["brokers"]
    fenced = [(each["broker_id"], each["is_fenced"]) for each in told]
    assert fenced == ([(1, False), (2, True)] if version >= 2 else [(1, False)])
