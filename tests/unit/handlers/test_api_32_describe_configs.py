"""Goal: DescribeConfigs tells of each resource what is set and where that comes from.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import api_32_describe_configs as module
from ottla.handlers.reply import CloseConnection
from ottla.metadata.configs.alter import SET
from ottla.metadata.configs.describe import describe_topic
from ottla.metadata.controller import ConfigChange, ThisBroker, decide_incremental_alter_configs
from tests.unit.handlers.fakes import FakeServices, ask, create_topic, versions_of

VERSIONS = versions_of(module)


def describe(
    services: FakeServices,
    version: int,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    **options: bool,
) -> dict[str, Any]:
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configuration_keys": keys,
    }
    asked = {"include_synonyms": True, "include_documentation": True, **options}
    answer = ask(services, module, version, resources=[resource], **asked)
    (told,) = answer["results"]
    assert (told["resource_type"], told["resource_name"]) == (resource_type, name)
    return dict(told)


def changed(services: FakeServices, resource_type: int, name: str, key: str, value: str) -> None:
    change = ConfigChange(resource_type, name, [(key, SET, value)])
    broker = ThisBroker(services.broker_id, services.config)
    (result,) = services.controller.submit(
        lambda image: decide_incremental_alter_configs(image, [change], broker=broker)
    ).result()
    assert result.error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic(version: int) -> None:
    services = FakeServices({"log.retention.ms": "9"})
    create_topic(services, "t", (1,))
    changed(services, 2, "t", "cleanup.policy", "compact")
    told = describe(services, version, 2, "t")
    assert (told["error_code"], told["error_message"]) == (0, "")
    assert len(told["configs"]) == 33
    by_name = {config["name"]: config for config in told["configs"]}
    assert by_name["cleanup.policy"]["value"] == "compact"
    assert by_name["cleanup.policy"]["config_source"] == 1
    assert by_name["retention.ms"]["value"] == "9"
    assert by_name["retention.ms"]["config_source"] == 4
    assert [each["source"] for each in by_name["cleanup.policy"]["synonyms"]] == [1, 5]
    if version >= 3:
        assert by_name["retention.ms"]["config_type"] == 5
        assert by_name["retention.ms"]["documentation"]


@pytest.mark.parametrize("version", VERSIONS)
def test_spared_the_long_parts(version: int) -> None:
    services = FakeServices()
    told = describe(services, version, 4, "1", include_synonyms=False, include_documentation=False)
    assert len(told["configs"]) > 300
    for config in told["configs"]:
        assert config["synonyms"] == []
        assert not config["documentation"]


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers(version: int) -> None:
    services = FakeServices()
    changed(services, 4, "", "log.retention.ms", "77")
    changed(services, 4, "1", "num.io.threads", "9")
    (all_brokers,) = describe(services, version, 4, "")["configs"]
    assert (all_brokers["name"], all_brokers["config_source"]) == ("log.retention.ms", 3)
    (threads,) = describe(services, version, 4, "1", ["num.io.threads"])["configs"]
    assert (threads["value"], threads["config_source"]) == ("9", 2)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (2, "nope", 3),
        (2, "a/b", 17),
        (4, "2", 42),
        (4, "x", 42),
        (8, "", 42),
        (8, "2", 42),
        (8, "x", 42),
        (16, "", 42),
        (32, "", 42),
        (99, "x", 42),
        (-1, "x", 42),
    ],
)
def test_refused(version: int, resource_type: int, name: str, code: int) -> None:
    told = describe(FakeServices(), version, resource_type, name)
    assert told["error_code"] == code
    assert told["configs"] == []
    assert bool(told["error_message"]) == (code != 3)


def test_client_metrics_and_groups() -> None:
    services = FakeServices()
    changed(services, 16, "m", "interval.ms", "1000")
    changed(services, 32, "g", "consumer.session.timeout.ms", "50000")
    by_name = {each["name"]: each for each in describe(services, 4, 16, "m")["configs"]}
    assert by_name["interval.ms"]["value"] == "1000"
    assert by_name["interval.ms"]["config_source"] == 7
    (timeout,) = describe(services, 4, 32, "g", ["consumer.session.timeout.ms"])["configs"]
    assert (timeout["value"], timeout["config_source"]) == ("50000", 8)


def test_loggers() -> None:
    names = [each["name"] for each in describe(FakeServices(), 4, 8, "1")["configs"]]
    assert names[0] == "ottla"
    assert "root" in names
    (root,) = describe(FakeServices(), 4, 8, "1", ["root"])["configs"]
    assert (root["config_source"], root["config_type"], root["documentation"]) == (6, 0, "")


def describe_many(services: FakeServices, resources: list[tuple[int, str, Any]]) -> Any:
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name, keys in resources
    ]
    options = {"include_synonyms": True, "include_documentation": True}
    return ask(services, module, 4, resources=asked, **options)["results"]


def test_alike_or_not_each_resource_is_told_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    services = FakeServices()
    for name in ("plain", "alike", "other"):
        create_topic(services, name, (1,))
    changed(services, 2, "other", "retention.ms", "5")
    changed(services, 4, "", "log.retention.ms", "77")
    described: list[object] = []

    def noticed(config: Any, own: Any, keys: Any) -> Any:
        described.append((own, keys))
        return describe_topic(config, own, keys)

    monkeypatch.setattr(module, "describe_topic", noticed)
    resources: list[tuple[int, str, Any]] = [
        (2, "plain", None),
        (2, "alike", []),
        (2, "nope", None),
        (2, "other", None),
        (2, "plain", ["cleanup.policy"]),
        (4, "1", None),
        (4, "", None),
        (8, "1", ["root"]),
        (2, "plain", None),
    ]
    told = describe_many(services, resources)
    assert told == [describe_many(services, [resource])[0] for resource in resources]
    assert [(one["resource_type"], one["resource_name"]) for one in told] == [
        (kind, name) for kind, name, _ in resources
    ]
    assert described[:3] == [({}, None), ({"retention.ms": "5"}, None), ({}, ["cleanup.policy"])]


def test_many_that_differ_are_described_in_several_turns() -> None:
    services = FakeServices()
    keys = [[f"unknown {number}", "num.io.threads"] for number in range(50)]
    told = describe_many(services, [(4, "1", each) for each in keys])
    assert [len(one["configs"]) for one in told] == [1] * 50
    assert services.turns > 3


def test_topics_that_are_alike_cost_little() -> None:
    services = FakeServices()
    create_topic(services, "t", (1,))
    told = describe_many(services, [(2, "t", None)] * 900)
    assert len(told) == 900
    assert services.turns == 1


def test_an_answer_that_no_client_takes_is_not_made() -> None:
    with pytest.raises(CloseConnection, match="more than 134,217,728 bytes"):
        describe_many(FakeServices(), [(4, "1", None)] * 100_000)


@pytest.mark.parametrize("kind", [4, 8])
@pytest.mark.parametrize("written", [" {}", "{} ", "{}_0", "0x{}", "1" * 12])
def test_only_digits_are_the_id_of_a_broker(kind: int, written: str) -> None:
    services = FakeServices()
    name = written.format(services.broker_id)
    told = describe(services, VERSIONS[-1], kind, name)
    refused = f"Broker id must be an integer, but it is: {name}"
    assert (told["error_code"], told["error_message"], told["configs"]) == (42, refused, [])
