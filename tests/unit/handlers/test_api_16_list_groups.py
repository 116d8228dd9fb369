"""Goal: the listing is complete or says that it is not. Method: a real shard behind it."""

from __future__ import annotations

import pytest

from ottla.handlers import api_16_list_groups as handler
from tests.unit.handlers.group_fakes import GroupServices


@pytest.mark.parametrize("version", range(6))
def test_a_listing(version: int) -> None:
    services = GroupServices()
    services.settle()
    services.commit(1, group_id="simple")
    answer = services.ask(handler, version, states_filter=[], types_filter=[])
    assert answer.error_code == 0
    told = [(one.group_id, one.protocol_type) for one in answer.groups]
    assert told == [("g", "consumer"), ("simple", "")]
    if version >= 5:
        assert {one.group_type for one in answer.groups} == {"classic"}


def test_filters() -> None:
    services = GroupServices()
    services.settle()
    services.commit(1, group_id="simple")

    def names(states: list[str], kinds: list[str]) -> list[str]:
        answer = services.ask(handler, 5, states_filter=states, types_filter=kinds)
        return [one.group_id for one in answer.groups]

    assert names(["EMPTY"], []) == ["simple"]
    assert names(["stable", "Empty"], ["Classic"]) == ["g", "simple"]
    assert names([], ["consumer"]) == []
    assert names(["nonsense"], []) == []


def test_a_listing_that_would_not_be_complete() -> None:
    services = GroupServices()
    services.settle()
    services.groups.loading = True
    answer = services.ask(handler, 5, states_filter=[], types_filter=[])
    assert (answer.error_code, answer.groups) == (14, [])


def test_a_shard_that_has_gone_is_listed_elsewhere() -> None:
    services = GroupServices()
    services.settle()
    services.hosted.host.close()
    answer = services.ask(handler, 5, states_filter=[], types_filter=[])
    assert (answer.error_code, answer.groups) == (0, [])
