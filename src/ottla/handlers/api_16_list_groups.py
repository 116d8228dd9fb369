"""ListGroups 0-5: the groups that this broker coordinates. v4 filters by state, v5 by type."""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, gather
from ottla.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS, NONE

API_KEY = 16
VERSIONS = (0, 5)


def handle(context: Context, request: Any) -> Answer:
    groups = context.services.groups
    if groups.is_loading():
        # A listing that lacks groups for a moment would be taken for their deletion.
        return {"error_code": COORDINATOR_LOAD_IN_PROGRESS, "groups": []}
    answers = [_listed(host.read(lambda shard: _list(shard, request))) for host in groups.hosts()]
    return gather(answers, _combine)


def _list(shard: Any, request: Any) -> Fields:
    return {"groups": shard.list_groups(request.states_filter, request.types_filter)}


def _listed(answer: Deferred[Fields]) -> Answer:
    """A shard that has gone meanwhile is listed by its new broker."""
    listed: Deferred[Fields] = Deferred()

    def done(outcome: Deferred[Fields]) -> None:
        try:
            listed.resolve(outcome.result())
        except ProtocolError:
            listed.resolve({"groups": []})

    answer.when_done(done)
    return listed.result() if listed.done else listed


def _combine(parts: list[Fields]) -> Fields:
    return {"error_code": NONE, "groups": [group for part in parts for group in part["groups"]]}
