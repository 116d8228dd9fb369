"""Goal: DescribeConfigs tells what Kafka tells: value, source, flags, type, synonyms in order.
Method: the answers of a Kafka 4.3.1 with settings in its file, for all brokers, for one broker and
for a topic, recorded before and after the dynamic changes, against ours for the same settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.definitions import DIFFERENT_DEFAULTS, TOPIC
from ottla.metadata.configs.describe import (
    DEFAULT,
    DescribedConfig,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_1_described.json").read_text())
BEFORE = BrokerConfig(KAFKA["static"])
AFTER = BEFORE.with_dynamic(KAFKA["cluster_wide"], KAFKA["per_broker"])
# Kafka can change them while it runs, so they are not read-only there.
FIXED_HERE = {"listeners", "listener.security.protocol.map"}
# With eligible leader replicas, Kafka sets it for all brokers by itself, though nobody asked.
SET_BY_KAFKA = {"min.insync.replicas"}


def rows(described: list[DescribedConfig]) -> dict[str, list[Any]]:
    return {
        each.name: [
            each.name,
            each.value,
            each.config_source,
            each.read_only,
            each.is_sensitive,
            each.config_type,
            [[synonym.name, synonym.value, synonym.source] for synonym in each.synonyms],
        ]
        for each in described
    }


def without_our_defaults(row: list[Any]) -> list[Any]:
    synonyms = [
        [name, value, source]
        for name, value, source in row[6]
        if not (source == DEFAULT and name in DIFFERENT_DEFAULTS)
    ]
    read_only = row[3] or row[0] in FIXED_HERE
    return [*row[:3], read_only, *row[4:6], synonyms]


@pytest.mark.parametrize(
    ("config", "recorded"), [(BEFORE, "broker_before"), (AFTER, "broker_after")]
)
def test_a_broker(config: BrokerConfig, recorded: str) -> None:
    ours = rows(describe_broker(config))
    for row in KAFKA[recorded]:
        if row[0] not in SET_BY_KAFKA:
            assert without_our_defaults(ours[row[0]]) == without_our_defaults(row)
    told = {row[0] for row in KAFKA[recorded]}
    for name, row in ours.items():
        if name not in told and name not in DIFFERENT_DEFAULTS:
            assert row[2] == DEFAULT, "Kafka had nothing but the default to tell"
            assert row[6] == [[name, row[1], DEFAULT]]


def test_all_brokers() -> None:
    kafka = [row for row in KAFKA["cluster_default_after"] if row[0] not in SET_BY_KAFKA]
    assert list(rows(describe_cluster_default(AFTER)).values()) == kafka
    assert describe_cluster_default(BEFORE) == []


@pytest.mark.parametrize(("config", "recorded"), [(BEFORE, "topic_before"), (AFTER, "topic_after")])
def test_a_topic(config: BrokerConfig, recorded: str) -> None:
    ours = rows(describe_topic(config, KAFKA["overrides"]))
    kafka = {row[0]: row for row in KAFKA[recorded]}
    assert ours.keys() == kafka.keys()
    for name in kafka.keys() - SET_BY_KAFKA:
        assert ours[name] == kafka[name]


def test_a_topic_without_settings_has_only_defaults() -> None:
    described = describe_topic(BrokerConfig(), {})
    assert len(described) == 33
    assert all(each.is_default and not each.read_only for each in described)
    assert [each.name for each in described] == sorted(each.name for each in described)


def test_an_override_is_described_in_kafkas_spelling() -> None:
    overrides = {"min.cleanable.dirty.ratio": "1e-5", "preallocate": " TRUE ", "retention.ms": "+5"}
    described = rows(describe_topic(BrokerConfig(), overrides))
    assert [described[name][1] for name in overrides] == ["1.0E-5", "true", "5"]


def test_internal_settings_are_shown_once_they_are_set() -> None:
    assert "internal.segment.bytes" not in rows(describe_topic(BrokerConfig(), {}))
    shown = rows(describe_topic(BrokerConfig(), {"internal.segment.bytes": "2000"}))
    assert shown["internal.segment.bytes"][1:3] == ["2000", 1]
    assert "zookeeper.connect" not in rows(describe_broker(BrokerConfig()))
    shown = rows(describe_broker(BrokerConfig({"zookeeper.connect": "h:2181"})))
    assert shown["zookeeper.connect"][1:3] == ["h:2181", 4]


def test_names_choose_and_no_names_mean_all() -> None:
    names = ["retention.ms", "no.such"]
    assert [each.name for each in describe_topic(BrokerConfig(), {}, names)] == ["retention.ms"]
    assert len(describe_topic(BrokerConfig(), {}, [])) == 33
    assert [each.name for each in describe_broker(AFTER, ["node.id"])] == ["node.id"]
    assert [each.name for each in describe_cluster_default(AFTER, ["no.such"])] == ["no.such"]
    assert len(describe_broker(BrokerConfig(), [])) > 340


def test_secrets_and_what_nobody_knows_stay_dark() -> None:
    described = {each.name: each for each in describe_broker(AFTER)}
    for name in ("ssl.keystore.password", "my.unknown.name"):
        assert described[name].is_sensitive
        assert described[name].value is None
        assert described[name].synonyms
        assert all(synonym.value is None for synonym in described[name].synonyms)


def test_the_long_parts_are_left_out_unless_asked_for() -> None:
    (described,) = describe_topic(BrokerConfig(), {}, ["retention.bytes"])
    short = described.response_fields(synonyms=False, documentation=False)
    assert (short["synonyms"], short["documentation"]) == ([], None)
    full = described.response_fields(synonyms=True, documentation=True)
    assert full == {
        "name": "retention.bytes",
        "value": "-1",
        "read_only": False,
        "is_default": True,
        "config_source": 5,
        "is_sensitive": False,
        "synonyms": [{"name": "log.retention.bytes", "value": "-1", "source": 5}],
        "config_type": 5,
        "documentation": TOPIC.by_name["retention.bytes"].documentation,
    }
