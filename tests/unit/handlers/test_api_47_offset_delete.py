"""Goal: offsets are forgotten, but none that are in use. Method: a real shard behind it."""

from __future__ import annotations

from typing import Any

from ottla.handlers import api_47_offset_delete as handler
from tests.unit.handlers.group_fakes import GroupServices


def delete(services: GroupServices, *places: tuple[str, int], group: str = "g") -> Any:
    topics = [
        {"name": topic, "partitions": [{"partition_index": index}]} for topic, index in places
    ]
    answer = services.ask(handler, 0, group_id=group, topics=topics)
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    return answer.error_code, codes


def test_a_deletion() -> None:
    services = GroupServices()
    services.commit(5)
    places = (("t", 0), ("t", 1), ("t", 9), ("nowhere", 0))
    assert delete(services, *places) == (0, [3, 0, 0, 3])
    assert services.hosted.shard.offsets.count == 0


def test_topics_are_told_in_kafkas_order() -> None:
    services = GroupServices()
    services.commit(5)
    named = [("t", []), ("t", [0, 9]), ("nowhere", [1]), ("t", [1]), ("nowhere", [0])]
    topics = [
        {"name": topic, "partitions": [{"partition_index": index} for index in indexes]}
        for topic, indexes in named
    ]
    answer = services.ask(handler, 0, group_id="g", topics=topics)
    told = [
        (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in answer.topics
    ]
    assert told == [("t", [(9, 3), (0, 0), (1, 0)]), ("nowhere", [(1, 3), (0, 3)])]


def test_refusals() -> None:
    services = GroupServices()
    assert delete(services, ("t", 0), group="unknown") == (69, [])
    assert delete(services, ("t", 0), group="") == (24, [])
    services.join(protocol_type="connect")
    assert delete(services, ("t", 0)) == (68, [])
    services.groups.refusal = 16
    assert delete(services, ("t", 0)) == (16, [])
