"""Groups of this client on Ottla and on Apache Kafka: rows 54 to 63 of the features, by both
protocols and every assignor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.ids import TopicPartition
from ottla.client import Admin, OffsetAndMetadata, Producer
from ottla.client.consumer_errors import CommitFailedError
from ottla.client.errors import FencedError
from tests.client.admin_calls import committed_offset, create_topic
from tests.client.members import PATIENCE_S, Member, fill, is_shared, poll_until, read, until

PROTOCOLS = ["classic", "consumer"]
ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class Members:
    """Makes members and ends them with the test."""

    def __init__(self, cluster: str, topic: str) -> None:
        self._cluster = cluster
        self.topic = topic
        self.group = f"g-{topic}"
        self.members: list[Member] = []

    def join(self, group: str | None = None, topics: Any = None, **settings: Any) -> Member:
        member = Member(self._cluster, group or self.group, topics or self.topic, **settings)
        self.members.append(member)
        return member

    def poll_until(self, condition: Any, what: str) -> None:
        poll_until([one for one in self.members if not one.consumer._is_closed], condition, what)


@pytest.fixture
def members(cluster: str, topic: str) -> Iterator[Members]:
    made = Members(cluster, topic)
    yield made
    for member in made.members:
        member.close()


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_share_the_partitions(cluster: str, members: Members, assignor: str) -> None:
    """Row 54 and 56: each partition to one, as evenly as can be, whoever comes and goes."""
    topic = members.topic
    create_topic(cluster, topic, 6)
    values = fill(cluster, topic, 60, partitions=6)
    settings = {"partition_assignment_strategy": assignor}
    group = [members.join(**settings) for _ in range(3)]
    members.poll_until(lambda: is_shared(group, topic, 6), "three members")
    members.poll_until(lambda: len({v for m in group for v in m.values()}) == 60, "all records")
    assert {value for member in group for value in member.values()} == set(values)
    fourth = members.join(**settings)
    members.poll_until(lambda: is_shared([*group, fourth], topic, 6), "four members")
    group[0].close()
    left = [*group[1:], fourth]
    members.poll_until(lambda: is_shared(left, topic, 6), "three members again")


def test_members_share_by_the_newer_protocol(cluster: str, members: Members) -> None:
    topic = members.topic
    create_topic(cluster, topic, 4)
    values = fill(cluster, topic, 40, partitions=4)
    group = [members.join(group_protocol="consumer") for _ in range(2)]
    members.poll_until(lambda: is_shared(group, topic, 4), "two members")
    members.poll_until(lambda: len({v for m in group for v in m.values()}) == 40, "all records")
    assert {value for member in group for value in member.values()} == set(values)
    group[0].close()
    members.poll_until(lambda: is_shared(group[1:], topic, 4), "one member")


def test_more_members_than_partitions(cluster: str, members: Members) -> None:
    """Row 54: the third of two idles, and takes over when one leaves."""
    topic = members.topic
    create_topic(cluster, topic, 2)
    group = [members.join() for _ in range(3)]
    members.poll_until(lambda: is_shared(group, topic, 2), "two of three have one")
    owner = next(member for member in group if member.owned)
    owner.close()
    left = [member for member in group if member is not owner]
    members.poll_until(lambda: is_shared(left, topic, 2), "both of two have one")


def test_a_cooperative_member_keeps_reading_what_it_keeps(cluster: str, members: Members) -> None:
    topic = members.topic
    create_topic(cluster, topic, 4)
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    first = members.join(**settings)
    members.poll_until(lambda: len(first.owned) == 4, "alone")
    second = members.join(**settings)
    members.poll_until(lambda: is_shared([first, second], topic, 4), "two members")
    revoked = [key for what, keys in first.told if what == "revoked" for key in keys]
    assert len(revoked) == 2, "only what the other got"
    assert set(revoked) == second.owned


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_groups_each_get_everything(cluster: str, members: Members, protocol: str) -> None:
    """Row 55."""
    values = fill(cluster, members.topic, 20)
    groups = [
        members.join(f"{members.group}-{name}", group_protocol=protocol) for name in ("a", "b")
    ]
    members.poll_until(lambda: all(len(one.got) >= 20 for one in groups), "20 records each")
    assert [one.values() for one in groups] == [values, values]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_goes_on_where_the_group_committed(
    cluster: str, members: Members, protocol: str
) -> None:
    """Rows 57, 60, 62 and 63: what was committed comes once, the rest twice."""
    values = fill(cluster, members.topic, 10)
    key: TopicPartition = (members.topic, 0)
    first = members.join(group_protocol=protocol)
    members.poll_until(lambda: len(first.got) == 10, "10 records")
    first.consumer.commit({key: OffsetAndMetadata(4, metadata="four")})
    found = first.consumer.committed(key)[key]
    assert found is not None
    assert (found.offset, found.metadata) == (4, "four")
    first.consumer.commit(first.got[6])
    first.close()
    second = members.join(group_protocol=protocol)
    members.poll_until(lambda: len(second.got) >= 3, "what was not committed")
    assert second.values() == values[7:]


def test_commits_before_processing_lose_and_after_it_repeat(cluster: str, topic: str) -> None:
    """Rows 61 and 62: a consumer that dies between the two."""
    values = fill(cluster, topic, 3)
    for group, before in ((f"before-{topic}", True), (f"after-{topic}", False)):
        processed = []
        for life in range(2):
            member = Member(cluster, group, topic, session_timeout_ms=6_000)
            member.consumer.unsubscribe()
            member.consumer.assign((topic, 0))
            for record in read(member.consumer, 3 if life == 0 else (1 if before else 2)):
                if before:
                    member.consumer.commit(record)
                if life == 0 and record.offset == 1:
                    break  # dies here, between commit and processing
                processed.append(record.value)
                if not before:
                    member.consumer.commit(record)
            member.vanish()
        # The second was committed but never processed, or processed by nobody but committed after.
        assert processed == ([values[0], values[2]] if before else values)


def test_commits_are_automatic(cluster: str, members: Members) -> None:
    """Row 59: what earlier polls returned is committed by later ones, and at the end."""
    fill(cluster, members.topic, 10)
    key: TopicPartition = (members.topic, 0)
    settings: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    first = members.join(**settings)
    members.poll_until(lambda: len(first.got) == 10, "10 records")

    def committed() -> int:
        found = first.consumer.committed(key)[key]
        return -1 if found is None else found.offset

    members.poll_until(lambda: committed() == 10, "a commit by itself")
    fill(cluster, members.topic, 5, first=10)
    members.poll_until(lambda: len(first.got) == 15, "15 records")
    first.close()
    second = members.join(**settings)
    fill(cluster, members.topic, 1, first=15)
    members.poll_until(lambda: second.got, "the next record")
    assert second.values() == [b"15"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_in_the_background_tell_what_became_of_them(
    cluster: str, members: Members, protocol: str
) -> None:
    fill(cluster, members.topic, 3)
    member = members.join(group_protocol=protocol)
    members.poll_until(lambda: len(member.got) == 3, "3 records")
    told: list[Any] = []
    member.consumer.commit_async(on_commit=lambda *outcome: told.append(outcome))
    until(member.poll, lambda: told, "an outcome")
    ((offsets, error),) = told
    assert error is None
    assert {key: one.offset for key, one in offsets.items()} == {(members.topic, 0): 3}


def test_a_static_member_comes_back_without_a_rebalance(cluster: str, members: Members) -> None:
    topic = members.topic
    create_topic(cluster, topic, 2)
    static = {"group_instance_id": "one", "partition_assignment_strategy": "range"}
    first = members.join(**static)
    other = members.join(partition_assignment_strategy="range")
    members.poll_until(lambda: is_shared([first, other], topic, 2), "two members")
    told = len(other.told)
    owned = set(first.owned)
    first.close()
    again = members.join(**static)
    members.poll_until(lambda: again.owned, "it is back")
    assert again.owned == owned
    assert len(other.told) == told, "the other has not noticed"


def test_a_second_of_the_same_instance_fences_the_first(cluster: str, members: Members) -> None:
    first = members.join(group_instance_id="one")
    members.poll_until(lambda: first.owned, "the first")
    second = members.join(group_instance_id="one")
    poll_until([second], lambda: second.owned, "the second")
    with pytest.raises(FencedError):
        until(first.poll, lambda: False, "the first is fenced")


def test_an_application_that_does_not_poll_loses_its_partitions(
    cluster: str, members: Members
) -> None:
    topic = members.topic
    fill(cluster, topic, 1)
    slow = members.join(max_poll_interval_ms=3_000, session_timeout_ms=6_000)
    members.poll_until(lambda: slow.owned, "the slow one")
    other = members.join()
    poll_until([other], lambda: other.owned, "the other gets it")
    with pytest.raises(CommitFailedError):
        slow.consumer.commit({(topic, 0): 1})
    members.poll_until(lambda: any(what == "lost" for what, _ in slow.told), "it is told")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_was_left_behind_cannot_move_the_group(
    cluster: str, members: Members, protocol: str
) -> None:
    """Neither in a transaction, which would be done twice, nor when the others have gone."""
    place = (members.topic, 0)
    fill(cluster, members.topic, 3)
    slow = members.join(group_protocol=protocol, max_poll_interval_ms=3_000)
    members.poll_until(lambda: slow.got, "the slow one reads")
    other = members.join(group_protocol=protocol)
    poll_until([other], lambda: len(other.got) == 3, "the other reads it all again")
    other.consumer.commit({place: 3})
    with (
        Producer(bootstrap_servers=cluster, transactional_id=members.topic) as producer,
        pytest.raises(CommitFailedError),
        producer.transaction(),
    ):
        producer.send_offsets({place: 1}, slow.consumer.group_metadata())
    other.close()
    with pytest.raises(CommitFailedError, match="poll to get in"):
        slow.consumer.commit({place: 1})
    assert slow.consumer.committed(place) == {place: OffsetAndMetadata(3)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_patterns_find_topics_that_come_later(
    cluster: str, members: Members, protocol: str
) -> None:
    prefix = f"p-{members.topic}"
    create_topic(cluster, f"{prefix}-a", 1)
    member = Member(
        cluster,
        members.group,
        re.compile(f"^{prefix}"),
        group_protocol=protocol,
        metadata_max_age_ms=300,
    )
    members.members.append(member)
    members.poll_until(lambda: member.owned == {(f"{prefix}-a", 0)}, "one topic")
    create_topic(cluster, f"{prefix}-b", 1)
    members.poll_until(lambda: len(member.owned) == 2, "two topics")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_deleted_takes_nothing_from_the_others(
    cluster: str, members: Members, protocol: str
) -> None:
    kept, deleted = f"{members.topic}-kept", f"{members.topic}-deleted"
    first = {*fill(cluster, kept, 2), *fill(cluster, deleted, 2, first=2)}
    member = members.join(
        topics=[kept, deleted],
        group_protocol=protocol,
        enable_auto_commit=True,
        allow_auto_create_topics=False,
    )
    members.poll_until(lambda: set(member.values()) == first, "all records")
    with Admin(bootstrap_servers=cluster) as admin:
        admin.delete_topic(deleted)
    with Producer(bootstrap_servers=cluster) as producer:
        producer.send(kept, b"later").result(PATIENCE_S)
    members.poll_until(lambda: member.owned == {(kept, 0)}, "only what is there")
    members.poll_until(lambda: b"later" in member.values(), "what came later")
    member.close()
    assert committed_offset(cluster, members.group, kept, 0) == 3


def test_the_broker_matches_patterns_of_the_newer_protocol(cluster: str, members: Members) -> None:
    prefix = f"q-{members.topic}"
    create_topic(cluster, f"{prefix}-a", 1)
    member = members.join(topics="nothing-yet", group_protocol="consumer", metadata_max_age_ms=300)
    member.consumer.subscribe(
        pattern=f"{prefix}.*", on_assigned=member._on_assigned, on_revoked=member._on_revoked
    )
    members.poll_until(lambda: member.owned == {(f"{prefix}-a", 0)}, "one topic")


def test_a_callback_that_fails_is_heard_of(cluster: str, members: Members) -> None:
    fill(cluster, members.topic, 1)
    member = members.join()

    def failing(partitions: list[TopicPartition]) -> None:
        raise RuntimeError("no")

    member.consumer.subscribe(members.topic, on_assigned=failing)
    with pytest.raises(RuntimeError, match="no"):
        until(member.poll, lambda: False, "the callback's error")
    until(member.poll, lambda: member.got, "and it goes on")


def test_callbacks_may_seek_and_commit(cluster: str, members: Members) -> None:
    values = fill(cluster, members.topic, 10)
    member = members.join()

    def begin_at_three(partitions: list[TopicPartition]) -> None:
        for key in partitions:
            member.consumer.seek(key, 3)
            member.consumer.commit({key: 3}, timeout_s=PATIENCE_S)

    member.consumer.subscribe(members.topic, on_assigned=begin_at_three)
    members.poll_until(lambda: len(member.got) >= 7, "7 records")
    assert member.values() == values[3:]
