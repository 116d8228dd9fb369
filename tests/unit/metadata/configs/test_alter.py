"""Goal: changes are taken and refused as Kafka takes and refuses them, with its codes and words.
Method: every answer of a table recorded from Apache Kafka 4.3.1, and directed cases for the lists.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.metadata.configs.alter import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    apply_incremental,
    validate_dynamic_broker_configs,
    validate_topic_configs,
)
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.definitions import BROKER, TOPIC
from ottla.metadata.configs.refusals import InvalidConfig
from ottla.protocol.error_codes import INVALID_CONFIG, INVALID_REQUEST

ROWS = json.loads((Path(__file__).parent / "kafka_4_3_1_refusals.json").read_text())["rows"]
# What the recording Kafka ran with, as far as the answers depend on it.
CURRENT = BrokerConfig({"num.io.threads": "4", "log.cleanup.policy": "compact,delete"})
TOPIC_NOW = {"retention.ms": "1000", "cleanup.policy": "delete, compact"}


def answer(resource: str, operations: list[tuple[str, int, str | None]]) -> tuple[int, str | None]:
    try:
        if resource == "topic":
            validate_topic_configs(apply_incremental(TOPIC, TOPIC_NOW, operations))
        else:
            changes = apply_incremental(BROKER, {}, operations)
            validate_dynamic_broker_configs(changes, resource == "broker", current=CURRENT)
    except InvalidConfig as refused:
        return refused.code, refused.message
    return 0, None


@pytest.mark.parametrize(
    ("resource", "operations", "code", "message"),
    ROWS,
    ids=[f"{row[0]}:{','.join(f'{o[0]}={o[2]}' for o in row[1])}" for row in ROWS],
)
def test_as_kafka_answers(
    resource: str, operations: list[list[object]], code: int, message: str | None
) -> None:
    assert answer(resource, [tuple(each) for each in operations]) == (code, message)  # type: ignore[misc]


def changed_policy(now: str | None, operation: int, value: str) -> str:
    current = {} if now is None else {"cleanup.policy": now}
    return apply_incremental(TOPIC, current, [("cleanup.policy", operation, value)])[
        "cleanup.policy"
    ]


@pytest.mark.parametrize(
    ("now", "operation", "value", "then"),
    [
        ("", APPEND, "compact, delete", "compact,delete"),
        ("compact,delete", APPEND, "compact", "compact,delete"),
        (None, APPEND, "compact", "delete,compact"),
        ("compact,delete", SUBTRACT, "compact", "delete"),
        ("compact,delete", SUBTRACT, "delete,compact", ""),
        (None, SUBTRACT, "delete", ""),
        ("compact", SUBTRACT, "zip", "compact"),
        ("compact", SET, "zip", "zip"),
    ],
)
def test_lists_grow_and_shrink(now: str | None, operation: int, value: str, then: str) -> None:
    assert changed_policy(now, operation, value) == then


def test_operations_leave_the_rest_alone() -> None:
    current = {"retention.ms": "5", "segment.ms": "6", "flush.ms": "7"}
    operations = [
        ("retention.ms", DELETE, None),
        ("segment.ms", SET, "8"),
        ("flush.messages", SET, "1"),
    ]
    assert apply_incremental(TOPIC, current, operations) == {
        "segment.ms": "8",
        "flush.ms": "7",
        "flush.messages": "1",
    }
    assert current == {"retention.ms": "5", "segment.ms": "6", "flush.ms": "7"}


def test_deleting_needs_no_value_and_no_known_name() -> None:
    assert apply_incremental(TOPIC, {"a": "1"}, [("a", DELETE, "x"), ("b", DELETE, None)]) == {}


def test_an_unknown_operation_is_refused() -> None:
    assert answer("topic", [("retention.ms", 7, "1")]) == (
        INVALID_REQUEST,
        "Unknown operation type 7",
    )


def test_a_list_of_one_listener_can_be_appended_to() -> None:
    name = "listener.name.a.sasl.enabled.mechanisms"
    assert apply_incremental(BROKER, {name: "PLAIN"}, [(name, APPEND, "X")]) == {name: "PLAIN,X"}


def test_a_refusal_is_both_an_answer_and_a_config_error() -> None:
    with pytest.raises(ConfigError) as refused:
        validate_topic_configs({"no.such.config": "1"})
    assert isinstance(refused.value, InvalidConfig)
    assert refused.value.code == INVALID_CONFIG
    assert str(refused.value) == "Unknown topic config name: no.such.config"


def test_without_the_current_settings_only_the_values_are_checked() -> None:
    validate_dynamic_broker_configs({"num.io.threads": "1000"}, per_broker=True)
    validate_dynamic_broker_configs({"log.roll.ms": "0"}, per_broker=False)


def test_a_thread_count_may_double_or_halve() -> None:
    for count in ("2", "8"):
        validate_dynamic_broker_configs({"num.io.threads": count}, False, current=CURRENT)
    # What is set for this broker is in force, whatever is set for all.
    own = CURRENT.with_dynamic({}, {"num.io.threads": "5"})
    validate_dynamic_broker_configs({"num.io.threads": "100"}, False, current=own)
