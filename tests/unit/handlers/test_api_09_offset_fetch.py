"""Goal: offsets come back in the shape of every version, errors where that version has a place.
Method: a real shard behind the handler; a coordinator that is elsewhere; pending transactions.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from ottla.coordinator.offset_commits import commit_record
from ottla.coordinator.offsets_records import Commit
from ottla.handlers import answer_budget
from ottla.handlers import api_09_offset_fetch as handler
from ottla.handlers.reply import CloseConnection
from tests.unit.handlers.group_fakes import GroupServices


def fetch(services: GroupServices, version: int, topics: Any = None, **options: Any) -> Any:
    """One group's answer, wherever the version has it."""
    if version < 8:
        return services.ask(handler, version, group_id="g", topics=topics, **options)
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    (answer,) = services.ask(handler, version, groups=[group], **options).groups
    return answer


def asked(services: GroupServices, *indexes: int) -> list[dict[str, object]]:
    topic_id = services.image.topics["t"].topic_id
    return [{"name": "t", "topic_id": topic_id, "partition_indexes": list(indexes)}]


@pytest.mark.parametrize("version", range(1, 11))
def test_what_was_committed_and_what_was_not(version: int) -> None:
    services = GroupServices()
    services.commit(7)
    (topic,) = fetch(services, version, asked(services, 0, 1), require_stable=True).topics
    told = [(one.committed_offset, one.metadata, one.error_code) for one in topic.partitions]
    assert told == [(7, "", 0), (-1, "", 0)]
    if version >= 10:
        assert topic.topic_id == services.image.topics["t"].topic_id


@pytest.mark.parametrize("version", range(2, 11))
def test_everything_of_a_group(version: int) -> None:
    services = GroupServices()
    assert fetch(services, version, require_stable=False).topics == []
    services.commit(7)
    (topic,) = fetch(services, version, require_stable=False).topics
    assert [one.committed_offset for one in topic.partitions] == [7]


def test_ids_that_are_not_known_are_told_last() -> None:
    services = GroupServices()
    services.commit(7)
    unknown = {"name": "", "topic_id": uuid.uuid4(), "partition_indexes": [0]}
    answer = fetch(services, 10, [unknown, *asked(services, 0)], require_stable=True)
    told = [(one.topic_id, one.partitions[0].error_code) for one in answer.topics]
    assert told == [(services.image.topics["t"].topic_id, 0), (unknown["topic_id"], 100)]


def test_many_groups_at_once() -> None:
    services = GroupServices()
    services.commit(7)
    services.commit(8, group_id="h")
    groups = [
        {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None}
        for name in ("g", "h", "unknown")
    ]
    answer = services.ask(handler, 9, groups=groups, require_stable=False)
    told = [
        (group.group_id, [one.committed_offset for t in group.topics for one in t.partitions])
        for group in answer.groups
    ]
    assert told == [("g", [7]), ("h", [8]), ("unknown", [])]


def test_topics_by_id() -> None:
    services = GroupServices()
    services.commit(7)
    unknown = [{"topic_id": uuid.uuid4(), "partition_indexes": [0]}]
    (topic,) = fetch(services, 10, unknown, require_stable=False).topics
    assert [one.error_code for one in topic.partitions] == [100]
    # A commit of a topic that had this name before is none of this one.
    old = Commit(3, 0, "", 1, topic_id=uuid.uuid4())
    services.hosted.shard.replay(commit_record("g", "t", 1, old))
    (topic,) = fetch(services, 10, asked(services, 0, 1), require_stable=False).topics
    assert [one.committed_offset for one in topic.partitions] == [7, -1]
    services.hosted.shard.replay(commit_record("g", "deleted", 0, old))
    names = [topic.name for topic in fetch(services, 9, require_stable=False).topics]
    assert sorted(names) == ["deleted", "t"]
    assert len(fetch(services, 10, require_stable=False).topics) == 1


def test_offsets_of_an_open_transaction() -> None:
    services = GroupServices()
    services.commit(7)
    record = commit_record("g", "t", 0, Commit(9, 0, "", 1))
    services.hosted.shard.replay(record, 55)
    (topic,) = fetch(services, 7, asked(services, 0, 1), require_stable=True).topics
    assert [one.error_code for one in topic.partitions] == [88, 0]
    (topic,) = fetch(services, 7, asked(services, 0), require_stable=False).topics
    assert [one.committed_offset for one in topic.partitions] == [7]
    (topic,) = fetch(services, 8, require_stable=True).topics
    assert [one.error_code for one in topic.partitions] == [88]
    services.hosted.shard.replay_marker(55, committed=True)
    (topic,) = fetch(services, 7, asked(services, 0), require_stable=True).topics
    assert [one.committed_offset for one in topic.partitions] == [9]


@pytest.mark.parametrize("version", range(1, 11))
def test_a_coordinator_that_is_elsewhere(version: int) -> None:
    services = GroupServices()
    services.groups.refusal = 16
    answer = fetch(services, version, asked(services, 0), require_stable=False)
    if version >= 2:
        assert (answer.error_code, answer.topics) == (16, [])
    else:
        assert [one.error_code for one in answer.topics[0].partitions] == [16]


def everything_of(*names: str) -> list[dict[str, object]]:
    return [
        {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None} for name in names
    ]


def test_a_group_that_is_named_again_is_told_again() -> None:
    services = GroupServices()
    services.commit(7)
    groups = everything_of("g", "unknown", "g")
    answer = services.ask(handler, 9, groups=groups, require_stable=False).groups
    assert [one.group_id for one in answer] == ["g", "unknown", "g"]
    assert [len(one.topics) for one in answer] == [1, 0, 1]


def test_no_group_is_told_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_budget, "RESPONSE_ENTRIES_MAX", 1_000)
    services = GroupServices()
    services.commit(7)
    with pytest.raises(CloseConnection, match="more than 1,000 entries"):
        services.ask(handler, 9, groups=everything_of(*["g"] * 334), require_stable=False)
