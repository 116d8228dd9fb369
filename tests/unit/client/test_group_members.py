"""Goal: members of a group get partitions and give them up when their application can know of it,
by both protocols, and commits mean what they say. Method: a scripted coordinator, time as a number.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.consumer_errors import CommitFailedError
from ottla.client.errors import AuthorizationError, ClientError
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.protocol import api_keys as keys
from ottla.protocol import error_codes as codes
from tests.unit.client.consumer_world import ConsumerWorld
from tests.unit.client.pure_world import Later


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    yield
    while ConsumerWorld.alive:
        ConsumerWorld.alive.pop().machine.core.close()


def member(*partitions: int, **settings: Any) -> ConsumerWorld:
    world = ConsumerWorld(
        {
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 1_000,
            "enable_auto_commit": "false",
            **settings,
        }
    )
    for partition in range(4):
        world.log("t", partition).append(b"%d" % partition)
    world.group.assigned = [("t", partition) for partition in partitions]
    world.subscribe("t")
    return world


def drain(world: ConsumerWorld, within_ms: float = 300) -> set[bytes]:
    found: set[bytes] = set()
    while values := world.values(within_ms):
        found |= set(values)
    return found


def test_a_member_joins_and_reads_what_it_is_given() -> None:
    world = member(0, 2)
    assert drain(world) == {b"0", b"2"}
    assert world.told == [("assigned", [("t", 0), ("t", 2)])]
    first, second = world.group.joins
    assert (first.member_id, second.member_id) == ("", "member-1")
    assert [one.name for one in second.protocols] == ["range", "cooperative-sticky"]
    assert second.rebalance_timeout_ms == 300_000


def test_an_eager_member_gives_up_everything_first() -> None:
    world = member(0, 1)
    drain(world)
    world.group.assigned = [("t", 1), ("t", 2)]
    world.group.is_rebalancing = True
    assert drain(world, 3_000) == {b"1", b"2"}, "nothing was committed"
    assert world.told == [
        ("assigned", [("t", 0), ("t", 1)]),
        ("revoked", [("t", 0), ("t", 1)]),
        ("assigned", [("t", 1), ("t", 2)]),
    ]


def test_a_cooperative_member_gives_up_what_it_loses_and_joins_again() -> None:
    world = member(0, 1, partition_assignment_strategy="cooperative-sticky")
    drain(world)
    world.group.assigned = [("t", 1)]
    world.group.is_rebalancing = True
    drain(world, 3_000)
    assert world.told == [
        ("assigned", [("t", 0), ("t", 1)]),
        ("revoked", [("t", 0)]),
        ("assigned", []),
        ("assigned", []),
    ]
    assert world.group.generation == 3, "one round to give up, one for whoever gets it"
    assert set(world.machine.subscription.partitions) == {("t", 1)}


def test_nothing_is_taken_from_an_application_that_does_not_poll() -> None:
    world = member(0)
    drain(world)
    world.group.is_rebalancing = True
    world.group.assigned = []
    beats = len(world.group.beats)
    world.pass_time(60_000)
    assert world.told == [("assigned", [("t", 0)])]
    assert len(world.group.joins) == 2
    assert len(world.group.beats) > beats + 50, "it stays alive meanwhile"
    drain(world)
    assert world.told[1:] == [("revoked", [("t", 0)]), ("assigned", [])]


def test_an_application_that_does_not_poll_for_too_long_leaves() -> None:
    world = member(0, max_poll_interval_ms=10_000)
    drain(world)
    world.pass_time(9_000)
    assert world.group.left == []
    world.pass_time(5_000)
    assert world.group.left == [world.group.member_id]
    drain(world)
    assert world.told[1:] == [("lost", [("t", 0)]), ("assigned", [("t", 0)])]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_does_not_poll_leaves_when_its_time_is_over(protocol: str) -> None:
    """Not at the next heartbeat: others wait for its partitions."""
    make = member if protocol == "classic" else new_member
    how = {"heartbeat_interval_ms": 10_000} if protocol == "classic" else {}
    world = make(0, max_poll_interval_ms=12_000, **how)
    drain(world, 1_000)
    for _ in range(3):  # who does poll, stays
        world.pass_time(11_900)
        drain(world, 100)
    assert world.group.left == []
    world.pass_time(11_800)
    assert world.group.left == []
    world.pass_time(300)
    assert len(world.group.left) == 1


def test_who_polls_before_the_leave_is_answered_has_lost_its_partitions_and_stays() -> None:
    """Meanwhile somebody else may have them: they are not given up, they are gone."""
    world = member(0, max_poll_interval_ms=10_000)
    drain(world)
    world.group.is_rebalancing = True  # so that a join is wanted already
    world.overrides[keys.LEAVE_GROUP] = lambda request, version: Later(
        4_000, world.group.leave(request, version)
    )
    world.pass_time(11_000)
    drain(world, 1_000)
    assert world.told[1:] == [("lost", [("t", 0)])]
    drain(world, 8_000)
    drain(world, 8_000)
    assert world.told[2:] == [("assigned", [("t", 0)])]
    assert world.group.generation == 2


def test_a_member_that_was_forgotten_loses_its_partitions_and_comes_back() -> None:
    world = member(0)
    drain(world)
    world.group.forgets = True
    drain(world, 3_000)
    assert world.told[1:] == [("lost", [("t", 0)]), ("assigned", [("t", 0)])]


def test_commits_bear_the_generation() -> None:
    world = member(0)
    drain(world)
    machine = world.machine
    world.world.run(machine.commit(machine.consumed(), 1e9))
    assert world.committed == {("t", 0): 1}
    sent = world.commits[-1]
    assert (sent.member_id, sent.generation_id_or_member_epoch) == (world.group.member_id, 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_has_left_cannot_commit_and_keeps_its_name_until_it_is_back(protocol: str) -> None:
    """An empty group would take a commit without a name, and a transaction's from anybody."""
    make = member if protocol == "classic" else new_member
    world = make(0, max_poll_interval_ms=10_000)
    machine = world.machine
    with pytest.raises(CommitFailedError, match="poll to get in"):
        world.world.run(machine.commit({("t", 0): OffsetAndMetadata(1)}, 1e9))
    drain(world)
    name = machine.last_identity
    assert name == machine.identity() and name.member_id and name.generation > 0
    world.pass_time(20_000)
    assert machine.identity() is None, "it has left"
    assert machine.last_identity == name
    with pytest.raises(CommitFailedError, match="poll to get in"):
        world.world.run(machine.commit({("t", 0): OffsetAndMetadata(1)}, 1e9))
    assert world.commits == []
    drain(world, 8_000)
    assert machine.last_identity == machine.identity() != name


