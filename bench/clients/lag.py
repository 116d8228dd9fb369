"""The lag of every group, asked for as kafka-consumer-groups does: all groups listed and described,
then for each the committed offsets and the ends of its partitions. By one light client.
"""

from __future__ import annotations

import time

from bench.clients.command import run_as_command
from bench.processes import cpu_seconds
from bench.topics import LATEST
from bench.wire import AnswerError, Connection, frame
from ottla.protocol import api_keys

_DESCRIBE_AT_ONCE = 100
PREFIX = "lag-"


def list_lags(
    *, bootstrap: str, pid: int, topic: str, groups: int, partitions: int, seconds: float
) -> dict[str, float]:
    with Connection(bootstrap) as connection:
        _listing(connection, topic, groups, partitions)
        listings, before, begin = 0, cpu_seconds(pid), time.perf_counter()
        while time.perf_counter() < begin + seconds:
            _listing(connection, topic, groups, partitions)
            listings += 1
        took_s, used = time.perf_counter() - begin, cpu_seconds(pid) - before
    return {"listing_ms": took_s / listings * 1e3, "cpu_ms": used / listings * 1e3}


def _listing(connection: Connection, topic: str, groups: int, partitions: int) -> None:
    listed = connection.call(api_keys.LIST_GROUPS, 4, {"states_filter": []}).groups
    names = [group.group_id for group in listed if group.group_id.startswith(PREFIX)]
    if len(names) != groups:
        raise AnswerError(f"{len(names)} of {groups} groups were listed")
    for begin in range(0, len(names), _DESCRIBE_AT_ONCE):
        some = names[begin : begin + _DESCRIBE_AT_ONCE]
        described = {"groups": some, "include_authorized_operations": False}
        connection.exchange(frame(api_keys.DESCRIBE_GROUPS, 5, described))
    ends = frame(api_keys.LIST_OFFSETS, 7, _ends(topic, partitions))
    for name in names:
        asked = {"groups": [{"group_id": name, "topics": None}], "require_stable": False}
        connection.exchange(frame(api_keys.OFFSET_FETCH, 8, asked))
        connection.exchange(ends)


def _ends(topic: str, partitions: int) -> dict[str, object]:
    wanted = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": LATEST}
        for index in range(partitions)
    ]
    topics = [{"name": topic, "partitions": wanted}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


if __name__ == "__main__":
    run_as_command(list_lags)
