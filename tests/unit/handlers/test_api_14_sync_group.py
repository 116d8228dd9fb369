"""Goal: assignments reach their members in every version. Method: a real shard behind it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import api_14_sync_group as handler
from tests.unit.handlers.group_fakes import GroupServices


def sync(services: GroupServices, version: int, member_id: str, **changes: Any) -> Any:
    fields = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member_id, "assignment": b"all"}],
    }
    return services.ask(handler, version, **(fields | changes))


@pytest.mark.parametrize("version", range(6))
def test_a_sync(version: int) -> None:
    services = GroupServices()
    member_id = services.join().member_id
    answer = sync(services, version, member_id)
    assert (answer.error_code, answer.assignment) == (0, b"all")
    assert answer.protocol_name == ("range" if version >= 5 else None)


def test_refusals() -> None:
    services = GroupServices()
    assert sync(services, 5, "x").error_code == 25
    assert sync(services, 5, "x", group_id="").error_code == 24
    assert sync(services, 5, "x", protocol_name=None).error_code == 23
    assert sync(services, 5, "x", protocol_type=None).error_code == 23
    assert sync(services, 4, "x").error_code == 25
    services.groups.refusal = 14
    assert sync(services, 5, "x").error_code == 14