def test_a_commit_that_fails_may_have_been_stored_where_its_answer_was_lost() -> None:
    """As the guide says: the refusal is of the second attempt."""
    world = member(0)
    drain(world)

    def stores_and_is_silent(request: Any, version: int) -> Any:
        del world.overrides[keys.OFFSET_COMMIT]
        answer = world._offset_commit(request, version)
        world.group.forgets = True
        return Later(1e6, answer)  # after request.timeout.ms nobody waits for it

    world.overrides[keys.OFFSET_COMMIT] = stores_and_is_silent
    with pytest.raises(CommitFailedError):
        world.world.run(world.machine.commit({("t", 0): OffsetAndMetadata(1)}, 1e9))
    assert world.committed == {("t", 0): 1}


def test_a_commit_of_a_member_that_is_gone_fails() -> None:
    world = member(0)
    drain(world)
    world.group.forgets = True
    with pytest.raises(CommitFailedError):
        world.world.run(world.machine.commit({("t", 0): OffsetAndMetadata(1)}, 1e9))
    world.group.forgets = False
    drain(world, 3_000)
    assert ("lost", [("t", 0)]) in world.told


@pytest.mark.parametrize("commit_ms", [250, 700])
def test_a_commit_of_the_generation_before_does_not_cost_the_new_one(commit_ms: float) -> None:
    """A cooperative member reads and commits while it joins. The coordinator answers that the
    generation of the commit is over, before or after the member got its share of the new one."""
    world = member(0, partition_assignment_strategy="cooperative-sticky")
    machine, group = world.machine, world.group
    drain(world)

    def over(request: Any, version: int) -> Any:
        answer = world._offset_commit(request, version)
        if request.generation_id_or_member_epoch == 1:
            answer["topics"][0]["partitions"][0]["error_code"] = codes.ILLEGAL_GENERATION
        return Later(commit_ms, answer)

    world.overrides[keys.JOIN_GROUP] = lambda request, version: Later(
        200, group.join(request, version)
    )
    world.overrides[keys.SYNC_GROUP] = lambda request, version: Later(
        200, group.sync(request, version)
    )
    world.overrides[keys.OFFSET_COMMIT] = over
    group.is_rebalancing = True
    joins = len(group.joins)
    while len(group.joins) == joins:
        assert world.values(20) == []
    commit = machine.core.spawn(machine.commit({("t", 0): OffsetAndMetadata(1)}, 1e9))
    commit.when_done(lambda _: None)
    drain(world, 3_000)
    assert isinstance(commit.error(), CommitFailedError)
    identity = machine.identity()
    assert identity is not None and identity.generation == 2
    world.world.run(machine.commit({("t", 0): OffsetAndMetadata(1)}, 1e9))
    beats = len(group.beats)
    drain(world, 3_000)
    assert len(group.beats) > beats, "it is a member as before"
    assert ("lost", [("t", 0)]) not in world.told


