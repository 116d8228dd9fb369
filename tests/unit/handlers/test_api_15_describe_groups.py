"""Goal: groups are described in every version. Method: a real shard behind the handler."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import answer_budget
from ottla.handlers import api_15_describe_groups as handler
from ottla.handlers.reply import CloseConnection
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
    assert [(one.group_id, one.error_code) for one in found] == [("g", 16), ("g", 16), ("h", 16)]
    assert describe(services, 6) == []


def test_one_that_is_named_again_is_told_again() -> None:
    services = GroupServices()
    services.settle()
    told = describe(services, 6, "g", "nobody", "g", "nobody", operations=True)
    assert [one.group_id for one in told] == ["g", "g", "nobody", "nobody"]
    assert told[0] == told[1]
    assert told[2] == told[3]
    assert len(told[0].members) == 1
    assert told[0].authorized_operations == 3400


def test_no_group_is_told_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_budget, "RESPONSE_ENTRIES_MAX", 1_000)
    services = GroupServices()
    services.settle()
    assert len(describe(services, 6, *["g"] * 500)) == 500
    with pytest.raises(CloseConnection, match="more than 1,000 entries"):
        describe(services, 6, *["g"] * 501)


def test_nor_any_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_budget, "RESPONSE_BYTES_MAX", 1_000)
    services = GroupServices()
    services.settle()
    (one,) = describe(services, 6, "g")
    (member,) = one.members
    times = 1_000 // (len(member.member_metadata) + len(member.member_assignment))
    assert len(describe(services, 6, *["g"] * times)) == times
    with pytest.raises(CloseConnection, match="more than 1,000 bytes"):
        describe(services, 6, *["g"] * (times + 1))
