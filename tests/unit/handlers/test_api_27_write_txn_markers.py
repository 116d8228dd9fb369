"""Goal: markers are written where they are asked for, and each partition is told its own code.
Method: a writer that keeps what it was asked for.
"""

from __future__ import annotations

import pytest

from ottla.handlers import api_27_write_txn_markers as module
from tests.unit.handlers.read_fakes import ask, versions_of
from tests.unit.handlers.transaction_fakes import transactional_services


@pytest.mark.parametrize("version", versions_of(module))
def test_markers(version: int) -> None:
    services, world = transactional_services()
    asked = [
        {
            "producer_id": 7,
            "producer_epoch": 3,
            "transaction_result": committed,
            "topics": [{"name": "t", "partition_indexes": [0, 2]}],
            "coordinator_epoch": 1,
            "transaction_version": 0,
        }
        for committed in (True, False)
    ]
    answer = ask(module, services, version, markers=asked)
    assert world.markers == [
        ("t", index, 7, 3, committed) for committed in (True, False) for index in (0, 2)
    ]
    for result in answer["markers"]:
        assert result["producer_id"] == 7
        (topic,) = result["topics"]
        assert topic["name"] == "t"
        assert topic["partitions"] == [
            {"partition_index": 0, "error_code": 0},
            {"partition_index": 2, "error_code": 0},
        ]
    world.marker_code = 47
    answer = ask(module, services, version, markers=asked[:1])
    partitions = answer["markers"][0]["topics"][0]["partitions"]
    assert [one["error_code"] for one in partitions] == [47, 47]


@pytest.mark.parametrize("version", versions_of(module))
@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, 0), (-5, 3), (7, -2)])
def test_no_marker_for_what_no_producer_has(
    version: int, producer_id: int, producer_epoch: int
) -> None:
    """Kafka 4.3.1 tells UNKNOWN_SERVER_ERROR of each partition, and writes nothing."""
    services, world = transactional_services()
    asked = {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [0, 2]}],
        "coordinator_epoch": 1,
        "transaction_version": 0,
    }
    (result,) = ask(module, services, version, markers=[asked])["markers"]
    assert result["producer_id"] == producer_id
    assert [one["error_code"] for one in result["topics"][0]["partitions"]] == [-1, -1]
    assert world.markers == []