def test_commits_are_automatic_once_the_application_came_back() -> None:
    world = member(0, enable_auto_commit="true", auto_commit_interval_ms=1_000)
    assert world.values() == [b"0"]
    world.pass_time(20_000)
    assert world.committed == {}, "nobody knows whether it has been processed"
    world.poll(100)
    world.pass_time(100)
    assert world.committed == {("t", 0): 1}


def test_what_was_processed_is_committed_before_it_is_given_up() -> None:
    world = member(0, enable_auto_commit="true", auto_commit_interval_ms=1_000_000)
    assert world.values() == [b"0"]
    world.group.is_rebalancing = True
    world.pass_time(5_000)
    assert world.committed == {}
    world.poll(1_000)
    assert world.committed == {("t", 0): 1}
    assert world.commits[-1].generation_id_or_member_epoch == 1


def test_closing_commits_and_leaves() -> None:
    world = member(0, enable_auto_commit="true")
    drain(world)
    world.world.run(world.machine.close(world.machine.consumed()))
    assert world.committed == {("t", 0): 1}
    assert world.group.left == [world.group.member_id]


def refuses_deleted(world: ConsumerWorld, partition: int) -> None:
    """From now on the coordinator has no such partition: its topic was deleted."""

    def refusing(request: Any, version: int) -> Any:
        answer = world._offset_commit(request, version)
        for topic in answer["topics"]:
            for one in topic["partitions"]:
                if one["partition_index"] == partition:
                    one["error_code"] = codes.UNKNOWN_TOPIC_OR_PARTITION
        return answer

    world.overrides[keys.OFFSET_COMMIT] = refusing


def test_a_topic_that_is_gone_does_not_hold_up_a_rebalance() -> None:
    """Automatic commits ask once for it: what was deleted does not come back by asking."""
    world = member(0, 1, enable_auto_commit="true", auto_commit_interval_ms=1_000_000)
    assert drain(world) == {b"0", b"1"}
    refuses_deleted(world, 1)
    world.log("t", 0).append(b"new")
    world.group.assigned = [("t", 0)]
    world.group.is_rebalancing = True
    world.pass_time(1_500)
    assert drain(world, 2_000) == {b"new"}
    assert len(world.commits) == 1
    assert world.told[1:] == [("revoked", [("t", 0), ("t", 1)]), ("assigned", [("t", 0)])]


def test_a_topic_that_is_gone_does_not_hold_up_a_close() -> None:
    world = member(0, 1, enable_auto_commit="true")
    drain(world)
    refuses_deleted(world, 1)
    world.world.run(world.machine.close(world.machine.consumed()))
    assert len(world.commits) == 1
    assert world.group.left == [world.group.member_id]


def test_a_static_member_does_not_leave() -> None:
    world = member(0, group_instance_id="one")
    drain(world)
    world.world.run(world.machine.close(None))
    assert world.group.left == []


def test_what_a_group_refuses_is_raised_and_tried_again() -> None:
    world = member(0)
    answers = iter([codes.GROUP_AUTHORIZATION_FAILED])

    def refusing(request: Any, version: int) -> Any:
        code = next(answers, None)
        return None if code is None else {**world.group.join(request, version), "error_code": code}

    world.overrides[keys.JOIN_GROUP] = refusing
    with pytest.raises(AuthorizationError):
        world.poll()
    assert drain(world) == {b"0"}


