"""ListPartitionReassignments 0: the moves that are under way, all or those of some partitions."""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields
from ottla.metadata.image import PartitionState
from ottla.protocol.error_codes import NONE

API_KEY = 46
VERSIONS = (0, 0)


def handle(context: Context, request: Any) -> Fields:
    wanted = None
    if request.topics is not None:
        wanted = {
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        }
    topics: dict[str, list[Fields]] = {}
    for name, index, state in context.services.image.reassigning():
        if wanted is None or (name, index) in wanted:
            topics.setdefault(name, []).append(_partition(index, state))
    return {
        "throttle_time_ms": 0,
        "error_code": NONE,
        "error_message": None,
        "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
    }


def _partition(index: int, state: PartitionState) -> Fields:
    return {
        "partition_index": index,
        "replicas": state.replicas,
        "adding_replicas": state.adding,
        "removing_replicas": state.removing,
    }
