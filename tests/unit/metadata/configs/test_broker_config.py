"""Goal: of all places that set something, the strongest counts, and a reader gets it typed.
Method: directed cases for precedence, synonyms, ids, cross checks and misuse.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ConfigError, InvariantError
from ottla.metadata.configs.broker_config import (
    BrokerConfig,
    check_together,
    connections_per_ip_overrides,
)

HOUR_MS = 3_600_000


def test_defaults_are_typed() -> None:
    config = BrokerConfig()
    assert config.get_int("num.partitions") == 1
    assert config.get_long("log.segment.bytes") == 1 << 30
    assert config.get_bool("auto.create.topics.enable") is True
    assert config.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.get_str("compression.type") == "producer"
    assert config.get_list("log.cleanup.policy") == ["delete"]
    assert config.get_optional_str("broker.rack") is None
    assert config.get_list("advertised.listeners") == []
    assert config.get_list("log.dirs") == ["ottla-data"]
    assert config.get_str("ottla.metrics.listener") == "127.0.0.1:9644"
    assert config.get_int("max.connections.per.ip") < config.get_int("max.connections")


def test_this_broker_beats_the_cluster_beats_the_file_beats_the_default() -> None:
    config = BrokerConfig({"num.io.threads": "4"})
    assert config.get_int("num.io.threads") == 4
    config = config.with_dynamic({"num.io.threads": "6"}, {})
    assert config.get_int("num.io.threads") == 6
    config = config.with_dynamic({"num.io.threads": "6"}, {"num.io.threads": " 5 "})
    assert config.get_int("num.io.threads") == 5
    assert config.with_dynamic({}, {}).get_int("num.io.threads") == 4


def test_retention_ms_beats_minutes_beats_hours() -> None:
    assert BrokerConfig().get_long("log.retention.ms") == 168 * HOUR_MS
    properties = {"log.retention.hours": "2"}
    assert BrokerConfig(properties).get_long("log.retention.ms") == 2 * HOUR_MS
    properties["log.retention.minutes"] = "5"
    assert BrokerConfig(properties).get_long("log.retention.ms") == 300_000
    properties["log.retention.ms"] = "7"
    assert BrokerConfig(properties).get_long("log.retention.ms") == 7
    assert BrokerConfig({"log.retention.hours": "-5"}).get_long("log.retention.ms") == -1


def test_the_other_synonyms() -> None:
    config = BrokerConfig(
        {
            "log.roll.hours": "3",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "50",
            "log.dir": "a",
        }
    )
    assert config.get_long("log.roll.ms") == 3 * HOUR_MS
    assert config.get_long("log.roll.jitter.ms") == HOUR_MS
    assert config.get_long("log.flush.interval.ms") == 50
    assert config.get_list("log.dirs") == ["a"]
    stronger = {"log.roll.ms": "1", "log.roll.jitter.ms": "2", "log.flush.interval.ms": "3"}
    config = BrokerConfig({**config.static, **stronger, "log.dirs": "b,c"})
    assert [config.get_long(name) for name in stronger] == [1, 2, 3]
    assert config.get_list("log.dirs") == ["b", "c"]


def test_a_dynamic_name_hides_its_synonyms_in_the_file() -> None:
    config = BrokerConfig({"log.retention.minutes": "5", "log.retention.hours": "1"})
    config = config.with_dynamic({"log.retention.ms": "9"}, {})
    assert config.get_long("log.retention.ms") == 9
    assert config.named_value("log.retention.minutes") is None
    assert config.named_value("log.retention.hours") == 168


def test_node_id_and_broker_id_are_one() -> None:
    assert BrokerConfig().get_int("node.id") == BrokerConfig().get_int("broker.id") == 0
    assert BrokerConfig({"broker.id": "7"}).get_int("node.id") == 7
    assert BrokerConfig({"node.id": "7"}).get_int("broker.id") == 7
    assert BrokerConfig({"node.id": "7", "broker.id": " 7"}).get_int("node.id") == 7
    with pytest.raises(ConfigError, match=r"`node\.id` to the same value as `broker\.id`"):
        BrokerConfig({"node.id": "7", "broker.id": "8"})
    with pytest.raises(ConfigError, match=r"Value must be at least 0"):
        BrokerConfig({"broker.id": "-1"})


def test_a_wrong_value_in_the_file_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({"num.partitions": "many"})
    assert str(refused.value) == (
        "Invalid value many for configuration num.partitions: Not a number of type INT"
    )
    with pytest.raises(ConfigError, match=r"max\.connections"):
        BrokerConfig({"listener.name.internal.max.connections": "many"})


def test_a_stored_value_that_cannot_be_taken_is_left_out_and_told() -> None:
    config = BrokerConfig({"num.io.threads": "4"}).with_dynamic({"num.io.threads": "0"}, {})
    assert config.get_int("num.io.threads") == 4
    assert config.ignored == [
        "Invalid value 0 for configuration num.io.threads: Value must be at least 1"
    ]


def test_a_listener_may_have_a_number_of_its_own() -> None:
    config = BrokerConfig({"listener.name.internal.max.connections": "5", "max.connections": "9"})
    assert config.get_int_for_listener("INTERNAL", "max.connections") == 5
    assert config.get_int_for_listener("PLAINTEXT", "max.connections") == 9


def test_changing_a_list_that_was_read_changes_nothing() -> None:
    config = BrokerConfig()
    config.get_list("log.cleanup.policy").append("compact")
    assert config.get_list("log.cleanup.policy") == ["delete"]


@pytest.mark.parametrize(
    ("getter", "name"),
    [
        ("get_int", "auto.create.topics.enable"),
        ("get_int", "compression.type"),
        ("get_int", "num.replica.alter.log.dirs.threads"),
        ("get_bool", "num.partitions"),
        ("get_float", "num.partitions"),
        ("get_str", "broker.rack"),
        ("get_str", "num.partitions"),
        ("get_list", "compression.type"),
    ],
)
def test_asking_for_the_wrong_type_is_a_mistake_in_the_program(getter: str, name: str) -> None:
    with pytest.raises(InvariantError):
        getattr(BrokerConfig(), getter)(name)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        (
            {"log.retention.hours": "0"},
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip can be set to zero only if "
            "max.connections.per.ip.overrides property is set.",
        ),
        (
            {"max.connections.per.ip.overrides": "127.0.0.1:x"},
            "Invalid value 127.0.0.1:x for configuration max.connections.per.ip.overrides: "
            "Expected address:count",
        ),
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"log.cleaner.dedupe.buffer.size": "2097153", "log.cleaner.threads": "2"},
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads must be greater than or equal to 1"),
        (
            {"queued.max.request.bytes": "5"},
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ),
        (
            {"authorizer.class.name": "a.B"},
            "authorizer.class.name is set, but access rights are not checked yet: "
            "take it out to start without them",
        ),
        *(
            ({f"group.consumer.{name}.ms": value}, f"group.consumer.{reason}")
            for name, value, reason in (
                (
                    "max.heartbeat.interval",
                    "4000",
                    "max.heartbeat.interval.ms must be greater than or equal to "
                    "group.consumer.min.heartbeat.interval.ms",
                ),
                (
                    "heartbeat.interval",
                    "4000",
                    "heartbeat.interval.ms must be greater than or equal to "
                    "group.consumer.min.heartbeat.interval.ms",
                ),
                (
                    "heartbeat.interval",
                    "16000",
                    "heartbeat.interval.ms must be less than or equal to "
                    "group.consumer.max.heartbeat.interval.ms",
                ),
                (
                    "max.session.timeout",
                    "40000",
                    "max.session.timeout.ms must be greater than or equal to "
                    "group.consumer.min.session.timeout.ms",
                ),
                (
                    "min.session.timeout",
                    "50000",
                    "session.timeout.ms must be greater than or equal to "
                    "group.consumer.min.session.timeout.ms",
                ),
                (
                    "session.timeout",
                    "70000",
                    "session.timeout.ms must be less than or equal to "
                    "group.consumer.max.session.timeout.ms",
                ),
            )
        ),
        (
            {
                "group.consumer.heartbeat.interval.ms": "46000",
                "group.consumer.max.heartbeat.interval.ms": "50000",
            },
            "group.consumer.heartbeat.interval.ms must be less than "
            "group.consumer.session.timeout.ms",
        ),
    ],
)
def test_what_does_not_go_together(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_together(BrokerConfig(properties))
    assert str(refused.value) == reason


def test_what_goes_together() -> None:
    check_together(BrokerConfig())
    overrides = {"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7 ,"}
    config = BrokerConfig({"max.connections.per.ip": "0", **overrides})
    check_together(config)
    assert connections_per_ip_overrides(config) == {"127.0.0.1": 5, "::1": 7}


@pytest.mark.parametrize(
    ("name", "alone", "in_cluster"),
    [
        ("offsets.topic.replication.factor", 1, 3),
        ("transaction.state.log.replication.factor", 1, 3),
        ("transaction.state.log.min.isr", 1, 2),
        ("min.insync.replicas", 1, 1),
        ("default.replication.factor", 1, 1),
    ],
)
def test_internal_topics_have_kafkas_replicas_in_a_cluster(
    name: str, alone: int, in_cluster: int
) -> None:
    cluster = {"zookeeper.connect": "localhost:2181/ottla"}
    assert BrokerConfig({}).get_int(name) == alone
    assert BrokerConfig(cluster).get_int(name) == in_cluster
    assert BrokerConfig({**cluster, name: "5"}).get_int(name) == 5
    assert BrokerConfig(cluster).with_dynamic({}, {}).default_of(name) == in_cluster