def test_a_coordinator_that_moved_is_found() -> None:
    world = member(0)
    answers = iter([codes.NOT_COORDINATOR, codes.COORDINATOR_LOAD_IN_PROGRESS])

    def moving(request: Any, version: int) -> Any:
        code = next(answers, None)
        return None if code is None else {**world.group.join(request, version), "error_code": code}

    world.overrides[keys.JOIN_GROUP] = moving
    assert drain(world, 5_000) == {b"0"}


def test_other_topics_mean_another_round() -> None:
    world = member(0)
    drain(world)
    world.log("u").append(b"u")
    world.group.assigned = [("u", 0)]
    world.subscribe("u")
    assert drain(world) == {b"u"}
    assert world.told[-1] == ("assigned", [("u", 0)])


def test_more_partitions_mean_another_round() -> None:
    world = member(0)
    drain(world)
    joins = len(world.group.joins)
    world.log("t", 4).append(b"4")
    world.group.assigned = [("t", 4)]
    world.machine.core.metadata.request_update()
    assert b"4" in drain(world, 3_000)
    assert len(world.group.joins) > joins


# -- the newer protocol ----------------------------------------------------------------------------


def new_member(*partitions: int, **settings: Any) -> ConsumerWorld:
    world = ConsumerWorld(
        {
            "group_id": "g",
            "group_protocol": "consumer",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": "false",
            **settings,
        }
    )
    topic_id = uuid.UUID(int=7)
    for partition in range(4):
        world.log("t", partition).append(b"%d" % partition)
    usual = world._metadata

    def with_id(request: Any, version: int) -> Any:
        fields = usual(request, version)
        for topic in fields["topics"]:
            topic["topic_id"] = topic_id
        return fields

    def by_id(request: Any, version: int) -> Any:
        for topic in request.topics:
            topic.topic = "t"
        answer = world._fetch(request, version)
        fields = answer.fields if isinstance(answer, Later) else answer
        for topic in fields["responses"]:
            topic["topic_id"] = topic_id
        return answer

    world.overrides[keys.METADATA] = with_id
    world.overrides[keys.FETCH] = by_id
    world.group.target = [(topic_id, partition) for partition in partitions]
    world.subscribe("t")
    return world


def give(world: ConsumerWorld, *partitions: int) -> None:
    world.group.target = [(uuid.UUID(int=7), partition) for partition in partitions]
    world.group.epoch += 1
    # The next heartbeat of the old epoch is answered with the new one.
    usual = world.group.consumer_heartbeat

    def bumped(request: Any, version: int) -> Any:
        if request.member_epoch == world.group.epoch - 1:
            request.member_epoch = world.group.epoch
        return usual(request, version)

    world.overrides[keys.CONSUMER_GROUP_HEARTBEAT] = bumped


def test_the_broker_gives_partitions_by_heartbeat() -> None:
    world = new_member(0, 1)
    assert drain(world) == {b"0", b"1"}
    first, *_, last = world.group.beats
    assert (first.member_epoch, first.member_id) == (0, "my-id")
    assert first.subscribed_topic_names == ["t"]
    assert first.topic_partitions == []
    assert last.subscribed_topic_names is None, "what is known is not said again"
    owned = [beat.topic_partitions for beat in world.group.beats if beat.topic_partitions]
    assert [sorted(one.partitions) for one in owned[-1]] == [[0, 1]]


def test_a_new_target_is_reached_while_the_application_polls() -> None:
    world = new_member(0, 1)
    drain(world)
    give(world, 1, 2)
    world.pass_time(20_000)
    assert len(world.told) == 1, "it does not poll"
    drain(world, 6_000)
    assert world.told[1:] == [("revoked", [("t", 0)]), ("assigned", [("t", 2)])]


def test_a_fenced_member_loses_everything_and_joins_anew() -> None:
    world = new_member(0)
    drain(world)
    world.group.forgets = True
    world.group.target = None
    world.pass_time(5_500)
    world.group.target = [(uuid.UUID(int=7), 0)]
    drain(world, 6_000)
    assert world.told[1:] == [("lost", [("t", 0)]), ("assigned", [("t", 0)])]
    assert [beat.member_epoch for beat in world.group.beats].count(0) == 2


def test_leaving_says_so_by_its_epoch() -> None:
    for instance, epoch in ((None, -1), ("one", -2)):
        world = new_member(0, group_instance_id=instance)
        drain(world)
        world.world.run(world.machine.close(None))
        assert world.group.beats[-1].member_epoch == epoch


