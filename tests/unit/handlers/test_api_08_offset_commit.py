"""Goal: commits of every version arrive, with each partition's own error.
Method: a real shard behind the handler; a coordinator that is elsewhere or still loading.
"""

from __future__ import annotations

import uuid

import pytest

from ottla.base.errors import InvariantError
from ottla.handlers import api_08_offset_commit as handler
from ottla.protocol.error_codes import UNKNOWN_SERVER_ERROR
from tests.unit.handlers.group_fakes import SETTINGS, GroupServices


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit(version: int) -> None:
    services = GroupServices()
    assert services.commit(5, version) == 0
    commit = services.hosted.shard.offsets.get("g", "t", 0)
    assert commit is not None
    assert commit.offset == 5
    assert commit.topic_id == services.image.topics["t"].topic_id


@pytest.mark.parametrize("version", [8, 10])
def test_each_partition_has_its_own_error(version: int) -> None:
    services = GroupServices()
    known = services.image.topics["t"].topic_id

    def partition(index: int, metadata: str = "") -> dict[str, object]:
        return {
            "partition_index": index,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }

    topics = [
        {
            "name": "t",
            "topic_id": known,
            "partitions": [partition(0), partition(9), partition(1, "x" * 4097)],
        },
        {"name": "nowhere", "topic_id": uuid.uuid4(), "partitions": [partition(0)]},
    ]
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": topics,
    }
    answer = services.ask(handler, version, **fields)
    codes = [[one.error_code for one in topic.partitions] for topic in answer.topics]
    assert codes == [[3, 0, 12], [100 if version >= 10 else 3]]
    services.groups.refusal = 16
    answer = services.ask(handler, version, **fields)
    codes = [[one.error_code for one in topic.partitions] for topic in answer.topics]
    assert codes == [[3, 16, 16], [100 if version >= 10 else 3]]


@pytest.mark.parametrize("version", [8, 10])
def test_topics_are_told_in_kafkas_order(version: int) -> None:
    services = GroupServices()
    known, other = services.image.topics["t"].topic_id, uuid.uuid4()

    def topic(name: str, topic_id: uuid.UUID, *indexes: int) -> dict[str, object]:
        partitions = [
            {
                "partition_index": index,
                "committed_offset": 1,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for index in indexes
        ]
        return {"name": name, "topic_id": topic_id, "partitions": partitions}

    def told(*topics: dict[str, object]) -> list[tuple[bool, list[tuple[int, bool]]]]:
        answer = services.ask(
            handler,
            version,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=list(topics),
        )
        return [
            (
                known == one.topic_id or one.name == "t",
                [(part.partition_index, part.error_code == 0) for part in one.partitions],
            )
            for one in answer.topics
        ]

    assert told(topic("t", known)) == [], "one without partitions is not told"
    assert told(topic("t", known, 0), topic("t", known, 1)) == [
        (True, [(0, True)]),
        (True, [(1, True)]),
    ]
    assert told(
        topic("t", known, 0),
        topic("nowhere", other, 1),
        topic("t", known, 1, 9),
        topic("nowhere", other, 0),
    ) == [
        (False, [(1, False), (0, False)]),
        (True, [(9, False), (0, True), (1, True)]),
    ]


def test_a_commit_that_cannot_be_kept() -> None:
    services = GroupServices()
    services.hosted.partition.fail_code = 19
    assert services.commit(5) == 15
    assert services.hosted.shard.offsets.get("g", "t", 0) is None


def test_a_commit_waits_for_the_log() -> None:
    services = GroupServices()
    services.hosted.partition.holds_back = True
    with pytest.raises(InvariantError, match="no result yet"):
        services.commit(5)
    services.hosted.partition.holds_back = False
    services.hosted.partition.commit_all()
    assert services.commit(6) == 0


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_commit_may_be_kept_as_long_as_a_client_wants(version: int) -> None:
    services = GroupServices()
    assert services.commit(5, version, retention_time_ms=2**63 - 1) == 0
    services.hosted.restart()
    services.hosted.time.advance(10 * SETTINGS.offsets_retention_minutes * 60_000)
    services.hosted.host.run(lambda shard: shard.on_tick())
    assert services.hosted.shard.offsets.get("g", "t", 0) is not None


def test_a_mistake_of_ours_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: object) -> None:
        raise KeyError

    services = GroupServices()
    monkeypatch.setattr(services.hosted.shard, "commit_offsets", wrong)
    assert services.commit(5) == UNKNOWN_SERVER_ERROR


def test_no_topics_is_no_error() -> None:
    services = GroupServices()
    answer = services.ask(
        handler,
        8,
        group_id="g",
        generation_id_or_member_epoch=7,
        member_id="nobody",
        group_instance_id=None,
        topics=[],
    )
    assert answer.topics == []
