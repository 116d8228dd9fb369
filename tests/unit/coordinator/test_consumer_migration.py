"""Goal: a group changes its kind while its members go on, and loses neither members nor partitions.
Method: classic and other members of one group on virtual time; the answers of Kafka are in
`test_consumer_as_kafka`, here is what they do not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.classic_group import ClassicGroup
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_group_embedded import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinator.consumer_protocol import UnreadableSubscription
from ottla.coordinator.member_memory import MEMORY_BYTES_MAX
from ottla.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    NONE,
    NOT_ENOUGH_REPLICAS,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)
from sim.groups.asked_shard import GROUP, subscription
from tests.unit.coordinator.consumer_conversations import JOIN_GROUP, assignment
from tests.unit.coordinator.consumer_world import CONFIG, World, refusal_of

FULL: dict[str, Any] = {
    "rebalance_timeout_ms": 5000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.check_replay()


def classic_group(world: World) -> str:
    """One member that has all of t, in generation 1."""
    member: str = world.classic_join("", "t")["member_id"]
    world.classic_sync(member, 1, {member: assignment("t", 0, 1, 2, 3)})
    return member


def mixed_group(world: World) -> str:
    """The classic member has 0 and 1, b the rest; both in epoch 2."""
    member = classic_group(world)
    world.join("b", "t")
    world.classic_join(member, "t", owned={"t": [0, 1]})
    world.classic_sync(member, 2)
    world.beat("b", 2)
    assert world.state() == "Stable"
    return member


def held(world: World, member: str, generation: int) -> dict[str, tuple[int, ...]]:
    answer = world.classic_sync(member, generation)
    assert answer["error_code"] == NONE
    return dict(read_assignment(answer["assignment"]).partitions)


# -- classic to consumer --------------------------------------------------------------------------


def test_members_keep_what_they_have(world: World) -> None:
    member = classic_group(world)
    world.join("b", "t")
    group = world.group()
    topic_id = world.hosted.image.topics["t"].topic_id
    assert group.members[member].current.assigned == {topic_id: dict.fromkeys(range(4), 1)}
    assert group.holders[topic_id] == dict.fromkeys(range(4), member)


def test_who_waits_is_told_to_join_again(world: World) -> None:
    """A rebalance of the classic group is under way when the first of the other kind comes."""
    member = classic_group(world)
    metadata = subscription("t")
    waiting = world.ask_classic(
        JOIN_GROUP,
        3,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": metadata}],
    )
    assert not waiting.done
    world.join("b", "t")
    assert waiting.result()["error_code"] == REBALANCE_IN_PROGRESS
    assert len(world.group().members) == 3
    assert world.classic_beat(member, 1) == REBALANCE_IN_PROGRESS


def test_a_group_that_never_had_a_generation(world: World) -> None:
    waiting = world.ask_classic(
        JOIN_GROUP,
        3,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": subscription("t")}],
    )
    answer = world.join("b", "t")
    # Both share it at once: nobody has anything yet.
    assert world.told(answer) is not None
    assert len(world.group().members) == 2
    assert waiting.result()["error_code"] == REBALANCE_IN_PROGRESS


def test_a_member_that_never_joins_again_is_out(world: World) -> None:
    member = classic_group(world)
    world.join("b", "t")
    assert world.classic_beat(member, 1) == REBALANCE_IN_PROGRESS
    for _ in range(4):
        world.time.advance(4999)
        assert world.classic_beat(member, 1) == REBALANCE_IN_PROGRESS
        world.beat("b", 2)
    world.time.advance(4)  # its rebalance time-out was 20 seconds, from the first time
    assert list(world.group().members) == ["b"]


def test_a_member_that_joins_in_time_may_take_longer_to_give_up(world: World) -> None:
    """It has no rebalance time-out of the other kind: joining and syncing is what counts."""
    member = classic_group(world)
    world.join("b", "t")
    for _ in range(6):
        world.classic_join(member, "t", owned={"t": [0, 1, 2, 3]})
        assert held(world, member, 1) == {"t": (0, 1)}
        world.beat("b", 2)
        world.time.advance(5000)
    assert member in world.group().members


def test_a_member_that_joins_and_never_syncs_is_out(world: World) -> None:
    member = classic_group(world)
    world.join("b", "t")
    world.classic_join(member, "t", owned={"t": [0, 1]})
    for _ in range(4):
        world.time.advance(4999)
        world.classic_beat(member, 2)
        world.beat("b", 2)
    world.time.advance(4)
    assert list(world.group().members) == ["b"]


def test_its_own_session_counts(world: World) -> None:
    member = mixed_group(world)
    world.time.advance(9_999)
    world.beat("b", 2)
    assert world.classic_beat(member, 2) == NONE
    world.time.advance(9_999)
    assert member in world.group().members
    world.time.advance(1)
    assert member not in world.group().members


def test_also_after_a_restart(world: World) -> None:
    member = mixed_group(world)
    world.hosted.restart()
    world.time.advance(9_999)
    assert member in world.group().members
    world.time.advance(1)
    assert member not in world.group().members


def test_a_classic_member_waits_for_partitions_too(world: World) -> None:
    world.join("b", "t")
    member = world.classic_join("", "t")["member_id"]
    assert held(world, member, 3) == {}
    assert world.classic_beat(member, 3) == NONE, "nothing to join for yet"
    world.beat("b", 2, owns={"t": [0, 1]})
    assert world.classic_beat(member, 3) == REBALANCE_IN_PROGRESS
    world.classic_join(member, "t")
    assert held(world, member, 3) == {"t": (2, 3)}
    assert world.classic_beat(member, 3) == NONE


def test_a_classic_member_that_changes_its_topics(world: World) -> None:
    member = mixed_group(world)
    answer = world.classic_join(member, "u", owned={"t": [0, 1]})
    assert answer["generation_id"] == 2, "it has to give up first"
    assert held(world, member, 2) == {}
    assert world.classic_join(member, "u")["generation_id"] == 3
    assert held(world, member, 3) == {"u": (0, 1)}


def test_a_member_changes_its_own_kind(world: World) -> None:
    """By its id: an application that was restarted with another setting and kept it."""
    member = mixed_group(world)
    world.join("c", "t")
    assert world.classic_beat(member, 2) == REBALANCE_IN_PROGRESS
    answer = world.beat(member, 0, **FULL)
    assert answer["error_code"] == NONE
    assert world.group().classic_count == 0
    for _ in range(3):
        epoch = world.group().members[member].current.member_epoch
        assert world.beat(member, epoch)["error_code"] == NONE
        world.time.advance(8000)
    assert member in world.group().members, "nobody waits for it to join in the old way any more"


def test_a_static_member_changes_its_kind_both_ways(world: World) -> None:
    """By its instance: a rolling restart with another setting."""
    world.join("b", "t")
    world.join("a", subscribed_topic_regex="u.*", instance_id="i")
    world.time.advance(0)
    world.beat("a", world.group().members["a"].current.member_epoch)
    member: str = world.classic_join("", "u", group_instance_id="i", version=5)["member_id"]
    group = world.group()
    assert (set(group.members), group.patterns) == ({"b", member}, {})
    assert group.members[member].metadata.pattern == ""
    answer = world.join("c", "u", instance_id="i")
    assert set(group.members) == {"b", "c"}
    assert world.told(answer) == {"u": [0, 1]}


def test_a_classic_member_has_to_give_up_before_there_is_a_new_target() -> None:
    world = World(config=replace(CONFIG, group_consumer_assignment_interval_ms=30_000))
    world.join("b", "t")
    world.time.advance(30_000)
    member = world.classic_join("", "t", "u")["member_id"]
    assert held(world, member, 3) == {"u": (0, 1)}
    world.beat("b", 2, owns={"t": [0, 1, 2]})
    world.classic_join(member, "t", owned={"u": [0, 1]})
    assert world.classic_beat(member, 3) == REBALANCE_IN_PROGRESS
    world.check_replay()


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_no_upgrade_if_it_is_not_wanted(policy: str) -> None:
    world = World(config=replace(CONFIG, group_consumer_migration_policy=policy))
    member = classic_group(world)
    answer = world.beat("b", 0, **FULL)
    assert answer["error_code"] == GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in answer["error_message"]
    assert world.classic_beat(member, 1) == NONE


def test_no_upgrade_of_a_group_that_is_too_large() -> None:
    world = World(config=replace(CONFIG, group_consumer_max_size=1))
    classic_group(world)
    world.ask_classic(
        JOIN_GROUP,
        3,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": subscription("t")}],
    )
    answer = world.beat("b", 0, **FULL)
    assert answer["error_code"] == GROUP_ID_NOT_FOUND
    assert "exceeds the consumer group maximum size" in answer["error_message"]


def test_no_upgrade_of_what_cannot_be_read(world: World) -> None:
    member: str = world.classic_join("", "t")["member_id"]
    world.classic_sync(member, 1, {member: b"\x00"})
    answer = world.beat("b", 0, **FULL)
    assert answer["error_code"] == GROUP_ID_NOT_FOUND
    assert "is malformed" in answer["error_message"]


def test_an_upgrade_that_cannot_be_written_changes_nothing(world: World) -> None:
    member = classic_group(world)
    world.hosted.partition.fail_code = NOT_ENOUGH_REPLICAS
    refusal_of(world.ask("b", 0, **FULL))
    world.hosted.partition.fail_code = 0
    assert world.classic_beat(member, 1) == NONE
    assert isinstance(world.hosted.shard.groups[GROUP], ClassicGroup)


def test_a_member_with_nonsense_is_refused(world: World) -> None:
    world.join("b", "t")
    answer = world.classic_join("x", protocols=[{"name": "range", "metadata": b"\x00"}])
    assert answer["error_code"] == UNKNOWN_SERVER_ERROR


def test_who_is_refused_is_told_its_id_only_where_nobody_looked_at_the_group(world: World) -> None:
    member = mixed_group(world)
    nonsense = world.classic_join(member, "t", protocol_type="connect")
    assert (nonsense["error_code"], nonsense["member_id"]) == (INCONSISTENT_GROUP_PROTOCOL, "")
    hasty = world.classic_join(member, "t", session_timeout_ms=1)
    assert (hasty["error_code"], hasty["member_id"]) == (INVALID_SESSION_TIMEOUT, member)


def test_classic_members_count_for_the_size_of_the_group() -> None:
    world = World(config=replace(CONFIG, group_consumer_max_size=1))
    world.join("b", "t")
    assert world.classic_join("x", "t")["error_code"] == GROUP_MAX_SIZE_REACHED


def test_a_classic_member_cannot_come_if_migration_is_off() -> None:
    world = World(config=replace(CONFIG, group_consumer_migration_policy="disabled"))
    world.join("b", "t")
    assert world.classic_join("x", "t")["error_code"] == INCONSISTENT_GROUP_PROTOCOL


# -- consumer to classic --------------------------------------------------------------------------


def test_the_last_of_its_kind_leaves_a_classic_group(world: World) -> None:
    member = mixed_group(world)
    world.leave("b")
    group = world.hosted.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (list(group.members), group.generation) == ([member], 2)
    assert world.classic_beat(member, 2) == REBALANCE_IN_PROGRESS
    assert world.classic_join(member, "t")["generation_id"] == 3


@pytest.mark.parametrize("how", ["leaves", "is silent", "is removed"])
def test_however_it_goes(world: World, how: str) -> None:
    member = mixed_group(world)
    if how == "leaves":
        world.leave("b")
    elif how == "is removed":
        assert world.classic_leave("b") == NONE
    for _ in range(5):
        world.time.advance(9_000)
        if isinstance(world.hosted.shard.groups[GROUP], ConsumerGroup):
            world.classic_beat(member, 2)
            continue
        answer = world.classic_join(member, "t")
        world.classic_sync(member, answer["generation_id"], {member: assignment("t", 0)})
    assert isinstance(world.hosted.shard.groups[GROUP], ClassicGroup)


def test_its_members_have_sessions_there_too(world: World) -> None:
    mixed_group(world)
    world.leave("b")
    world.time.advance(10_000)
    assert world.hosted.shard.groups[GROUP].state_name() == "Empty"


def test_a_downgrade_is_there_after_a_restart(world: World) -> None:
    member = mixed_group(world)
    world.leave("b")
    world.hosted.restart()
    group = world.hosted.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert read_assignment(group.members[member].assignment).partitions == {"t": (0, 1)}


def test_a_downgrade_whose_answer_is_too_late_has_sessions(world: World) -> None:
    mixed_group(world)
    world.hosted.partition.holds_back = True
    world.ask("b", -1)
    world.time.advance(5000)
    world.hosted.partition.holds_back = False
    world.hosted.partition.commit_all()
    world.time.advance(10_000)
    assert world.hosted.shard.groups[GROUP].state_name() == "Empty"


def test_a_downgrade_that_cannot_be_written_changes_nothing(world: World) -> None:
    member = mixed_group(world)
    world.hosted.partition.fail_code = NOT_ENOUGH_REPLICAS
    refusal_of(world.ask("b", -1))
    world.hosted.partition.fail_code = 0
    assert world.beat("b", 2)["error_code"] == NONE
    assert world.classic_beat(member, 2) == NONE


def test_who_is_silent_is_out_although_its_end_could_not_be_written_at_first(world: World) -> None:
    member = mixed_group(world)
    world.hosted.partition.fail_code = NOT_ENOUGH_REPLICAS
    for _ in range(60):  # the session of b ends
        world.time.advance(1_000)
        world.classic_beat(member, 2)
    assert "b" in world.group().members
    world.hosted.partition.fail_code = 0
    for _ in range(60):
        world.time.advance(1_000)
        if isinstance(world.hosted.shard.groups[GROUP], ClassicGroup):
            return
        world.classic_beat(member, 2)
    raise AssertionError("it is a member for ever")


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_no_downgrade_if_it_is_not_wanted(world: World, policy: str) -> None:
    member = mixed_group(world)
    config = replace(CONFIG, group_consumer_migration_policy=policy)
    world.hosted.shard.on_config(config)
    world.leave("b")
    assert list(world.group().members) == [member]


def test_no_downgrade_to_a_group_that_is_too_large(world: World) -> None:
    mixed_group(world)
    world.hosted.shard.on_config(replace(CONFIG, group_max_size=0))
    world.leave("b")
    assert isinstance(world.hosted.shard.groups[GROUP], ConsumerGroup)


def test_all_protocols_of_its_members_are_kept(world: World) -> None:
    """The log has room for one; a member that speaks another may still come."""
    both = [{"name": name, "metadata": subscription("t")} for name in ("range", "roundrobin")]
    world.join("b", "t")
    world.classic_join("", "t", protocols=both)
    world.leave("b")
    group = world.hosted.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    other = [("roundrobin", subscription("t"))]
    assert group.supports("consumer", tuple(other))


def test_leaving_by_both_kinds_at_once(world: World) -> None:
    member = mixed_group(world)
    assert world.classic_leave("nobody") == UNKNOWN_MEMBER_ID
    assert world.classic_leave(member) == NONE
    assert list(world.group().members) == ["b"]
    assert world.classic_leave("b") == NONE
    assert world.state() == "Empty"


def test_who_joins_before_a_downgrade_is_committed_is_one_of_its_members(world: World) -> None:
    mixed_group(world)
    world.hosted.partition.holds_back = True
    world.ask("b", -1)
    protocols = [{"name": "range", "metadata": subscription("t")}]
    joined = world.ask_classic(
        JOIN_GROUP,
        3,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=protocols,
    )
    world.hosted.partition.holds_back = False
    world.hosted.partition.commit_all()
    group = world.hosted.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert len(group.members) == 2
    world.time.advance(10_000)
    assert joined.result()["error_code"] == NONE
    assert len(group.members) == 1, "the other one did not come back in its session"


# -- an empty group makes way ---------------------------------------------------------------------


def empty_group(world: World) -> None:
    """It was one with members, and has committed."""
    world.join("a", "t")
    assert world.commit(7, member="a", epoch=2) == NONE
    world.leave("a")
    assert world.state() == "Empty"


def sweep(world: World) -> None:
    world.time.advance(CONFIG.offsets_retention_minutes * 60_000)
    world.hosted.host.run(lambda shard: shard.on_tick())


@pytest.mark.parametrize(
    ("member", "fields", "code"),
    [
        ("", {"session_timeout_ms": 1}, INVALID_SESSION_TIMEOUT),
        ("", {"session_timeout_ms": 10**9}, INVALID_SESSION_TIMEOUT),
        ("a", {}, UNKNOWN_MEMBER_ID),
        ("", {"protocols": []}, INCONSISTENT_GROUP_PROTOCOL),
        ("", {"protocol_type": ""}, INCONSISTENT_GROUP_PROTOCOL),
        (
            "",
            {"protocols": [{"name": "range", "metadata": bytes(MEMORY_BYTES_MAX // 16)}]},
            COORDINATOR_NOT_AVAILABLE,
        ),
    ],
)
def test_a_classic_join_that_is_refused_leaves_an_empty_group_alone(
    world: World, member: str, fields: dict[str, Any], code: int
) -> None:
    empty_group(world)
    written = len(world.hosted.partition.batches)
    assert world.classic_join(member, "t", **fields)["error_code"] == code
    assert world.state() == "Empty"
    assert len(world.hosted.partition.batches) == written
    sweep(world)
    assert GROUP not in world.hosted.shard.groups
    assert not world.hosted.shard.offsets.has_group(GROUP)


def test_a_classic_member_finds_the_offsets_of_an_empty_group(world: World) -> None:
    empty_group(world)
    member: str = world.classic_join("", "t")["member_id"]
    world.classic_sync(member, 1, {member: assignment("t", 0, 1, 2, 3)})
    assert isinstance(world.hosted.shard.groups[GROUP], ClassicGroup)
    commit = world.hosted.shard.offsets.get(GROUP, "t", 0)
    assert commit is not None
    assert commit.offset == 7


def test_offsets_age_although_a_join_to_an_empty_group_was_told_too_late(world: World) -> None:
    empty_group(world)
    world.hosted.partition.holds_back = True
    protocols = [{"name": "range", "metadata": subscription("t")}]
    joined = world.ask_classic(
        JOIN_GROUP,
        3,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=protocols,
    )
    world.time.advance(5000)
    assert refusal_of(joined) == COORDINATOR_NOT_AVAILABLE
    world.hosted.partition.holds_back = False
    world.hosted.partition.commit_all()
    assert world.hosted.shard.offsets.has_group(GROUP)
    sweep(world)
    assert GROUP not in world.hosted.shard.groups
    assert not world.hosted.shard.offsets.has_group(GROUP)


# -- what classic members tell each other ---------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_subscriptions_of_every_version(version: int) -> None:
    data = subscription("t", "u", owned={"t": [1, 2]}, version=min(version, 3))
    data = version.to_bytes(2, "big") + data[2:]
    read = read_subscription(data)
    assert (read.version, read.topics) == (min(version, 3), ("t", "u"))
    assert read.owned == ({"t": (1, 2)} if version else {})


def test_an_assignment_there_and_back() -> None:
    data = write_assignment({"t": [2, 0, 1], "u": []}, 9)
    assert data[:2] == b"\x00\x03"
    assert read_assignment(data).partitions == {"t": (0, 1, 2), "u": ()}


@pytest.mark.parametrize("read", [read_subscription, read_assignment])
def test_nonsense_is_told_as_such(read: object) -> None:
    assert callable(read)
    whole = subscription("topic", owned={"topic": [1]})
    nonsense = [
        b"",
        b"\xff\xff" + whole[2:],
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
    ]
    nonsense += [whole[:size] for size in range(6)]
    for data in nonsense:
        with pytest.raises(UnreadableSubscription):
            read(data)
