"""Goal: ListPartitionReassignments tells the moves that are under way, and no others.
Method: two moves, asked for in every way.
"""

from __future__ import annotations

import pytest

from ottla.handlers import api_46_list_partition_reassignments as module
from ottla.metadata.controller import Reassignment, decide_alter_reassignments
from tests.unit.handlers.fakes import FakeServices, ask, create_topic
from tests.unit.metadata.builders import SETTINGS

Move = tuple[str, int, list[int], list[int], list[int]]
T0: Move = ("t", 0, [2, 1], [2], [1])
U1: Move = ("u", 1, [1, 2], [2], [])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, [T0, U1]),
        ({}, []),
        ({"t": [0, 1]}, [T0]),
        ({"u": [0]}, []),
        ({"nope": [0], "u": [1, 7]}, [U1]),
    ],
)
def test_listed(asked: dict[str, list[int]] | None, expected: list[Move]) -> None:
    services = FakeServices(brokers=(1, 2))
    create_topic(services, "t", (1,), (1,))
    create_topic(services, "u", (1,), (1,))
    moves = [Reassignment("t", 0, (2,)), Reassignment("u", 1, (1, 2))]
    services.controller.submit(lambda image: decide_alter_reassignments(image, moves, SETTINGS))
    topics = None
    if asked is not None:
        topics = [{"name": name, "partition_indexes": found} for name, found in asked.items()]
    answer = ask(services, module, 0, timeout_ms=1000, topics=topics)
    assert (answer["error_code"], answer["error_message"]) == (0, None)
    assert [
        (
            topic["name"],
            each["partition_index"],
            each["replicas"],
            each["adding_replicas"],
            each["removing_replicas"],
        )
        for topic in answer["topics"]
        for each in topic["partitions"]
    ] == expected
