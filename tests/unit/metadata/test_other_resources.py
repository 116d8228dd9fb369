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
        ({"consumer.session.timeout.ms": "0"}, "timeout.ms: Value must be at least 1"),
        ({"share.delivery.count.limit": "1"}, "limit: Value must be at least 2"),
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


@pytest.mark.parametrize(
    ("settings", "is_taken"),
    [
        ({"consumer.heartbeat.interval.ms": "9999"}, True),
        ({"consumer.heartbeat.interval.ms": "10000"}, False),
        ({"consumer.session.timeout.ms": "5000"}, False),
        ({"consumer.session.timeout.ms": "5001"}, True),
        ({"consumer.session.timeout.ms": "7000", "consumer.heartbeat.interval.ms": "7000"}, False),
        ({"consumer.session.timeout.ms": "7001", "consumer.heartbeat.interval.ms": "7000"}, True),
    ],
)
def test_a_session_is_longer_than_the_pause_between_heartbeats(
    settings: dict[str, str], is_taken: bool
) -> None:
    """Else every member would be late; what a group does not set, it has from the broker."""
    short = {"group.consumer.session.timeout.ms": "10000"}
    config = BrokerConfig({**short, "group.consumer.min.session.timeout.ms": "1000"})
    if is_taken:
        validate_group(config, settings)
        return
    with pytest.raises(InvalidConfig) as refused:
        validate_group(config, settings)
    assert refused.value.code == INVALID_CONFIG
    words = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    assert refused.value.message == words


def test_what_a_group_has_of_its_own_comes_first() -> None:
    names = ["consumer.session.timeout.ms"]
    (plain,) = describe_group(CONFIG, {}, names)
    assert (plain.value, plain.config_source, plain.is_default) == ("46000", 4, False)
    of_broker = [
        Synonym("group.consumer.session.timeout.ms", "46000", 4),
        Synonym("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert plain.synonyms == of_broker
    (own,) = describe_group(CONFIG, {"consumer.session.timeout.ms": " 50000 "}, names)
    assert (own.value, own.config_source, own.is_default) == ("50000", 8, False)
    assert own.synonyms == [Synonym("consumer.session.timeout.ms", "50000", 8), *of_broker]


def test_what_nobody_has_set_for_a_group_is_a_default() -> None:
    (plain,) = describe_group(BrokerConfig({}), {}, ["consumer.session.timeout.ms"])
    assert (plain.value, plain.config_source, plain.is_default) == ("45000", 5, True)
    (alone,) = describe_group(BrokerConfig({}), {}, ["share.isolation.level"])
    assert (alone.value, alone.config_source) == ("read_uncommitted", 5)
    assert alone.synonyms == [Synonym("share.isolation.level", "read_uncommitted", 5)]


def test_what_was_set_for_all_brokers_counts_for_groups() -> None:
    name = "group.consumer.assignment.interval.ms"
    config = BrokerConfig({name: "1"}, cluster_wide={name: "700"}, per_broker={name: "800"})
    (found,) = describe_group(config, {}, ["consumer.assignment.interval.ms"])
    assert (found.value, found.config_source) == ("800", 2)
    told = [(synonym.value, synonym.source) for synonym in found.synonyms]
    assert told == [("800", 2), ("700", 3), ("1", 4), ("1000", 5)]


def test_every_setting_is_described_and_documented() -> None:
    for described in (*describe_group(CONFIG, {}, None), *describe_client_metrics({}, [])):
        assert described.documentation
        assert not described.read_only
    assert [each.name for each in describe_client_metrics({}, None)] == [
        "interval.ms",
        "match",
        "metrics",
    ]
    (own,) = describe_client_metrics({"match": " client_id=a , client_id=b"}, ["match"])
    assert (own.value, own.config_source) == ("client_id=a,client_id=b", 7)