def test_a_new_member_that_is_not_polled_leaves_and_comes_back() -> None:
    world = new_member(0, max_poll_interval_ms=10_000)
    drain(world)
    world.pass_time(30_000)
    assert world.group.left == ["my-id"]
    world.group.target = [(uuid.UUID(int=7), 0)]
    drain(world, 3_000)
    assert world.told[1:] == [("lost", [("t", 0)]), ("assigned", [("t", 0)])]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_gives_up_waiting_for_its_leave_has_left_all_the_same(protocol: str) -> None:
    """In asyncio a call may be cancelled at any time, here while the coordinator is looked for."""
    world = (member if protocol == "classic" else new_member)(0)
    drain(world)
    machine = world.machine
    assert machine.member is not None
    machine.member.forget_coordinator()
    usual = world._coordinator
    world.overrides[keys.FIND_COORDINATOR] = lambda *asked: Later(500, usual(*asked))
    leaving = machine.core.spawn(machine.unsubscribe())
    leaving.when_done(lambda _: None)
    world.pass_time(100)
    assert world.group.left == []
    leaving.cancel()
    world.pass_time(1_000)
    assert len(world.group.left) == 1
    assert not machine.subscription.topics and not machine.subscription.partitions


def test_what_the_newer_protocol_refuses_is_raised() -> None:
    world = new_member(0)
    answers = iter([codes.UNSUPPORTED_ASSIGNOR])

    def refusing(request: Any, version: int) -> Any:
        code = next(answers, None)
        if code is None:
            return None
        return {**world.group.consumer_heartbeat(request, version), "error_code": code}

    world.overrides[keys.CONSUMER_GROUP_HEARTBEAT] = refusing
    with pytest.raises(ClientError, match="UNSUPPORTED_ASSIGNOR"):
        world.poll()


# -- a rebalance in the middle of a poll -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky", "consumer"])
def test_what_a_poll_is_about_to_return_is_not_committed_by_a_rebalance(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = {"enable_auto_commit": "true", "auto_commit_interval_ms": 1_000_000}
    if kind == "consumer":
        world = new_member(0, 1, **commits)
    else:
        world = member(0, 1, partition_assignment_strategy=kind, **commits)
    machine = world.machine
    took = machine.took

    def and_then_a_rebalance(*given: Any, **named: Any) -> None:
        took(*given, **named)
        monkeypatch.undo()
        if kind == "consumer":
            give(world, 1)
        else:
            world.group.assigned = [("t", 1)]
            world.group.is_rebalancing = True
        world.pass_time(6_000)

    monkeypatch.setattr(machine, "took", and_then_a_rebalance)
    first = world.values()
    assert len(first) == 2, "what was being read when the rebalance came, and before"
    assert world.committed == {}, "nobody has seen it yet"
    assert [what for what, _ in world.told] == ["assigned"]
    drain(world, 7_000)
    assert world.committed.get(("t", 0)) == 1
    assert [what for what, _ in world.told][:2] == ["assigned", "revoked"]


@pytest.mark.parametrize("kind", ["cooperative-sticky", "consumer"])
def test_nothing_is_handed_out_while_partitions_are_given_up(kind: str) -> None:
    """The commit before it says how far the application is."""
    commits = {"enable_auto_commit": "true", "auto_commit_interval_ms": 1_000_000}
    if kind == "consumer":
        world = new_member(0, 1, **commits)
    else:
        world = member(0, 1, partition_assignment_strategy=kind, **commits)
    assert drain(world) == {b"0", b"1"}

    def slowly(request: Any, version: int) -> Any:
        if not world.commits:
            for partition in range(2):
                world.log("t", partition).append(b"later")
        return Later(2_000.0, world._offset_commit(request, version))

    world.overrides[keys.OFFSET_COMMIT] = slowly
    if kind == "consumer":
        give(world, 1)
    else:
        world.group.assigned = [("t", 1)]
        world.group.is_rebalancing = True
    world.pass_time(6_000)
    while True:
        found = world.values(50)
        if ("revoked", [("t", 0)]) in world.told:
            break
        assert found == []
    found += drain(world, 3_000)
    assert found == [b"later"], "of the partition that is left"
    assert world.committed == {("t", 0): 1, ("t", 1): 1}
