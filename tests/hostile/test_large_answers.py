"""Goal: a small request can not have an answer that no broker could make.
Method: each kind of description, asked for thousands of times in one request, over a real socket
to a broker process with little memory; meanwhile and afterwards a well-behaved client.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.protocol.messages import decode_response, encode_request
from tests.compat.confluent import create_topic, producer
from tests.compat.wire import Wire
from tests.hostile.conftest import LimitedNode
from tests.hostile.test_bad_input import connect, is_closed, request_header
from tests.hostile.well_behaved import produce_and_read_back
from tests.patience import SECONDS_MAX

CONFIGS, OFFSETS, PRODUCERS, GROUPS = 32, 9, 61, 69
BROKER = 4


@pytest.fixture
def node(hostile_node: LimitedNode) -> LimitedNode:
    produce_and_read_back(hostile_node.bootstrap)
    return hostile_node


def is_refused(node: LimitedNode, api_key: int, version: int, **fields: Any) -> bool:
    """Whether the broker closes instead, serves others all the same, and has said why."""
    frame = request_header(api_key, version, flexible=True)
    frame += encode_request(api_key, version, fields)
    with connect(node) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        produce_and_read_back(node.bootstrap)
        return is_closed(connection)


def config_resources(count: int) -> list[dict[str, object]]:
    resource = {"resource_type": BROKER, "resource_name": "0", "configuration_keys": None}
    return [resource] * count


def test_the_settings_of_a_broker_a_hundred_thousand_times(node: LimitedNode) -> None:
    asked = {"include_synonyms": True, "include_documentation": True}
    assert is_refused(node, CONFIGS, 4, resources=config_resources(99_000), **asked)


def test_settings_that_are_alike_are_cheap(node: LimitedNode) -> None:
    before = node.resident_bytes()
    asked = {"include_synonyms": False, "include_documentation": False}
    body = encode_request(CONFIGS, 4, {"resources": config_resources(1_000), **asked})
    with Wire(node.bootstrap) as wire:
        wire.send_frame(request_header(CONFIGS, 4, flexible=True) + body)
        frame = wire.receive_frame()
    assert frame is not None
    assert len(decode_response(CONFIGS, 4, frame[5:]).results) == 1_000
    assert node.resident_bytes() - before < len(frame)


def test_the_offsets_of_a_group_a_hundred_thousand_times(node: LimitedNode) -> None:
    topic = create_topic(node.bootstrap, partitions=10)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": topic})
    offsets = [TopicPartition(topic, index, 0) for index in range(10)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    group = {"group_id": topic, "member_id": None, "member_epoch": -1, "topics": None}
    assert is_refused(node, OFFSETS, 9, groups=[group] * 99_000, require_stable=False)


def test_the_producers_of_a_partition_half_a_million_times(node: LimitedNode) -> None:
    topic = create_topic(node.bootstrap)
    sender = producer(node.bootstrap, {"enable.idempotence": True})
    sender.produce(topic, b"value", partition=0)
    assert sender.flush(SECONDS_MAX) == 0
    asked = {"name": topic, "partition_indexes": [0] * 400_000}
    assert is_refused(node, PRODUCERS, 0, topics=[asked])


def test_groups_that_nobody_knows_are_told_as_often_as_they_are_asked_for(
    node: LimitedNode,
) -> None:
    names = ["nobody"] * 50_000
    fields = {"group_ids": names, "include_authorized_operations": False}
    with Wire(node.bootstrap) as wire:
        body = encode_request(GROUPS, 1, fields)
        wire.send_frame(request_header(GROUPS, 1, flexible=True) + body)
        frame = wire.receive_frame()
    assert frame is not None
    assert len(decode_response(GROUPS, 1, frame[5:]).groups) == len(names)
