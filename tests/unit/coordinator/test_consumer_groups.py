"""Goal: consumer groups hand partitions over safely, follow topics and settings, and forget nobody.
Method: members on virtual time over the real shard and host; after each story a replay of the log
has to give the same state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.consumer_group_draft import Draft
from ottla.coordinator.consumer_records import UNRELEASED, UNREVOKED
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.member_memory import MEMORY_BYTES_MAX
from ottla.coordinator.shard import Caller
from ottla.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_MEMBER_EPOCH,
    NOT_ENOUGH_REPLICAS,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
)
from sim.groups.asked_shard import GROUP
from sim.groups.hosted_shard import a_cluster
from tests.unit.coordinator.consumer_world import CONFIG, World, refusal_of

SESSION_MS = GroupConfig().group_consumer_session_timeout_ms


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.check_replay()


def two_members(world: World) -> None:
    """a has 0 and 1, b has 2 and 3, both in epoch 3."""
    world.join("a", "t")
    world.join("b", "t")
    world.beat("a", 2, owns={"t": [0, 1]})
    world.beat("b", 3)
    assert world.state() == "Stable"


# -- handing over ---------------------------------------------------------------------------------


def test_nobody_gets_what_another_has_not_given_up(world: World) -> None:
    world.join("a", "t")
    assert world.told(world.join("b", "t")) == {}
    assert world.told(world.beat("a", 2)) == {"t": [0, 1]}
    assert world.told(world.beat("b", 3)) is None
    # It goes on reading what it has to give up until its client has committed.
    assert world.told(world.beat("a", 2, owns={"t": [0, 1, 2, 3]})) is None
    assert world.told(world.beat("b", 3)) is None
    assert world.beat("a", 2, owns={"t": [0, 1]})["member_epoch"] == 3
    assert world.told(world.beat("b", 3)) == {"t": [2, 3]}


def test_a_part_of_it_is_not_enough(world: World) -> None:
    world.join("a", "t")
    world.join("b", "t")
    world.beat("a", 2)
    assert world.beat("a", 2, owns={"t": [0, 1, 2]})["member_epoch"] == 2
    assert world.told(world.beat("b", 3)) is None


def test_who_says_nothing_of_its_partitions_may_still_have_them(world: World) -> None:
    world.join("a", "t")
    world.join("b", "t")
    world.beat("a", 2)
    for _ in range(3):
        assert world.beat("a", 2)["member_epoch"] == 2
    assert world.group().members["a"].current.state == UNREVOKED
    assert world.group().members["b"].current.state == UNRELEASED


def test_who_leaves_gives_up_everything_at_once(world: World) -> None:
    two_members(world)
    world.leave("a")
    assert world.told(world.beat("b", 3)) == {"t": [0, 1, 2, 3]}


def test_a_lost_answer_is_no_reason_to_start_over(world: World) -> None:
    world.join("a", "t")
    world.join("b", "t")
    world.beat("a", 2, owns={"t": [0, 1]})  # and its answer is lost
    assert world.beat("a", 2, owns={"t": [0, 1]})["member_epoch"] == 3
    answer = world.beat("a", 2, owns={"t": [0, 1, 2]})
    assert answer["error_code"] == FENCED_MEMBER_EPOCH


def four_members(world: World) -> None:
    """In epoch 5 everybody is to have one; a still has two and has been told to give up 1."""
    two_members(world)
    world.join("c", "t")
    assert world.beat("a", 3)["member_epoch"] == 4
    world.join("d", "t")
    assert world.told(world.beat("a", 4)) == {"t": [0]}


def test_an_old_request_cannot_give_up_for_who_has_not(world: World) -> None:
    """Epoch 3 is over for `a`: what it said then must not count for what it has to give up now."""
    four_members(world)
    assert world.beat("a", 3, owns={"t": [0]})["error_code"] == FENCED_MEMBER_EPOCH
    assert world.group().holder_of(world.hosted.image.topics["t"].topic_id, 1) == "a"


def test_who_is_an_epoch_behind_cannot_give_up_what_it_got_since(world: World) -> None:
    two_members(world)
    world.leave("b")
    assert world.told(world.beat("a", 3)) == {"t": [0, 1, 2, 3]}  # and this is still on its way
    world.join("b", "t")
    answer = world.beat("a", 3, owns={"t": [0, 1]})  # over another connection, and older
    assert answer["member_epoch"] == 4
    assert world.told(world.beat("b", 5)) is None
    assert world.told(world.beat("a", 4, owns={"t": [0, 1, 2, 3]})) == {"t": [0, 1]}


def test_what_it_has_to_give_up_it_gives_up_even_to_get_it_back(world: World) -> None:
    world.join("a", "t")
    world.join("b", "t")
    assert world.told(world.beat("a", 2)) == {"t": [0, 1]}
    world.leave("b")
    assert world.beat("a", 2, owns={"t": [0, 1, 2, 3]})["member_epoch"] == 2
    assert world.told(world.beat("a", 2, owns={"t": [0, 1]})) == {"t": [0, 1, 2, 3]}


# -- assignments come one after the other ---------------------------------------------------------


def test_one_assignment_in_an_interval() -> None:
    world = World(config=replace(CONFIG, group_consumer_assignment_interval_ms=1000))
    world.join("a", "t")
    answer = world.join("b", "t")
    # It is in, in the epoch that has a target, and has to wait for the next one.
    assert (answer["member_epoch"], world.told(answer)) == (2, {})
    assert world.state() == "Assigning"
    world.time.advance(999)
    assert world.beat("b", 2)["member_epoch"] == 2
    world.time.advance(1)
    assert world.beat("b", 2)["member_epoch"] == 3
    assert world.state() == "Reconciling"
    world.check_replay()


@pytest.mark.parametrize("back_ms", [1, 500, 3_600_000])
def test_a_clock_that_is_set_back_does_not_hold_assignments_up(back_ms: int) -> None:
    world = World(config=replace(CONFIG, group_consumer_assignment_interval_ms=1000))
    world.join("a", "t")
    world.time.START_WALL_MS -= back_ms
    assert world.join("b", "t")["member_epoch"] == 3
    world.check_replay()


def test_the_interval_of_the_group_itself_wins() -> None:
    world = World(config=replace(CONFIG, group_consumer_assignment_interval_ms=1000))
    world.configure(consumer_assignment_interval_ms="0", consumer_heartbeat_interval_ms="77")
    world.join("a", "t")
    answer = world.join("b", "t")
    assert (answer["member_epoch"], answer["heartbeat_interval_ms"]) == (3, 77)


@pytest.mark.parametrize(("text", "interval_ms"), [("\0 77\x1f", 77), ("soon", 5000), ("", 5000)])
def test_blanks_of_java_count_for_nothing_and_what_is_no_number_is_not_set(
    world: World, text: str, interval_ms: int
) -> None:
    world.configure(consumer_heartbeat_interval_ms=text)
    assert world.join("a", "t")["heartbeat_interval_ms"] == interval_ms


# -- time-outs ------------------------------------------------------------------------------------


def test_who_is_silent_is_out_when_its_session_ends(world: World) -> None:
    two_members(world)
    world.time.advance(SESSION_MS - 1)
    world.beat("b", 3)
    world.time.advance(1)
    assert list(world.group().members) == ["b"]
    assert world.beat("a", 3)["error_code"] == UNKNOWN_MEMBER_ID
    assert world.told(world.beat("b", 3)) == {"t": [0, 1, 2, 3]}
    world.time.advance(SESSION_MS - 1)
    assert world.state() == "Stable"
    world.time.advance(1)
    assert world.state() == "Empty"


def test_the_session_of_the_group_itself_wins(world: World) -> None:
    world.configure(consumer_session_timeout_ms="100")
    world.join("a", "t")
    world.time.advance(99)
    world.beat("a", 2)
    world.time.advance(99)
    assert world.state() == "Stable"
    world.time.advance(1)
    assert world.state() == "Empty"


def test_a_session_that_is_shorter_now(world: World) -> None:
    world.join("a", "t")
    world.configure(consumer_session_timeout_ms="100")
    world.beat("a", 2)
    world.time.advance(100)
    assert world.state() == "Empty"


def test_who_never_gives_up_is_out_after_its_rebalance_time_out(world: World) -> None:
    world.join("a", "t", rebalance_timeout_ms=5000)
    world.join("b", "t")
    world.beat("a", 2)
    for _ in range(4):
        world.time.advance(1000)
        world.beat("a", 2, owns={"t": [0, 1, 2, 3]})
        world.beat("b", 3)
    world.time.advance(1000)
    assert list(world.group().members) == ["b"]
    assert world.told(world.beat("b", 3)) == {"t": [0, 1, 2, 3]}


def test_who_gives_up_in_time_stays(world: World) -> None:
    world.join("a", "t", rebalance_timeout_ms=5000)
    world.join("b", "t")
    world.beat("a", 2)
    world.time.advance(4999)
    world.beat("a", 2, owns={"t": [0, 1]})
    world.time.advance(5000)
    assert sorted(world.group().members) == ["a", "b"]


def test_sessions_begin_anew_after_a_restart(world: World) -> None:
    two_members(world)
    world.time.advance(SESSION_MS - 1)
    world.hosted.restart()
    world.time.advance(SESSION_MS - 1)
    assert world.beat("a", 3)["error_code"] == 0
    world.time.advance(1)
    assert list(world.group().members) == ["a"]


def test_a_rebalance_time_out_goes_on_after_a_restart(world: World) -> None:
    world.join("a", "t", rebalance_timeout_ms=5000)
    world.join("b", "t")
    world.beat("a", 2)
    world.hosted.restart()
    world.beat("a", 2)
    world.time.advance(5000)
    assert list(world.group().members) == ["b"]


def test_a_removal_that_cannot_be_written_is_tried_again(world: World) -> None:
    world.join("a", "t")
    world.hosted.partition.fail_code = NOT_ENOUGH_REPLICAS
    world.time.advance(SESSION_MS)
    assert world.state() == "Stable"
    world.hosted.partition.fail_code = 0
    world.time.advance(SESSION_MS)
    assert world.state() == "Empty"


def test_a_join_that_is_committed_too_late_times_out_all_the_same(world: World) -> None:
    world.hosted.partition.holds_back = True
    answer = world.ask(
        "a", 0, subscribed_topic_names=["t"], rebalance_timeout_ms=1, topic_partitions=[]
    )
    world.time.advance(5000)
    assert refusal_of(answer) == COORDINATOR_NOT_AVAILABLE
    world.hosted.partition.holds_back = False
    world.hosted.partition.commit_all()
    assert list(world.group().members) == ["a"]
    world.time.advance(SESSION_MS)
    assert world.state() == "Empty"


def test_who_joins_again_while_its_end_is_written_has_a_session(world: World) -> None:
    """The end of the old session must not take the timer of the new one along."""
    world.join("a", "t")
    world.time.advance(SESSION_MS - 1000)
    world.join("b", "t")
    world.hosted.partition.holds_back = True
    again = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 1, "topic_partitions": []}
    world.ask("c", 0, **again)
    world.time.advance(1000)  # the session of a ends
    world.ask("a", 0, **again)
    world.hosted.partition.holds_back = False
    world.hosted.partition.commit_all()
    assert set(world.group().members) == {"a", "b", "c"}
    world.time.advance(SESSION_MS)
    assert world.state() == "Empty"


def test_an_answer_waits_for_what_it_tells(world: World) -> None:
    """Told before it is committed, an assignment could be one that a new leader never had."""
    world.join("a", "t")
    world.hosted.partition.holds_back = True
    first = world.ask(
        "b", 0, subscribed_topic_names=["t"], rebalance_timeout_ms=1, topic_partitions=[]
    )
    second = world.ask(
        "b", 3, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert not first.done and not second.done
    world.hosted.partition.holds_back = False
    world.hosted.partition.commit_all()
    assert first.result()["member_epoch"] == second.result()["member_epoch"] == 3


# -- topics ---------------------------------------------------------------------------------------


def test_new_partitions_are_shared_out(world: World) -> None:
    two_members(world)
    world.set_topics(t=6, u=2)
    assert world.told(world.beat("a", 3)) == {"t": [0, 1, 4]}
    assert world.told(world.beat("b", 3)) == {"t": [2, 3, 5]}
    assert world.state() == "Stable"
    assert world.group().epoch == 4


def test_a_topic_that_comes_later_is_shared_out(world: World) -> None:
    answer = world.join("a", "later")
    assert (answer["member_epoch"], world.told(answer)) == (2, {})
    world.set_topics(t=4, u=2, later=1)
    assert world.told(world.beat("a", 2)) == {"later": [0]}


def test_a_topic_that_is_deleted_is_given_up(world: World) -> None:
    world.join("a", "t", "u")
    world.set_topics(t=4)
    assert world.told(world.beat("a", 2, owns={"t": [0, 1, 2, 3]})) == {"t": [0, 1, 2, 3]}
    assert world.state() == "Stable"


def test_a_topic_that_is_another_one_now_is_given_out_anew(world: World) -> None:
    world.join("a", "u")
    old = world.hosted.image.topics["u"].topic_id
    world.recreate("u")
    answer = world.beat("a", 2, topic_partitions=[{"topic_id": old, "partitions": [0, 1]}])
    assert answer["member_epoch"] == 2, "the old one has to be given up first"
    assert world.told(world.beat("a", 2, owns={})) == {"u": [0, 1]}


def test_topics_of_others_are_no_reason_for_anything(world: World) -> None:
    world.join("a", "t")
    world.set_topics(t=4, u=2, other=1)
    world.beat("a", 2)
    assert world.group().epoch == 2


def test_a_change_that_makes_no_difference_makes_no_epoch(world: World) -> None:
    """Another leader, another in-sync set: the topic is another object, and the same topic."""
    world.join("a", "t")
    same = a_cluster(t=4, u=2)
    world.change_image(same)
    assert world.group().needs_refresh
    world.beat("a", 2)
    assert (world.group().epoch, world.group().needs_refresh) == (2, False)


def test_after_a_restart_the_topics_are_looked_at_once(world: World) -> None:
    world.join("a", "t")
    world.set_topics(t=5, u=2)
    world.hosted.restart()
    assert world.told(world.beat("a", 2)) == {"t": [0, 1, 2, 3, 4]}
    world.hosted.restart()
    world.beat("a", 3)
    assert world.group().epoch == 3


def test_an_epoch_whose_record_is_lost_is_made_again(world: World) -> None:
    world.join("a", "t")
    world.set_topics(t=5, u=2)
    world.hosted.partition.fail_code = NOT_ENOUGH_REPLICAS
    assert refusal_of(world.ask("a", 2)) == COORDINATOR_NOT_AVAILABLE
    world.hosted.partition.fail_code = 0
    assert world.told(world.beat("a", 2)) == {"t": [0, 1, 2, 3, 4]}


def test_a_broker_in_another_rack_makes_an_epoch(world: World) -> None:
    class Broker:
        def __init__(self, rack: str) -> None:
            self.rack = rack

    world.change_image(replace(world.hosted.image, brokers={1: Broker("r1")}))
    world.join("a", "t")
    world.beat("a", 2)
    assert not world.group().needs_refresh
    world.change_image(replace(world.hosted.image, brokers={1: Broker("r2")}))
    world.beat("a", 2)
    assert world.group().epoch == 3


# -- subscriptions --------------------------------------------------------------------------------


def test_what_is_no_longer_subscribed_to_goes_at_once(world: World) -> None:
    world.join("a", "t", "u")
    answer = world.beat("a", 2, subscribed_topic_names=["u"])
    assert (answer["member_epoch"], world.told(answer)) == (2, {"u": [0, 1]})
    answer = world.beat("a", 2, owns={"u": [0, 1]})
    assert answer["member_epoch"] == 3


def test_what_it_gives_up_already_stays_on_the_list(world: World) -> None:
    """It has two partitions of t to give up, and now the rest of t as well."""
    world.join("a", "t", "u")
    world.join("b", "t")
    assert world.told(world.beat("a", 2)) == {"t": [0], "u": [0, 1]}
    answer = world.beat("a", 2, subscribed_topic_names=["u"])
    assert world.told(answer) == {"u": [0, 1]}
    world.beat("a", 2, owns={"t": [1], "u": [0, 1]})
    answer = world.beat("b", 3)
    assert (answer["member_epoch"], world.told(answer)) == (4, None)
    world.beat("a", 2, owns={"u": [0, 1]})
    assert world.told(world.beat("b", 4)) == {"t": [0, 1, 2, 3]}


def test_a_topic_that_nobody_reads_any_more_counts_no_longer(world: World) -> None:
    """Else a look at the topics after a restart would find a difference that is none."""
    world.join("a", "t", "u")
    world.beat("a", 2, subscribed_topic_names=["u"])
    world.beat("a", 2, owns={"u": [0, 1]})
    world.hosted.restart()
    world.beat("a", 3)
    assert world.group().epoch == 3


def test_also_while_the_next_assignment_has_to_wait() -> None:
    world = World(config=replace(CONFIG, group_consumer_assignment_interval_ms=60_000))
    world.join("a", "t", "u")
    assert world.told(world.beat("a", 2, subscribed_topic_names=["u"])) == {"u": [0, 1]}
    assert world.group().members["a"].current.state == UNREVOKED
    world.beat("a", 2, owns={"u": [0, 1]})
    assert world.told(world.join("b", "t")) == {}
    world.check_replay()


def test_members_with_different_topics(world: World) -> None:
    world.join("a", "t", "u")
    world.join("b", "u")
    world.beat("a", 2, owns={"t": [0, 1, 2, 3]})
    assert world.told(world.beat("b", 3)) == {"u": [0, 1]}


def test_most_votes_choose_the_assignor(world: World) -> None:
    world.join("a", "t", "u", server_assignor="range")
    world.join("b", "t", "u", server_assignor="uniform")
    assert world.hosted.shard.describe_consumer_groups([GROUP])[0]["assignor_name"] == "uniform"
    world.join("c", "t", "u", server_assignor="range")
    assert world.hosted.shard.describe_consumer_groups([GROUP])[0]["assignor_name"] == "range"


def test_who_changes_its_mind_has_one_vote(world: World) -> None:
    world.join("a", "t", server_assignor="uniform")
    world.join("b", "t", "u")
    world.beat("a", 2, server_assignor="range", subscribed_topic_names=["t", "u"])
    topics = world.hosted.image.topics
    halves = {topics["t"].topic_id: {0, 1}, topics["u"].topic_id: {0}}
    assert world.group().targets["a"] == halves, "as range does it"


def test_a_client_that_moves_is_noted_without_an_assignment(world: World) -> None:
    world.join("a", "t")
    world.beat("a", 2, caller=Caller("other", "/10.0.0.1", 1))
    member = world.group().members["a"].metadata
    assert (member.client_id, member.client_host) == ("other", "/10.0.0.1")
    assert world.group().epoch == 2


def test_quiet_beats_write_nothing(world: World) -> None:
    two_members(world)
    before = world.hosted.partition.log_end_offset
    for _ in range(10):
        world.beat("a", 3)
        world.beat("b", 3, owns={"t": [2, 3]})
    assert world.hosted.partition.log_end_offset == before


# -- static members -------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_place(world: World) -> None:
    world.join("a", "t", instance_id="i")
    world.join("b", "t")
    world.beat("a", 2, owns={"t": [0, 1]})
    world.beat("b", 3)
    world.beat("a", -2, instance_id="i")
    assert world.told(world.beat("b", 3)) is None, "its place is kept"
    answer = world.join("c", "t", instance_id="i")
    assert (answer["member_epoch"], world.told(answer)) == (3, {"t": [0, 1]})
    assert sorted(world.group().members) == ["b", "c"]
    assert world.group().epoch == 3


def test_a_static_member_that_starts_over_is_let_in(world: World) -> None:
    """Fenced, it joins again as who it is: the instance is in use, but by itself."""
    world.join("a", "t", instance_id="i")
    answer = world.join("a", "t", instance_id="i")
    assert (answer["member_epoch"], world.told(answer)) == (2, {"t": [0, 1, 2, 3]})


def test_who_does_not_come_back_in_time_loses_its_place(world: World) -> None:
    world.join("a", "t", instance_id="i")
    world.beat("a", -2, instance_id="i")
    world.time.advance(SESSION_MS)
    assert world.state() == "Empty"


def test_commits_of_a_member_that_came_back_start_at_zero(world: World) -> None:
    """Its partitions were assigned to who it was; in the eyes of commits it had them always."""
    world.join("a", "t", instance_id="i")
    world.beat("a", -2, instance_id="i")
    world.join("b", "t", instance_id="i")
    topic_id = world.hosted.image.topics["t"].topic_id
    assert world.group().members["b"].current.assigned == {topic_id: dict.fromkeys(range(4), 0)}


def test_its_partitions_are_free_for_who_takes_its_place(world: World) -> None:
    world.join("a", "t", instance_id="i")
    group = world.group()
    draft = Draft(group, "b", None, [])
    topic_id = world.hosted.image.topics["t"].topic_id
    assert not draft.is_free(topic_id, 0)
    draft.take_place_of(group.members["a"])
    assert draft.is_free(topic_id, 0)


# -- commits --------------------------------------------------------------------------------------


def test_what_is_being_given_up_may_be_committed_in_an_older_epoch(world: World) -> None:
    """The answer with the new epoch may be on its way while the client commits."""
    four_members(world)
    topic_id = world.hosted.image.topics["t"].topic_id
    group = world.group()
    assert group.check_commit("a", None, 3, 9, transactional=False) == STALE_MEMBER_EPOCH
    assert group.check_older_commit("a", 3, [(topic_id, 0), (topic_id, 1)]) == 0
    assert group.check_older_commit("a", 1, [(topic_id, 1)]) == STALE_MEMBER_EPOCH
    assert group.check_older_commit("a", 3, [(topic_id, 2)]) == STALE_MEMBER_EPOCH
    assert group.check_older_commit("nobody", 3, [(topic_id, 0)]) == UNKNOWN_MEMBER_ID


# -- bounds ---------------------------------------------------------------------------------------


def test_members_are_refused_before_memory_runs_out(world: World) -> None:
    memory = world.hosted.shard.context.memory
    world.join("a", "t")
    held = memory.held
    assert held > 0
    memory.held = MEMORY_BYTES_MAX
    full: dict[str, Any] = {
        "subscribed_topic_names": ["t"],
        "rebalance_timeout_ms": 1,
        "topic_partitions": [],
    }
    assert world.beat("b", 0, **full)["error_code"] == COORDINATOR_NOT_AVAILABLE
    assert world.beat("a", 2)["error_code"] == 0, "who is in may stay"
    answer = world.beat("a", 2, subscribed_topic_names=[f"topic-{n}" for n in range(100)])
    assert answer["error_code"] == COORDINATOR_NOT_AVAILABLE
    memory.held = held
    world.leave("a")
    assert memory.held == 0


def test_memory_is_given_back_when_a_partition_is_lost(world: World) -> None:
    memory = world.hosted.shard.context.memory
    world.join("a", "t")
    world.hosted.shard.unload()
    assert memory.held == 0
    world.hosted.restart()
