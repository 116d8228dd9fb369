"""Goal: a client finds the broker of its group, at once or as soon as there is one.
Method: every version; a topic that has yet to be made; leaders without an address.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.handlers import api_10_find_coordinator as handler
from tests.unit.handlers.group_fakes import GroupServices, read


def find(services: GroupServices, version: int, key_type: int = 0) -> Any:
    """The one coordinator, wherever the version has it."""
    answer = services.ask(handler, version, key="g", key_type=key_type, coordinator_keys=["g"])
    return answer.coordinators[0] if version >= 4 else answer


@pytest.mark.parametrize("version", range(7))
def test_where_a_group_is(version: int) -> None:
    found = find(GroupServices(), version)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "host1", 9092)


@pytest.mark.parametrize("version", [1, 3])
def test_of_one_coordinator_the_message_is_never_empty(version: int) -> None:
    services = GroupServices()
    assert find(services, version).error_message == "NONE"
    services.endpoints = {}
    assert find(services, version).error_message


def test_many_keys() -> None:
    answer = GroupServices().ask(handler, 4, key_type=0, coordinator_keys=["a", "b", "a"])
    assert [one.key for one in answer.coordinators] == ["a", "b", "a"]
    assert GroupServices().ask(handler, 4, key_type=0, coordinator_keys=[]).coordinators == []


def test_the_answer_waits_for_the_topic() -> None:
    services = GroupServices()
    services.groups.topic = Deferred()
    outcome = services.begin(handler, 4, key_type=0, coordinator_keys=["g"])
    assert isinstance(outcome, Deferred)
    assert not outcome.done
    services.groups.topic.resolve(None)
    (found,) = read(handler, 4, outcome.result()).coordinators
    assert (found.error_code, found.node_id) == (0, 1)


@pytest.mark.parametrize("version", [3, 4])
def test_a_topic_that_cannot_be_made(version: int) -> None:
    services = GroupServices()
    services.groups.topic = Deferred()
    services.groups.topic.fail(ProtocolError(15))
    found = find(services, version)
    assert (found.error_code, found.node_id, found.port) == (15, -1, -1)


def test_a_leader_that_cannot_be_reached() -> None:
    services = GroupServices()
    services.groups.leader = -1
    assert find(services, 4).error_code == 15
    services.groups.leader = 1
    services.endpoints = {}
    assert find(services, 4).error_code == 15


@pytest.mark.parametrize("version", [1, 6])
def test_kinds_that_are_not_known(version: int) -> None:
    found = find(GroupServices(), version, key_type=7)
    assert (found.error_code, found.node_id) == (42, -1)
    assert found.error_message
