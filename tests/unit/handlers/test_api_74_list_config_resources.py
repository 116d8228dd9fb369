"""Goal: ListConfigResources tells which resources there are, v0 only those of client metrics.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

from ottla.handlers import api_74_list_config_resources as module
from ottla.metadata import nodes, paths
from ottla.metadata.changes import apply
from ottla.metadata.store import Write
from tests.unit.handlers.fakes import FakeServices, ask, create_topic


def a_broker() -> FakeServices:
    services = FakeServices(brokers=(1, 2))
    create_topic(services, "t", (1,))
    controller = services.controller
    for path in (paths.client_metrics_configs("m/1"), paths.group_configs("g")):
        change = controller.store.commit([Write(path, nodes.configs({"a": "b"}), None)])
        controller.image = apply(controller.image, change)
    return services


def listed(version: int, *types: int) -> list[tuple[int, str]]:
    answer = ask(a_broker(), module, version, resource_types=list(types))
    assert answer["error_code"] == 0
    return [(each["resource_type"], each["resource_name"]) for each in answer["config_resources"]]


def test_version_0_has_only_client_metrics() -> None:
    answer = ask(a_broker(), module, 0)
    assert [each["resource_name"] for each in answer["config_resources"]] == ["m/1"]


def test_all_kinds() -> None:
    everything = [(32, "g"), (16, "m/1"), (8, "1"), (8, "2"), (4, "1"), (4, "2"), (2, "t")]
    assert listed(1) == everything
    assert listed(1, 2) == [(2, "t")]
    assert listed(1, 4, 2, 2) == [(4, "1"), (4, "2"), (2, "t")]


def test_unknown_kinds() -> None:
    answer = ask(a_broker(), module, 1, resource_types=[2, 99])
    assert (answer["error_code"], answer["config_resources"]) == (35, [])
