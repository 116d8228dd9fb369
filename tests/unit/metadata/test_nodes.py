"""Goal: nodes read as Kafka wrote them, and whatever else stands in one is refused with its path.
Method: documents of a Kafka on ZooKeeper; every writer read back; every field damaged in turn;
random JSON, which may only ever raise DamagedNode.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import nodes
from ottla.metadata.nodes import BrokerContent, DamagedNode, StateContent, TopicContent

TOPIC_ID = uuid.UUID("4e763b81-5cb9-47d3-a28b-a668df1949a5")
PATH = "/some/node"


def test_a_topic_of_kafka() -> None:
    content = (
        b'{"removing_replicas":{"1":[3]},"partitions":{"0":[1,2],"1":[2,3]},'
        b'"topic_id":"TnY7gVy5R9Oii6Zo3xlJpQ","adding_replicas":{},"version":3}'
    )
    assert nodes.read_topic(PATH, content) == TopicContent(
        TOPIC_ID, {0: (1, 2), 1: (2, 3)}, {}, {1: (3,)}
    )


def test_a_partition_of_kafka() -> None:
    content = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":5,"isr":[2,1]}'
    assert nodes.read_partition_state(PATH, content) == StateContent(2, 5, (2, 1), (), ())


def test_a_broker_of_kafka() -> None:
    content = (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://localhost:9092","SSL://[::1]:9093"],"jmx_port":-1,'
        b'"port":9092,"host":"localhost","version":5,"timestamp":"1700000000000"}'
    )
    assert nodes.read_broker(PATH, content) == BrokerContent(
        {"PLAINTEXT": ("localhost", 9092), "SSL": ("::1", 9093)}, {"PLAINTEXT": "PLAINTEXT"}, None
    )


def test_what_is_written_is_read_back() -> None:
    topic = nodes.topic(TOPIC_ID, {0: (1, 2)}, {0: (2,)}, {0: (1,)})
    assert nodes.read_topic(PATH, topic) == TopicContent(
        TOPIC_ID, {0: (1, 2)}, {0: (2,)}, {0: (1,)}
    )
    state = StateContent(2, 5, (2, 1), (3,), (1,))
    assert nodes.read_partition_state(PATH, nodes.partition_state(7, state)) == state
    endpoints = {"INTERNAL": ("h", 1), "SIX": ("::1", 2)}
    broker = nodes.broker_content(endpoints, {"INTERNAL": "SSL"}, "r", 5)
    assert nodes.read_broker(PATH, broker) == BrokerContent(endpoints, {"INTERNAL": "SSL"}, "r")
    lost = {TOPIC_ID: frozenset({0, 2})}
    broker = nodes.broker_content(endpoints, {}, None, unclean=True, offline=lost)
    read = nodes.read_broker(PATH, broker)
    assert (read.fenced, read.unclean, read.offline) == (False, True, lost)
    assert nodes.read_configs(PATH, nodes.configs({"a": "b"})) == {"a": "b"}
    assert nodes.read_cluster_id(PATH, nodes.cluster_id("x")) == "x"
    assert nodes.read_controller(PATH, nodes.controller(3)) == 3
    assert nodes.read_controller_epoch(PATH, nodes.controller_epoch(3)) == 3
    assert nodes.read_features(PATH, nodes.features({"f": 2})) == {"f": 2}
    block = nodes.producer_id_block(1, 1000, 1999)
    assert nodes.read_producer_id_block_end(PATH, block) == 1999


def test_a_plain_state_is_kafkas_own() -> None:
    state = json.loads(nodes.partition_state(7, StateContent(2, 5, (2, 1), (), ())))
    assert state == {
        "controller_epoch": 7,
        "leader": 2,
        "version": 1,
        "leader_epoch": 5,
        "isr": [2, 1],
    }


def test_a_broker_without_a_listener_can_be_written() -> None:
    assert nodes.read_broker(PATH, nodes.broker_content({}, {}, None)).endpoints == {}


GOOD_TOPIC = {"topic_id": "TnY7gVy5R9Oii6Zo3xlJpQ", "partitions": {"0": [1, 2]}}
GOOD_STATE = {"leader": 1, "leader_epoch": 0, "isr": [1]}
GOOD_BROKER = {"endpoints": ["A://h:1"]}


@pytest.mark.parametrize(
    "damage",
    [
        {"topic_id": None},
        {"topic_id": 5},
        {"topic_id": "short"},
        {"topic_id": "!!!!!!!!!!!!!!!!!!!!!!"},
        {"partitions": None},
        {"partitions": []},
        {"partitions": {}},
        {"partitions": {"1": [1]}},
        {"partitions": {"0": []}},
        {"partitions": {"0": [1, 1]}},
        {"partitions": {"0": [-1]}},
        {"partitions": {"0": [True]}},
        {"partitions": {"0": ["1"]}},
        {"partitions": {"0": 1}},
        {"partitions": {"x": [1]}},
        {"partitions": {"-1": [1]}},
        {"partitions": {"0" * 5000: [1]}},
        {"adding_replicas": {"0": [9]}},
        {"adding_replicas": {"5": [1]}},
        {"removing_replicas": [1]},
    ],
)
def test_damaged_topic(damage: dict[str, Any]) -> None:
    nodes.read_topic(PATH, nodes.encode(GOOD_TOPIC))
    with pytest.raises(DamagedNode) as damaged:
        nodes.read_topic(PATH, nodes.encode({**GOOD_TOPIC, **damage}))
    assert damaged.value.path == PATH
    assert PATH in str(damaged.value)


@pytest.mark.parametrize(
    "damage",
    [
        {"leader": None},
        {"leader": "1"},
        {"leader": 1.0},
        {"leader_epoch": True},
        {"isr": None},
        {"isr": "1"},
        {"isr": [None]},
        {"eligible": 3},
        {"last_known": [{}]},
    ],
)
def test_damaged_state(damage: dict[str, Any]) -> None:
    nodes.read_partition_state(PATH, nodes.encode(GOOD_STATE))
    with pytest.raises(DamagedNode):
        nodes.read_partition_state(PATH, nodes.encode({**GOOD_STATE, **damage}))


@pytest.mark.parametrize(
    "damage",
    [
        {"endpoints": None},
        {"endpoints": ["nonsense"]},
        {"endpoints": ["A://h"]},
        {"endpoints": ["A://h:port"]},
        {"endpoints": [7]},
        {"rack": 7},
        {"listener_security_protocol_map": {"A": 1}},
        {"offline_replicas": []},
        {"offline_replicas": {"short": [0]}},
        {"offline_replicas": {"TnY7gVy5R9Oii6Zo3xlJpQ": ["0"]}},
    ],
)
def test_damaged_broker(damage: dict[str, Any]) -> None:
    nodes.read_broker(PATH, nodes.encode(GOOD_BROKER))
    with pytest.raises(DamagedNode):
        nodes.read_broker(PATH, nodes.encode({**GOOD_BROKER, **damage}))


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (nodes.read_configs, b'{"config":[]}'),
        (nodes.read_configs, b'{"config":{"a":1}}'),
        (nodes.read_configs, b"{}"),
        (nodes.read_cluster_id, b'{"id":1}'),
        (nodes.read_controller, b'{"brokerid":"1"}'),
        (nodes.read_controller_epoch, b"one"),
        (nodes.read_features, b'{"features":1}'),
        (nodes.read_features, b'{"features":{"f":1}}'),
        (nodes.read_features, b'{"features":{"f":{}}}'),
        (nodes.read_producer_id_block_end, b'{"block_end":"-1"}'),
        (nodes.read_producer_id_block_end, b'{"block_end":999}'),
        (nodes.read_producer_id_block_end, b'{"block_end":"' + b"9" * 5000 + b'"}'),
        (nodes.read_controller_epoch, b"9" * 5000),
    ],
)
def test_other_damage(read: Callable[[str, bytes], Any], content: bytes) -> None:
    with pytest.raises(DamagedNode):
        read(PATH, content)


READERS: list[Callable[[str, bytes], Any]] = [
    nodes.read_topic,
    nodes.read_partition_state,
    nodes.read_broker,
    nodes.read_configs,
    nodes.read_cluster_id,
    nodes.read_controller,
    nodes.read_controller_epoch,
    nodes.read_features,
    nodes.read_producer_id_block_end,
]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"null", b"{", b"[" * 100_000])
def test_what_is_no_json_object(content: bytes) -> None:
    for read in READERS:
        with pytest.raises(DamagedNode):
            read(PATH, content)


NAMES = [
    "topic_id", "partitions", "adding_replicas", "leader", "leader_epoch", "isr", "endpoints",
    "rack", "config", "id", "brokerid", "features", "block_end", "0", "max_version_level",
]  # fmt: skip
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(NAMES), ANY_JSON), st.sampled_from(READERS))
def test_any_json_is_read_or_refused(content: Any, read: Callable[[str, bytes], Any]) -> None:
    with suppress(DamagedNode):
        read(PATH, nodes.encode(content))


@given(st.uuids())
def test_ids_are_written_as_kafka_does(value: uuid.UUID) -> None:
    text = nodes.encode_uuid(value)
    assert len(text) == 22
    assert nodes.decode_uuid(text) == value
