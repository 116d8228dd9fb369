"""Goal: the settings are Kafka's, name by name.
Method: every definition against a table recorded from Apache Kafka 4.3.1: names, types, defaults,
the edges of the bounds, how a broker's setting may be changed, synonyms; differences are told.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError, InvariantError
from ottla.metadata.configs import reasons
from ottla.metadata.configs.definition import ConfigDefinition, Definitions, boolean, without_effect
from ottla.metadata.configs.definitions import (
    BROKER,
    BROKER_DEFAULT_OF_TOPIC,
    DIFFERENT_DEFAULTS,
    TOPIC,
    broker_synonyms,
    find_broker_definition,
    without_listener,
)
from ottla.metadata.configs.values import TYPE_NAMES

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_1.json").read_text())
BROKER_ROWS = {row[0]: row for row in KAFKA["broker"]}
TOPIC_ROWS = {row[0]: row for row in KAFKA["topic"]}
# Settings that Kafka knows for brokers while they run, but not in its file.
ONLY_DYNAMIC = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
# What Kafka changes while it runs, and Ottla does not.
FIXED_HERE = {"listeners", "listener.security.protocol.map"}
ALL_ROWS = [(BROKER, row) for row in KAFKA["broker"]] + [(TOPIC, row) for row in KAFKA["topic"]]
ROW_IDS = [f"{definitions.kind}:{row[0]}" for definitions, row in ALL_ROWS]


# Names of Kafka 3.9, the last one with ZooKeeper, that mean something here.
WITH_ZOOKEEPER = ("zookeeper.", "controlled.shutdown.", "leader.imbalance.")


def takes(definition: ConfigDefinition, text: str) -> bool:
    try:
        definition.parse(text)
    except ConfigError:
        return False
    return True


def test_every_name_of_kafka_is_known_and_every_other_is_of_our_own_or_of_the_past() -> None:
    assert len([row for row in BROKER_ROWS.values() if row[4] == "public"]) == 340
    assert len([row for row in TOPIC_ROWS.values() if row[4] == "public"]) == 33
    assert BROKER_ROWS.keys() <= BROKER.by_name.keys()
    assert TOPIC.by_name.keys() == TOPIC_ROWS.keys()
    for name in BROKER.by_name.keys() - BROKER_ROWS.keys() - ONLY_DYNAMIC:
        definition = BROKER.by_name[name]
        past = definition.documentation == reasons.PAST or name.startswith(WITH_ZOOKEEPER)
        assert name.startswith("ottla.") or (past and definition.hidden), name


@pytest.mark.parametrize(("definitions", "row"), ALL_ROWS, ids=ROW_IDS)
def test_type_default_and_mode(definitions: Definitions, row: list[str]) -> None:
    name, type_name, default, _, visibility, *mode = row
    definition = definitions.by_name[name]
    assert TYPE_NAMES[definition.type] == type_name
    assert definition.hidden == (visibility == "internal")
    assert definition.sensitive == (type_name == "PASSWORD")
    if name in FIXED_HERE:
        assert (definition.mode, mode) == ("read-only", ["per-broker"])
    else:
        assert [definition.mode] == (mode or ["read-only"])
    ours = definition.render(definition.default)
    if definitions is BROKER and name in DIFFERENT_DEFAULTS:
        assert ours != default, "no difference to tell of"
        assert DIFFERENT_DEFAULTS[name][0] == default
    else:
        assert ours == default
    assert ours is None or definition.parse(ours) == definition.default, "its own default"


@pytest.mark.parametrize(("definitions", "row"), ALL_ROWS, ids=ROW_IDS)
def test_the_edges_of_the_bounds(definitions: Definitions, row: list[str]) -> None:
    name, _, _, bounds, *_ = row
    definition = definitions.by_name[name]
    if match := re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]", bounds):
        low, high = match[1], match[2]
        assert takes(definition, low)
        assert not takes(definition, str(float(low) - 0.1 if "." in low else int(low) - 1))
        if high is not None:
            assert takes(definition, high)
            assert not takes(definition, str(float(high) + 0.1 if "." in high else int(high) + 1))
    elif match := re.fullmatch(r"(?:\(case insensitive\) )?\[(\w.*)\]", bounds):
        for word in match[1].split(", "):
            assert takes(definition, word)
            assert takes(definition, word.swapcase()) == bounds.startswith("(case")
        assert not takes(definition, "something.else")
    elif bounds == "non-empty string":
        assert not takes(definition, "")
    elif bounds == "[1,...,9] or -1":
        assert [level for level in range(-3, 12) if takes(definition, str(level))] == [
            -1,
            *range(1, 10),
        ]


def test_synonyms_are_those_of_kafka() -> None:
    recorded = KAFKA["broker_synonyms"]
    for name in BROKER_ROWS:
        assert list(broker_synonyms(name)) == recorded.get(name, [name])
    assert KAFKA["broker_default_of_topic"] == BROKER_DEFAULT_OF_TOPIC


def test_a_setting_of_one_listener_is_the_setting() -> None:
    assert without_listener("listener.name.internal.max.connections") == "max.connections"
    assert without_listener("listener.name.a.scram-sha-256.sasl.jaas.config") == "sasl.jaas.config"
    assert without_listener("max.connections") == "max.connections"
    found = find_broker_definition("listener.name.internal.max.connections")
    assert found is BROKER.by_name["max.connections"]
    assert find_broker_definition("listener.name.internal.no.such") is None
    assert broker_synonyms("listener.name.a.max.connections") == (
        "listener.name.a.max.connections",
        "max.connections",
    )


def test_every_setting_says_in_our_words_what_it_does_or_why_it_does_nothing() -> None:
    known = {text for name, text in vars(reasons).items() if name.isupper()}
    for definition in (*BROKER.by_name.values(), *TOPIC.by_name.values()):
        assert (definition.documentation in known) != definition.has_effect, definition.name
        assert definition.documentation.endswith("."), definition.name


def test_what_a_single_node_needs() -> None:
    for name in (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    ):
        assert BROKER.by_name[name].default == 1
    assert BROKER.by_name["group.initial.rebalance.delay.ms"].default == 0


def test_a_name_is_defined_once_and_says_one_thing() -> None:
    with pytest.raises(InvariantError, match=r"a\.b is defined twice"):
        Definitions("x", [boolean("a.b", True), boolean("a.b", False)])
    with pytest.raises(InvariantError, match=r"a\.b says what it does"):
        without_effect(reasons.JAVA, boolean("a.b", True, about="It does."))
