"""Goal: the requests that change topics and settings are answered as Apache Kafka answers them.
Method: whole conversations, recorded with Kafka 4.3.1, held again with our handlers; every answer
is compared field by field. Messages are compared by their presence (none, empty, some words),
because the words are ours. Where we answer something else on purpose, the reason is written here,
and the test fails when the difference is gone.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import pytest

from tests.unit.handlers.fakes import FakeServices
from tests.unit.handlers.kafka_answers import compared, recorded, reply

CONVERSATIONS = {
    "one_node": lambda: FakeServices({"num.partitions": "4"}),
    "other_settings": lambda: FakeServices(
        {
            "delete.topic.enable": "false",
            "log.retention.hours": "24",
            "message.max.bytes": "800000",
            "min.insync.replicas": "2",
            "num.partitions": "3",
        }
    ),
    "three_nodes": lambda: FakeServices({"num.partitions": "4"}, brokers=(1, 2, 3), dead=(3,)),
}

OTHER_LOGGERS = "the loggers of a JVM are not ours"
UNKNOWN_OPERATION = "Kafka runs into an exception and says -1, a client's fault is 42"
COUNTED_FROM_ORIGINAL = (
    "a new target is counted from the replicas before any move (KIP-455); Kafka counts from those "
    "of the last one and forgets who was only being added"
)
WITHOUT_ELIGIBLE = (
    "recorded without eligible.leader.replicas.version; with it Kafka, too, refuses to replace the "
    "cluster's settings without min.insync.replicas"
)
DIFFERENT = {
    "alter/broker default replaces": WITHOUT_ELIGIBLE,
    "create/collides in one request": "colliding names are refused within one request, too",
    "create/exactly the most partitions": "Kafka's limit counts records, ours partitions",
    "create/static defaults": "retention.ms has the source that DescribeConfigs tells",
    "describe/after replaces": WITHOUT_ELIGIBLE,
    "describe/broker keys": "the default of node.id is 0 here",
    "describe/logger": OTHER_LOGGERS,
    "describe/logger root": OTHER_LOGGERS,
    "features/kraft": "there is no kraft.version here",
    "features/same v0": "success has no message; Kafka says NONE",
    "features/same v1": "success has no message; Kafka says NONE",
    "incremental/bad operation": UNKNOWN_OPERATION,
    "incremental/client metrics append": "Kafka does not know that these are lists",
    "incremental/logger bad operation": UNKNOWN_OPERATION,
    "partitions/too many": "Kafka runs into an exception and says -1; here it is the limit's code",
    "reassign/factor change refused while under way": COUNTED_FROM_ORIGINAL,
    "reassignments/another target": COUNTED_FROM_ORIGINAL,
    "reassignments/v0": COUNTED_FROM_ORIGINAL,
}


@cache
def conversation(name: str) -> dict[str, tuple[Any, Any]]:
    """Question -> our answer and Kafka's. One after the other: each changes what the next finds."""
    root_level = logging.root.level
    services = CONVERSATIONS[name]()
    answers = {}
    try:
        for entry in recorded(name):
            ours = reply(services, entry)
            answers[entry["name"]] = compared(without_words(ours), without_words(entry["response"]))
    finally:
        logging.root.setLevel(root_level)
    return answers


def without_words(value: Any) -> Any:
    if isinstance(value, list):
        return [without_words(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: "some words" if key == "error_message" and item else without_words(item)
        for key, item in value.items()
    }


QUESTIONS = [(name, entry["name"]) for name in CONVERSATIONS for entry in recorded(name)]


def test_no_question_is_asked_twice() -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS)


@pytest.mark.parametrize(("name", "question"), QUESTIONS)
def test_answer(name: str, question: str) -> None:
    ours, kafkas = conversation(name)[question]
    if question in DIFFERENT:
        assert ours != kafkas
    else:
        assert ours == kafkas
