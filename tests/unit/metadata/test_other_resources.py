"""Goal: settings of client metrics and groups are checked against their bounds and described.
Method: each rule on both sides; descriptions with and without a value of their own.
"""

from __future__ import annotations

import pytest

from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.describe import Synonym
from ottla.metadata.configs.refusals import InvalidConfig
from ottla.metadata.other_resources import (
    describe_client_metrics,
    describe_group,
    validate_client_metrics,
    validate_group,
)
from ottla.protocol.error_codes import INVALID_CONFIG, INVALID_REQUEST

CONFIG = BrokerConfig({"group.consumer.session.timeout.ms": "46000"})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"interval.ms": "100"},
        {"interval.ms": "3600000"},
        {"match": "client_id=.*,client_software_name=a"},
        {"match": ""},
        {"metrics": "org.apache.kafka,a"},
    ],
)
def test_client_metrics(settings: dict[str, str]) -> None:
    validate_client_metrics(settings)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"no.such": "1"}, INVALID_REQUEST),
        ({"interval.ms": "99"}, INVALID_REQUEST),
        ({"interval.ms": "3600001"}, INVALID_REQUEST),
        ({"interval.ms": "x"}, INVALID_CONFIG),
        ({"match": "client_id"}, INVALID_CONFIG),
        ({"match": "client_id="}, INVALID_CONFIG),
        ({"match": "color=red"}, INVALID_CONFIG),
    ],
)
def test_client_metrics_refused(settings: dict[str, str], code: int) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate_client_metrics(settings)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "settings",
    [
        {"consumer.session.timeout.ms": "45000"},
        {"consumer.session.timeout.ms": "60000"},
        {"streams.num.standby.replicas": "2"},
        {"share.auto.offset.reset": "earliest"},
        {"share.isolation.level": "read_committed"},
        {"share.renew.acknowledge.enable": "false"},
    ],
)
def test_groups(settings: dict[str, str]) -> None:
    validate_group(CONFIG, settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"no.such": "1"}, "Unknown group config name: no.such"),
        ({"consumer.session.timeout.ms": "44999"}, "group.consumer.min.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "60001"}, "group.consumer.max.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "x"}, "Not a number"),
        ({"streams.num.standby.replicas": "3"}, "group.streams.max.standby.replicas"),
        ({"streams.initial.rebalance.delay.ms": "-1"}, "at least 0"),
        ({"share.isolation.level": "whatever"}, "share.isolation.level"),
    ],
)
def test_groups_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate_group(CONFIG, settings)
    assert refused.value.code == INVALID_CONFIG
    assert words in refused.value.message


def test_what_a_group_has_of_its_own_comes_first() -> None:
    names = ["consumer.session.timeout.ms"]
    (plain,) = describe_group(CONFIG, {}, names)
    assert (plain.value, plain.config_source, plain.is_default) == ("46000", 5, True)
    assert plain.synonyms == [Synonym("group.consumer.session.timeout.ms", "46000", 5)]
    (own,) = describe_group(CONFIG, {"consumer.session.timeout.ms": "50000"}, names)
    assert (own.value, own.config_source, own.is_default) == ("50000", 8, False)
    assert [synonym.source for synonym in own.synonyms] == [8, 5]


def test_every_setting_is_described_and_documented() -> None:
    for described in (*describe_group(CONFIG, {}, None), *describe_client_metrics({}, [])):
        assert described.documentation
        assert not described.read_only
    assert [each.name for each in describe_client_metrics({}, None)] == [
        "interval.ms",
        "match",
        "metrics",
    ]
    (own,) = describe_client_metrics({"match": "client_id=a"}, ["match"])
    assert (own.value, own.config_source) == ("client_id=a", 7)
