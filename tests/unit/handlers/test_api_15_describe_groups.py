"""Goal: groups are described in every version. Method: a real shard behind the handler."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import api_15_describe_groups as handler
from tests.unit.handlers.group_fakes import GroupServices

NOT_ASKED_FOR = -(2**31)


def describe(services: GroupServices, version: int, *groups: str, operations: bool = False) -> Any:
    answer = services.ask(
        handler, version, groups=list(groups), include_authorized_operations=operations
    )
    return answer.groups


@pytest.mark.parametrize("version", range(7))
def test_a_group(version: int) -> None:
    services = GroupServices()
    member_id = services.settle()
    found, unknown = describe(services, version, "g", "unknown")
    assert (found.error_code, found.group_state, found.protocol_data) == (0, "Stable", "range")
    assert [(one.member_id, one.member_assignment) for one in found.members] == [
        (member_id, b"all")
    ]
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (69 if version >= 6 else 0)
    assert unknown.error_message == ("Group unknown not found." if version >= 6 else None)


def test_what_one_may_do() -> None:
    services = GroupServices()
    services.settle()
    (found,) = describe(services, 5, "g", operations=True)
    assert found.authorized_operations == 3400
    (found,) = describe(services, 5, "unknown", operations=True)
    assert found.authorized_operations == 3400
    (found,) = describe(services, 6, "unknown", operations=True)
    assert found.authorized_operations == NOT_ASKED_FOR
    (found,) = describe(services, 5, "g")
    assert found.authorized_operations == NOT_ASKED_FOR


def test_a_coordinator_that_is_elsewhere() -> None:
    services = GroupServices()
    services.groups.refusal = 16
    found = describe(services, 6, "g", "h", "g")
    assert [(one.group_id, one.error_code) for one in found] == [("g", 16), ("h", 16)]
    assert describe(services, 6) == []
