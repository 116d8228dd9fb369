"""Goal: the log gets the settings that are in force for its topic.
Method: every field of LogConfig set by the topic and by the broker in turn.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from ottla.log.log_config import LogConfig
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.definitions import BROKER_DEFAULT_OF_TOPIC
from ottla.metadata.configs.effective import effective_log_config, refused_overrides

# Name of the field, a text that is not the default, and what the log should see.
SETTINGS = {
    "cleanup_policy": ("compact", frozenset({"compact"})),
    "compression_type": ("zstd", "zstd"),
    "compression_gzip_level": ("7", 7),
    "compression_lz4_level": ("7", 7),
    "compression_zstd_level": ("7", 7),
    "message_timestamp_type": ("LogAppendTime", "LogAppendTime"),
    "min_cleanable_dirty_ratio": ("0.25", 0.25),
    "min_insync_replicas": ("2", 2),
    "preallocate": ("true", True),
    "unclean_leader_election_enable": ("true", True),
}
NAMES = [field.name for field in fields(LogConfig)]


def test_without_settings_it_is_what_the_log_takes_as_default() -> None:
    assert effective_log_config(BrokerConfig(), {}) == LogConfig()


@pytest.mark.parametrize("field", NAMES)
def test_the_topic_sets_it_else_the_broker(field: str) -> None:
    name = field.replace("_", ".")
    text, value = SETTINGS.get(field, ("12345678", 12345678))
    assert getattr(LogConfig(), field) != value
    by_topic = effective_log_config(BrokerConfig(), {name: text})
    by_broker = effective_log_config(BrokerConfig({BROKER_DEFAULT_OF_TOPIC[name]: text}), {})
    for config in (by_topic, by_broker):
        assert getattr(config, field) == value
        others = [each for each in NAMES if each != field]
        assert [getattr(config, each) for each in others] == [
            getattr(LogConfig(), each) for each in others
        ]


def test_the_broker_may_set_it_by_a_synonym_and_while_it_runs() -> None:
    config = BrokerConfig({"log.retention.hours": "1", "log.flush.scheduler.interval.ms": "5"})
    assert effective_log_config(config, {}).retention_ms == 3_600_000
    assert effective_log_config(config, {}).flush_ms == 5
    dynamic = config.with_dynamic({"log.retention.ms": "6"}, {})
    assert effective_log_config(dynamic, {}).retention_ms == 6
    assert effective_log_config(dynamic, {"retention.ms": "7"}).retention_ms == 7


def test_no_policy_at_all_keeps_everything() -> None:
    assert (
        effective_log_config(BrokerConfig(), {"cleanup.policy": ""}).cleanup_policy == frozenset()
    )


def test_the_internal_segment_size_goes_below_the_bound() -> None:
    overrides = {"segment.bytes": "1048576", "internal.segment.bytes": "2000"}
    assert effective_log_config(BrokerConfig(), overrides).segment_bytes == 2000


def test_a_wrong_override_counts_as_not_set_and_is_told_and_an_unknown_one_left_aside() -> None:
    config = BrokerConfig({"log.retention.ms": "5"})
    overrides = {"retention.ms": "soon", "of.the.future": "1", "segment.ms": "7"}
    assert effective_log_config(config, overrides) == LogConfig(retention_ms=5, segment_ms=7)
    assert refused_overrides(overrides) == [
        "Invalid value soon for configuration retention.ms: Not a number of type LONG"
    ]
