"""DeleteGroups 0-2: groups without members, and their offsets."""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context, GroupHost
from ottla.handlers.group_requests import Answer, by_host, gather

API_KEY = 42
VERSIONS = (0, 2)


def handle(context: Context, request: Any) -> Answer:
    def ask(host: GroupHost, group_ids: list[str]) -> Deferred[list[Fields]]:
        return host.write(lambda shard: shard.delete_groups(group_ids))

    answers = by_host(context, dict.fromkeys(request.groups_names), ask, _refused)
    return gather(
        answers, lambda parts: {"results": [one for part in parts for one in part["groups"]]}
    )


def _refused(group_id: str, code: int) -> Fields:
    return {"group_id": group_id, "error_code": code}
