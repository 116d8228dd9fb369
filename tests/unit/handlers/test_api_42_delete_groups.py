"""Goal: groups are deleted, each with its own result. Method: a real shard behind the handler."""

from __future__ import annotations

import pytest

from ottla.coordinator.offset_commits import commit_record
from ottla.coordinator.offsets_records import Commit
from ottla.coordinator.shard import Outcome
from ottla.handlers import api_42_delete_groups as handler
from tests.unit.handlers.group_fakes import GroupServices


def delete(services: GroupServices, version: int, *names: str) -> dict[str, int]:
    answer = services.ask(handler, version, groups_names=list(names))
    return {one.group_id: one.error_code for one in answer.results}


@pytest.mark.parametrize("version", range(3))
def test_a_deletion(version: int) -> None:
    services = GroupServices()
    services.settle()
    services.commit(1, group_id="simple")
    assert delete(services, version, "g", "simple", "unknown", "simple") == {
        "g": 68,
        "simple": 0,
        "unknown": 69,
    }
    assert delete(services, version, "simple") == {"simple": 69}
    assert services.hosted.shard.offsets.count == 0


def test_a_deletion_that_cannot_be_kept() -> None:
    services = GroupServices()
    services.commit(1, group_id="simple")
    services.hosted.partition.fail_code = 6
    assert delete(services, 2, "simple") == {"simple": 16}
    services.groups.refusal = 14
    assert delete(services, 2, "simple") == {"simple": 14}


def test_more_offsets_than_fit_into_a_batch() -> None:
    services = GroupServices()
    commits = [commit_record("simple", "t", index, Commit(1, 0, "", 1)) for index in range(100)]
    services.hosted.host.run(lambda shard: Outcome(commits, None))
    services.hosted.partition.config.max_message_bytes = 300
    assert delete(services, 2, "simple") == {"simple": 0}
    assert "simple" not in services.hosted.shard.groups
    assert services.hosted.shard.offsets.count == 0
