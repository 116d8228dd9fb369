"""Goal: members leave in every version, one or many. Method: a real shard behind the handler."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import api_13_leave_group as handler
from tests.unit.handlers.group_fakes import GroupServices


def leave(services: GroupServices, version: int, *member_ids: str, **changes: Any) -> Any:
    members = [{"member_id": one, "group_instance_id": None, "reason": None} for one in member_ids]
    fields = {"group_id": "g", "member_id": member_ids[0], "members": members}
    return services.ask(handler, version, **(fields | changes))


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves(version: int) -> None:
    services = GroupServices()
    member_id = services.settle()
    assert leave(services, version, member_id).error_code == 0
    assert leave(services, version, member_id).error_code == 25
    assert leave(services, version, "x", group_id="").error_code == 24
    services.groups.refusal = 16
    assert leave(services, version, "x").error_code == 16


@pytest.mark.parametrize("version", range(3, 6))
def test_many_leave(version: int) -> None:
    services = GroupServices()
    member_id = services.settle()
    answer = leave(services, version, member_id, "other")
    assert answer.error_code == 0
    assert [(one.member_id, one.error_code) for one in answer.members] == [
        (member_id, 0),
        ("other", 25),
    ]
    answer = leave(services, version, "x", group_id="unknown")
    assert (answer.error_code, [one.error_code for one in answer.members]) == (0, [25])
    services.groups.refusal = 16
    assert leave(services, version, "x").error_code == 16
