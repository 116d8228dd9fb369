"""Goal: groups are described in both versions, each on its own, and errors stay with their group.
Method: the handler over a real shard with one group.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import answer_budget
from ottla.handlers import api_68_consumer_group_heartbeat as heartbeat
from ottla.handlers import api_69_consumer_group_describe as module
from ottla.handlers.reply import CloseConnection
from ottla.protocol.error_codes import (
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    NOT_COORDINATOR,
    UNSUPPORTED_VERSION,
)
from tests.unit.handlers.consumer_group_fakes import GroupServices
from tests.unit.handlers.test_api_68_consumer_group_heartbeat import JOIN

NOT_ASKED_FOR = -(2**31)
# Read, delete, describe, describe and alter configs: as Kafka 4.3.1 without an authorizer.
ON_GROUP = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def describe(
    services: GroupServices, *group_ids: str, version: int = 1, with_operations: bool = False
) -> list[dict[str, Any]]:
    answer = services.ask(
        module,
        version,
        group_ids=list(group_ids),
        include_authorized_operations=with_operations,
    )
    groups: list[dict[str, Any]] = answer["groups"]
    return groups


@pytest.mark.parametrize("version", [0, 1])
def test_a_group(version: int) -> None:
    services = GroupServices()
    services.ask(heartbeat, 1, **JOIN)
    (group,) = describe(services, "g", version=version)
    topic_id = str(services.groups.hosted.image.topics["t"].topic_id)
    has = [{"topic_id": topic_id, "topic_name": "t", "partitions": [0, 1]}]
    (member,) = group.pop("members")
    assert group == {
        "error_code": 0,
        "error_message": None,
        "group_id": "g",
        "group_state": "Stable",
        "group_epoch": 2,
        "assignment_epoch": 2,
        "assignor_name": "uniform",
        "authorized_operations": NOT_ASKED_FOR,
    }
    assert member == {
        "member_id": "m",
        "instance_id": None,
        "rack_id": None,
        "member_epoch": 2,
        "client_id": "test",
        "client_host": "/10.1.2.3",
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": "",
        "assignment": {"topic_partitions": has},
        "target_assignment": {"topic_partitions": has},
        "member_type": 1 if version else -1,
    }


def test_what_a_client_may_do_is_told_if_it_asks() -> None:
    services = GroupServices()
    services.ask(heartbeat, 1, **JOIN)
    found, missing = describe(services, "g", "h", with_operations=True)
    assert found["authorized_operations"] == ON_GROUP
    assert missing["authorized_operations"] == NOT_ASKED_FOR


def test_each_on_its_own() -> None:
    services = GroupServices()
    services.ask(heartbeat, 1, **JOIN)
    services.groups.codes["elsewhere"] = NOT_COORDINATOR
    groups = describe(services, "g", "", "elsewhere", "unknown")
    codes = {group["group_id"]: group["error_code"] for group in groups}
    assert codes == {
        "g": 0,
        "": INVALID_GROUP_ID,
        "elsewhere": NOT_COORDINATOR,
        "unknown": GROUP_ID_NOT_FOUND,
    }


def test_switched_off() -> None:
    services = GroupServices(protocols="classic")
    assert [group["error_code"] for group in describe(services, "g", "h")] == [
        UNSUPPORTED_VERSION,
        UNSUPPORTED_VERSION,
    ]


def test_one_that_is_named_again_is_told_again() -> None:
    services = GroupServices()
    services.ask(heartbeat, 1, **JOIN)
    told = describe(services, "g", "nobody", "g", "", with_operations=True)
    assert sorted(one["group_id"] for one in told) == ["", "g", "g", "nobody"]
    twins = [one for one in told if one["group_id"] == "g"]
    assert twins[0] == twins[1]
    assert len(twins[0]["members"]) == 1


def test_no_group_is_told_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_budget, "RESPONSE_ENTRIES_MAX", 1_000)
    services = GroupServices()
    services.ask(heartbeat, 1, **JOIN)
    assert len(describe(services, *["g"] * 250)) == 250
    with pytest.raises(CloseConnection, match="more than 1,000 entries"):
        describe(services, *["g"] * 251)
