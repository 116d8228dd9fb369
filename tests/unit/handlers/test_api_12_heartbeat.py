"""Goal: heartbeats of every version. Method: a real shard behind the handler."""

from __future__ import annotations

import pytest

from ottla.handlers import api_12_heartbeat as handler
from tests.unit.handlers.group_fakes import GroupServices


def beat(services: GroupServices, version: int = 4, **changes: object) -> int:
    fields = {"group_id": "g", "generation_id": 1, "member_id": "", "group_instance_id": None}
    code: int = services.ask(handler, version, **(fields | changes)).error_code
    return code


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat(version: int) -> None:
    services = GroupServices()
    member_id = services.settle()
    assert beat(services, version, member_id=member_id) == 0
    assert beat(services, version, member_id=member_id, generation_id=2) == 22
    assert beat(services, version, member_id="other") == 25
    assert beat(services, version, group_id="") == 24


def test_while_the_group_is_loaded_its_members_live() -> None:
    services = GroupServices()
    services.groups.refusal = 14
    assert beat(services) == 0
    services.groups.refusal = 16
    assert beat(services) == 16
