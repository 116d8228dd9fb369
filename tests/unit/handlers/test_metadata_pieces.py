"""Goal: an answer joined from kept pieces is the one that the codec would make in one go.
Method: both ways for every version and number of topics; what changes is encoded anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.handlers.metadata_pieces import MetadataPieces
from ottla.metadata.image import TopicImage
from ottla.protocol.messages import encode_response
from tests.unit.handlers.read_fakes import a_broker, a_topic, an_image

VERSIONS = range(14)
SURROUNDINGS = {
    "throttle_time_ms": 0,
    "brokers": [
        {"node_id": number, "host": "a host", "port": 9092, "rack": "r"} for number in (1, 2)
    ],
    "cluster_id": "a cluster",
    "controller_id": 2,
    "cluster_authorized_operations": 8096,
    "error_code": 0,
}


def fields_of(topic: TopicImage) -> dict[str, Any]:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": True,
        "partitions": [
            {
                "error_code": 5,
                "partition_index": index,
                "leader_id": 1,
                "leader_epoch": 9,
                "replica_nodes": [1, 2],
                "isr_nodes": [1],
                "offline_replicas": [2],
            }
            for index in topic.partitions
        ],
        "topic_authorized_operations": 3576,
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 2, 126, 127, 300])
def test_joined_as_in_one_go(version: int, count: int) -> None:
    topics = [a_topic(f"t{number}") for number in range(count)]
    pieces = MetadataPieces(version, an_image(*topics), SURROUNDINGS)
    joined = pieces.join([pieces.keep(topic, fields_of(topic)) for topic in topics])
    whole = {**SURROUNDINGS, "topics": [fields_of(topic) for topic in topics]}
    assert joined == encode_response(3, version, whole)


def test_a_piece_is_kept_for_as_long_as_its_topic_is_the_same() -> None:
    topic = a_topic("t1")
    pieces = MetadataPieces(12, an_image(topic), SURROUNDINGS)
    assert pieces.kept(topic) is None
    piece = pieces.keep(topic, fields_of(topic))
    assert pieces.kept(topic) is piece
    # Equal is not enough: comparing every partition would cost more than encoding.
    assert pieces.kept(replace(topic)) is None


def test_all_is_forgotten_when_brokers_or_the_controller_change() -> None:
    image = an_image(a_topic("t1"))
    pieces = MetadataPieces(12, image, SURROUNDINGS)
    assert pieces.matches(image)
    assert pieces.matches(replace(image, topics={}, last_change=99))
    assert not pieces.matches(replace(image, brokers={1: a_broker()}))
    assert not pieces.matches(replace(image, controller_id=2))


def test_topics_that_are_gone_are_not_kept_for_ever() -> None:
    topics = [a_topic(f"t{number}") for number in range(3)]
    pieces = MetadataPieces(12, an_image(*topics), SURROUNDINGS)
    for topic in topics:
        pieces.keep(topic, fields_of(topic))
    pieces.forget_deleted(an_image(*topics))
    assert all(pieces.kept(topic) is not None for topic in topics)
    pieces.forget_deleted(an_image(topics[1]))
    assert [pieces.kept(topic) is not None for topic in topics] == [False, True, False]
