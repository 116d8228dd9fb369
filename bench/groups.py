"""Requests about groups that several loads share: committing, and waiting for a coordinator."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.wire import AnswerError, Connection, frame
from ottla.protocol import api_keys
from ottla.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
    name_of,
)

COORDINATOR_SECONDS_MAX = 120
COMMIT_VERSION = 9
_FETCH_VERSION = 8
_FIND_VERSION = 4
_GROUP_KEY = 0
_POLL_S = 0.01
NOT_YET = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})


def commit_frame(group: str, topic: str, partitions: int, offset: int) -> bytes:
    """A commit by nobody's member: what a consumer does that assigns its partitions itself."""
    committed = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for index in range(partitions)
    ]
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": committed}],
    }
    return frame(api_keys.OFFSET_COMMIT, COMMIT_VERSION, fields)


def commit_error_position(topic: str) -> int:
    """Of the first partition: after the header, the throttle time, two counts, name and index."""
    return 4 + 1 + 4 + 1 + 1 + len(topic) + 1 + 4


def wait_until_coordinated(bootstrap: str, groups: Sequence[str], topic: str) -> None:
    """Returns when the offsets of every group can be read; finds (and so makes) the coordinator."""
    deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
    with Connection(bootstrap) as connection:
        while not (_are_found(connection, groups) and _are_loaded(connection, groups, topic)):
            if time.monotonic() > deadline:
                raise AnswerError(f"no coordinator after {COORDINATOR_SECONDS_MAX} s")
            time.sleep(_POLL_S)


def _are_found(connection: Connection, groups: Sequence[str]) -> bool:
    fields = {"key_type": _GROUP_KEY, "coordinator_keys": list(groups)}
    answer = connection.call(api_keys.FIND_COORDINATOR, _FIND_VERSION, fields)
    return _are_answered([found.error_code for found in answer.coordinators])


def _are_loaded(connection: Connection, groups: Sequence[str], topic: str) -> bool:
    wanted = [{"name": topic, "partition_indexes": [0]}]
    asked = [{"group_id": group, "topics": wanted} for group in groups]
    fields = {"groups": asked, "require_stable": False}
    answer = connection.call(api_keys.OFFSET_FETCH, _FETCH_VERSION, fields)
    return _are_answered([found.error_code for found in answer.groups])


def _are_answered(error_codes: Sequence[int]) -> bool:
    for error_code in error_codes:
        if error_code not in NOT_YET and error_code != NONE:
            raise AnswerError(f"the coordinator answered {name_of(error_code)}")
    return all(error_code == NONE for error_code in error_codes)
