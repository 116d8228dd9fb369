"""Settings: Kafka's names in both spellings, typed, and refusals that help."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ConfigError
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import AdminSettings, ClientSettings, Secret, read_settings


def producer(**settings: Any) -> ProducerSettings:
    return read_settings(ProducerSettings, {"bootstrap.servers": "h:1"}, settings)


def test_both_spellings_and_texts_are_taken() -> None:
    read = read_settings(
        ProducerSettings,
        {"bootstrap.servers": "a:1, PLAINTEXT://b:2,[::1]:3", "linger.ms": "7"},
        {"batch_size": 5, "enable_idempotence": "false"},
    )
    assert read.bootstrap_servers == (("a", 1), ("b", 2), ("::1", 3))
    assert (read.linger_ms, read.batch_size, read.idempotent) == (7, 5, False)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("linger_mss", "linger.ms"),
        ("bootstrap.server", "bootstrap.servers"),
        ("compresion.type", "compression.type"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {near}"):
        read_settings(ProducerSettings, {"bootstrap.servers": "h:1", name: 1}, {})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"linger_ms": -1}, "linger.ms=-1: at least 0"),
        ({"linger_ms": "soon"}, "a whole number"),
        ({"linger_ms": 1.5}, "a whole number"),
        ({"linger_ms": True}, "a whole number"),
        ({"acks": "2"}, "one of"),
        ({"acks": None}, "cannot be None"),
        ({"compression_type": "brotli"}, "one of"),
        ({"enable_idempotence": "yes"}, "true or false"),
        ({"delivery_timeout_ms": 1000}, "at least linger.ms"),
        ({"enable_idempotence": True, "acks": "1"}, "needs acks=all"),
        ({"transactional_id": ""}, "must not be empty"),
        ({"transactional_id": "t", "enable_idempotence": False}, "enable.idempotence=true"),
        ({"transactional_id": "t", "acks": "0"}, "acks=all"),
        ({"transactional_id": "t", "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"transactional_id": "t", "retries": 0}, "retries"),
        ({"transaction_two_phase_commit_enable": True}, "transactional.id"),
        ({"partitioner_class": "Sticky"}, "RoundRobinPartitioner"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl.username"),
        ({"bootstrap.servers": "h:2"}, "given twice"),
        ({"acks": 2}, "acks=2: one of"),
        ({"acks": True}, "a text is needed"),
        ({"linger_ms": [1]}, "a whole number"),
        ({"linger_ms": float("inf")}, "a whole number"),
        ({"linger_ms": 10**30}, "at most"),
        ({"request_timeout_ms": 1 << 31}, "at most"),
        ({"transaction_timeout_ms": 1 << 31}, "at most"),
        ({"compression_gzip_level": 10}, "at most 9"),
        ({"compression_gzip_level": 0}, "1 to 9"),
        ({"value_serializer": "org.apache.kafka.StringSerializer"}, "a function is needed"),
        ({"partitioner_class": 5}, "RoundRobinPartitioner or a function"),
        ({"group_id": "g"}, "a consumer has it"),
        ({"ssl.truststore.location": "x"}, "ssl.cafile"),
        ({"queue.buffering.max.ms": 1}, "linger.ms"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_be_right(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        producer(**settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"group_id": ""}, "group.id is empty"),
        ({"group_instance_id": ""}, "group.instance.id is empty"),
        ({"heartbeat_interval_ms": 45_000}, "below session.timeout.ms"),
        ({"partition_assignment_strategy": "fair"}, "there are range"),
        ({"partition_assignment_strategy": 5}, "a list of texts"),
        ({"group_protocol": "consumer", "session_timeout_ms": 45_000}, "consumer.session.timeout"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 3_000}, "cannot be set with"),
        ({"group_protocol": "consumer", "partition_assignment_strategy": "range"}, "group.remote"),
        ({"group_remote_assignor": "uniform"}, "cannot be set with group.protocol=classic"),
        ({"value_deserializer": 5}, "a function is needed"),
        ({"fetch_max_bytes": 1 << 31}, "at most"),
        ({"linger_ms": 5}, "a producer has it"),
    ],
)
def test_a_consumers_wrong_values(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_settings(ConsumerSettings, {"bootstrap.servers": "h:1"}, settings)


def test_settings_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers="):
        read_settings(ProducerSettings, "localhost:9092", {})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="names are texts"):
        read_settings(ProducerSettings, {1: 2}, {})  # type: ignore[dict-item]


def test_numbers_are_taken_where_the_choice_is_one() -> None:
    assert (producer(acks=1).acks_code, producer(acks=-1).acks_code) == (1, -1)


@pytest.mark.parametrize("servers", ["h", "h:x", "h:0", "h:65536", ":1", "", [], 9092, {"h": 1}])
def test_wrong_addresses_are_refused(servers: Any) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        read_settings(AdminSettings, {"bootstrap.servers": servers}, {})


def test_a_longer_request_makes_delivery_longer_unless_that_was_given() -> None:
    """As Java's producer does."""
    long = producer(request_timeout_ms=180_000)
    assert long.delivery_timeout_ms == 180_005
    assert producer(request_timeout_ms=60_000).delivery_timeout_ms == 120_000
    assert producer(linger_ms=2**40).delivery_timeout_ms == 2**31 - 1
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms"):
        producer(request_timeout_ms=180_000, delivery_timeout_ms=120_000)


def test_idempotence_goes_where_it_is_impossible_and_was_not_asked_for() -> None:
    assert producer().idempotent
    assert not producer(acks="1").idempotent
    assert not producer(retries=0).idempotent
    assert not producer(max_in_flight_requests_per_connection=6).idempotent
    assert producer(acks="-1").acks_code == -1


def test_defaults_are_those_of_kafka_4() -> None:
    read = producer()
    assert (read.linger_ms, read.batch_size, read.buffer_memory) == (5, 16384, 33554432)
    assert (read.delivery_timeout_ms, read.request_timeout_ms) == (120_000, 30_000)
    assert producer(
        partitioner_class="org.apache.kafka.clients.producer.RoundRobinPartitioner"
    ).round_robin
    consumer = read_settings(ConsumerSettings, {"bootstrap.servers": "h:1"}, {})
    assert (consumer.session_timeout_ms, consumer.max_poll_interval_ms) == (45_000, 300_000)


def test_secrets_are_shown_to_nobody() -> None:
    read = producer(security_protocol="SASL_PLAINTEXT", sasl_username="u", sasl_password="hunter2")
    assert "hunter2" not in repr(read)
    assert isinstance(read.sasl_password, Secret)
    assert read.sasl_password.reveal() == "hunter2"
    assert isinstance(read, ClientSettings)
    for wrong in (b"hunter2", ["hunter2"]):
        for name in ("sasl_password", "ssl_key_password"):
            with pytest.raises(ConfigError, match="a text is needed") as told:
                producer(**{name: wrong})
            assert "hunter2" not in str(told.value)
