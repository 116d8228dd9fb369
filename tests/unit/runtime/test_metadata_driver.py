"""Goal: a cluster of brokers keeps its partitions led, by whoever has everything, through deaths,
pauses, lost sessions and stops; and nobody who asks is left without an answer.
Method: three drivers over an ensemble in memory, in simulated time; one story for each rule.
"""

from __future__ import annotations

import logging

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.metadata import nodes, paths
from ottla.metadata.controller import (
    Reassignment,
    TopicSelection,
    decide_alter_reassignments,
    decide_delete_topics,
    decide_producer_id_block,
)
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.memory_store import AFTER, BEFORE, MemoryStore
from ottla.metadata.store import Liveness, StoreRefused, Write
from ottla.protocol.error_codes import NOT_CONTROLLER
from tests.unit.runtime.metadata_world import Member, World

ONE = {"min.insync.replicas": "1"}


def a_topic(settings: dict[str, str] | None = None, *, seed: int = 0) -> World:
    """Three brokers, and topic t led by 1."""
    world = World(settings=settings, seed=seed)
    world.create("t", (1, 2, 3))
    return world


def leaders(world: World) -> list[int]:
    return [
        state.leader
        for topic in world.truth().topics.values()
        for state in topic.partitions.values()
    ]


def set_config(world: World, path: str, **values: str) -> None:
    content = nodes.configs({name.replace("_", "."): value for name, value in values.items()})
    MemoryStore(world.ensemble).commit([Write(path, content, None)])


# ------------------------------------------------------------------------------------------- start
def test_three_brokers_have_one_image_and_one_controller() -> None:
    world = World()
    truth = world.truth()
    assert sorted(truth.brokers) == [1, 2, 3]
    assert truth.controller_id in (1, 2, 3)
    assert truth.controller_epoch == 1, "it was elected once"
    assert truth.broker_configs[""]["min.insync.replicas"] == "2", "one number for all brokers"


def test_any_broker_decides_and_has_acted_when_it_answers() -> None:
    world = World()
    for broker in (1, 2, 3):
        member = world.members[broker]
        answer = member.driver.submit(decide_producer_id_block)
        world.time.run_until(lambda answer=answer: answer.done)  # type: ignore[misc]
        assert member.history[-1].next_producer_id == answer.result()[0] + 1_000


def test_decisions_at_the_same_moment_all_come_through() -> None:
    world = World(seed=3)
    answers = [
        member.driver.submit(decide_producer_id_block)
        for _ in range(4)
        for member in world.members.values()
    ]
    world.time.run_until(lambda: all(answer.done for answer in answers))
    firsts = [answer.result()[0] for answer in answers]
    assert sorted(firsts) == [count * 1_000 for count in range(12)]


def test_a_store_of_another_cluster_is_refused() -> None:
    world = World()
    world.cluster_id = "another"
    stranger = Member(world, 4)
    opened = stranger.driver.open("another", "new")
    world.time.run_until(lambda: opened.done)
    with pytest.raises(StoreRefused, match="another"):
        opened.result()


# ------------------------------------------------------------------------------------------ deaths
def test_a_dead_leader_is_replaced_in_the_commit_that_declares_it_dead() -> None:
    world = a_topic()
    before = world.ensemble.last_change
    world.members[1].kill()
    world.until_settled()
    state = world.state()
    assert (state.leader, state.leader_epoch, state.in_sync) == (2, 1, (2, 3))
    changes = world.ensemble.changes_after(before) or []
    (declared,) = [change for change in changes if any("state" in u.path for u in change.updates)]
    assert paths.broker_id(1) in [update.path for update in declared.updates]


@pytest.mark.parametrize("seed", range(5))
def test_a_dead_controller_is_replaced_and_its_duties_are_done(seed: int) -> None:
    world = a_topic(seed=seed)
    world.create("u", (2, 3, 1), (3, 1, 2))
    epoch = world.truth().controller_epoch
    (controller,) = world.controllers()
    world.members[controller].kill()
    world.until_settled()
    assert world.truth().controller_epoch == epoch + 1
    assert controller not in leaders(world)
    assert all(controller not in world.state(t, i).in_sync for t, i in (("t", 0), ("u", 1)))


def test_the_last_one_is_waited_for_and_leads_again() -> None:
    world = a_topic()
    world.members[1].propose("t", 0, 1)
    world.until_settled()
    world.members[1].kill()
    world.until_settled()
    state = world.state()
    assert (state.leader, state.in_sync) == (2, (2,)), "2 was eligible: it has everything"
    world.members[2].kill()
    world.members[3].kill()
    world.add(1)
    world.until_settled()
    assert world.state().leader == 1, "it is still eligible"


def test_who_comes_back_leads_nothing_of_its_earlier_life() -> None:
    world = a_topic()
    world.members[1].kill()
    world.add(1)
    epoch = world.state().leader_epoch
    world.until_settled()
    assert world.state().leader_epoch > epoch
    assert world.state().leader == 2
    assert 1 not in world.state().in_sync


def test_all_killed_at_once_leave_every_one_as_good_as_before() -> None:
    world = a_topic(ONE)
    for member in list(world.members.values()):
        member.kill()
    world.add(3)
    world.until_settled()
    assert world.state().leader == 3
    assert world.state().unclean_epoch == -1


def test_who_may_have_lost_records_leaves_every_set_before_it_serves() -> None:
    world = a_topic()
    world.members[1].kill()
    member = world.add(1, unclean=True)
    world.time.run_until(lambda: member.is_serving)
    assert 1 not in world.state().in_sync
    assert 1 not in world.state().eligible
    world.until_settled()
    assert not world.truth().brokers[1].unclean
    world.members[2].propose("t", 0, 2, 3, 1)
    world.until_settled()
    assert world.state().in_sync == (2, 3, 1), "it has caught up and is back"


@pytest.mark.parametrize("seed", range(8))
def test_a_session_lost_at_the_start_does_not_let_it_in(seed: int) -> None:
    world = a_topic(seed=seed)
    world.members[1].kill()
    member = world.add(1, unclean=True)
    world.time.run(seed * 3)
    member.store.expire()
    for _ in range(3_000):
        world.time.run(1)
        broker = world.truth().brokers[1]
        taken_out = 1 not in (*world.state().in_sync, *world.state().eligible)
        assert broker.fenced or taken_out
    world.until_settled()


def test_the_only_replica_leads_again_even_if_it_may_have_lost_records() -> None:
    world = World()
    world.create("t", (1,))
    world.members[1].kill()
    world.add(1, unclean=True)
    world.until_settled()
    assert world.state().leader == 1
    assert world.state().unclean_epoch == world.state().leader_epoch


def test_a_pause_that_outlives_the_session_costs_the_leadership() -> None:
    world = a_topic()
    paused = world.members.pop(1)
    paused.pause()
    paused.store.expire()
    world.until_settled()
    assert world.state().leader == 2
    world.members[1] = paused
    paused.resume()
    world.until_settled()
    assert paused.image.topics["t"].partitions[0].leader == 2


def test_a_controller_that_was_paused_can_do_nothing_in_the_name_of_its_successor() -> None:
    world = a_topic()
    (controller,) = world.controllers()
    zombie = world.members.pop(controller)
    zombie.pause()
    zombie.store.expire()
    world.until_settled()
    (successor,) = world.controllers()
    assert successor != controller
    epoch = world.truth().controller_epoch
    world.members[controller] = zombie
    zombie.resume()
    world.until_settled()
    assert world.controllers() == [successor]
    assert world.truth().controller_epoch == epoch


# --------------------------------------------------------------------------------------- elections
def test_an_unclean_election_waits_until_it_is_allowed_and_then_does_not() -> None:
    world = a_topic(ONE)
    world.members[1].propose("t", 0, 1)
    world.until_settled()
    world.members[1].kill()
    world.until_settled()
    world.time.run(60_000)
    state = world.state()
    assert (state.leader, state.in_sync, state.last_known) == (-1, (1,), (1,))
    set_config(world, paths.topic_configs("t"), unclean_leader_election_enable="true")
    world.time.run(1_000)
    state = world.state()
    assert (state.leader, state.in_sync) == (2, (2,))
    assert state.unclean_epoch == state.leader_epoch


def test_unclean_elections_can_be_allowed_for_all_topics() -> None:
    world = a_topic(ONE)
    world.members[1].propose("t", 0, 1)
    world.until_settled()
    world.members[1].kill()
    world.until_settled()
    set_config(
        world,
        paths.broker_configs(""),
        unclean_leader_election_enable="true",
        min_insync_replicas="1",
    )
    world.time.run(1_000)
    assert world.state().leader == 2


def test_preferred_leaders_come_back_after_a_while() -> None:
    world = a_topic()
    world.members[1].kill()
    world.add(1)
    world.until_settled()
    world.members[2].propose("t", 0, 2, 3, 1)
    world.until_settled()
    assert world.state().leader == 2
    world.time.run(301_000)
    assert world.state().leader == 1


def test_preferred_leaders_stay_away_where_that_is_wanted() -> None:
    world = World(settings={"auto.leader.rebalance.enable": "false"})
    world.create("t", (1, 2, 3))
    world.members[1].kill()
    world.add(1)
    world.until_settled()
    world.members[2].propose("t", 0, 2, 3, 1)
    world.time.run(1_000_000)
    assert world.state().leader == 2


def test_few_leaders_elsewhere_are_left_there_where_a_percentage_is_set() -> None:
    world = World(settings={"leader.imbalance.per.broker.percentage": "60"})
    world.create("t", (1, 2, 3), (1, 2, 3))
    for index, leader in ((0, 2), (1, 1)):
        state = world.state("t", index)
        content = nodes.partition_state(
            1, nodes.StateContent(leader, state.leader_epoch + 1, (1, 2, 3), (), ())
        )
        write = Write(paths.partition_state("t", index), content, None)
        MemoryStore(world.ensemble).commit([write])
    world.time.run(1_000_000)
    assert leaders(world) == [2, 1], "one of two is not more than 60 %"


def test_a_move_ends_when_everybody_has_come() -> None:
    world = World(4)
    world.create("t", (1, 2, 3))
    moves = [Reassignment("t", 0, (4, 2, 3))]
    driver = world.members[2].driver
    world.ask(2, lambda image: decide_alter_reassignments(image, moves, driver.settings()))
    world.until_settled()
    assert world.state().adding == (4,)
    world.members[1].propose("t", 0, 1, 2, 3, 4)
    world.until_settled()
    state = world.state()
    assert (state.replicas, state.leader, state.in_sync) == ((4, 2, 3), 4, (2, 3, 4))
    assert not state.is_reassigning()


def test_many_partitions_are_moved_in_commits_of_two_hundred() -> None:
    world = World()
    world.create("t", *[(1, 2, 3)] * 450)
    before = world.ensemble.last_change
    world.members[1].kill()
    world.until_settled()
    assert set(leaders(world)) == {2}
    changes = world.ensemble.changes_after(before) or []
    sizes = [sum("/state" in u.path for u in change.updates) for change in changes]
    assert [size for size in sizes if size] == [200, 200, 50]


# --------------------------------------------------------------------------------------- leaving
@pytest.mark.parametrize("seed", range(5))
def test_who_stops_hands_over_without_a_moment_of_nobody(seed: int) -> None:
    world = a_topic(seed=seed)
    world.create("u", *[(1, 2, 3), (2, 1, 3)] * 150)
    leaving = world.members[1]
    before = len(leaving.history)
    left = leaving.driver.leave()
    world.time.run_until(lambda: left.done)
    assert 1 not in leaders(world)
    assert all(1 not in world.state("u", index).in_sync for index in range(300))
    seen = [
        state.leader
        for image in (*leaving.history[before:], leaving.image)
        for topic in image.topics.values()
        for state in topic.partitions.values()
    ]
    assert -1 not in seen
    signed_off = leaving.driver.sign_off()
    world.time.run_until(lambda: signed_off.done)
    leaving.kill()
    world.until_settled()
    assert world.truth().brokers[1].fenced


def test_a_controller_that_stops_is_replaced_at_once() -> None:
    world = a_topic()
    (controller,) = world.controllers()
    leaving = world.members[controller]
    left = leaving.driver.leave()
    world.time.run_until(lambda: left.done)
    signed_off = leaving.driver.sign_off()
    world.time.run_until(lambda: signed_off.done)
    leaving.kill(expire=False)
    world.time.run_until(lambda: world.truth().controller_id in world.members, 500)


def test_what_nobody_else_could_lead_is_led_to_the_end() -> None:
    world = World()
    world.create("t", (1,))
    left = world.members[1].driver.leave()
    world.time.run_until(lambda: left.done)
    assert world.state().leader == 1


def test_who_can_not_hand_over_stops_after_a_while() -> None:
    world = a_topic()
    leaving = world.members[1]
    leaving.store.cut_off()
    left = leaving.driver.leave()
    world.time.run(19_000)
    assert not left.done
    world.time.run(2_000)
    assert left.done


def test_nothing_is_given_to_who_stops() -> None:
    world = a_topic()
    left = world.members[2].driver.leave()
    world.time.run_until(lambda: left.done)
    world.members[1].kill()
    world.time.run(1_000)
    assert world.state().leader == 3


# ---------------------------------------------------------------------------------------- outages
def refused(world: World, member: Member) -> ProtocolError:
    answer = member.driver.submit(decide_producer_id_block)
    world.time.run_until(lambda: answer.done, 30_000)
    with pytest.raises(ProtocolError) as error:
        answer.result()
    return error.value


def test_without_the_store_everybody_is_answered_and_nothing_is_decided() -> None:
    world = a_topic()
    for member in world.members.values():
        member.store.cut_off()
    error = refused(world, world.members[1])
    assert error.code == NOT_CONTROLLER
    assert error.message.startswith("coordination unavailable")
    world.time.run(60_000)
    assert refused(world, world.members[2]).code == NOT_CONTROLLER
    before = world.ensemble.last_change
    for member in world.members.values():
        member.store.heal()
    world.until_settled()
    assert world.state().leader_epoch == 0, "nobody lost a session: nothing has changed"
    assert world.ensemble.last_change == before


@pytest.mark.parametrize("seed", range(10))
def test_an_outage_that_ends_every_session_is_no_storm_of_elections(seed: int) -> None:
    world = a_topic(seed=seed)
    world.create("u", (2, 3, 1), (3, 1, 2))
    for member in world.members.values():
        member.store.cut_off()
    world.time.run(30_000)
    for member in world.members.values():
        member.store.expire()
    for member in world.members.values():
        member.store.heal()
    world.until_settled()
    world.time.run(20_000)
    assert world.is_settled()
    assert leaders(world) == [1, 2, 3]
    assert [world.state(t, i).leader_epoch for t, i in (("t", 0), ("u", 0), ("u", 1))] == [0, 0, 0]


def test_who_died_in_an_outage_is_found_out_after_it() -> None:
    world = a_topic()
    for member in world.members.values():
        member.store.cut_off()
    world.members[1].kill()
    for member in list(world.members.values()):
        member.store.expire()
        member.store.heal()
    world.until_settled()
    world.time.run_until(lambda: world.state().leader == 2, 30_000)


def test_a_lost_session_is_registered_again_with_another_epoch() -> None:
    world = a_topic()
    epoch = world.truth().brokers[2].epoch
    world.members[2].store.expire()
    world.time.run(1)
    assert refused(world, world.members[2]).code == NOT_CONTROLLER
    world.until_settled()
    assert world.truth().brokers[2].epoch > epoch
    world.ask(2, decide_producer_id_block)


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_an_answer_that_is_lost_is_told_as_unknown(when: str) -> None:
    world = World()
    world.members[1].store.lose_next_answer(when)
    assert refused(world, world.members[1]).code == NOT_CONTROLLER
    world.until_settled()
    assert world.truth().next_producer_id == (1_000 if when == AFTER else 0)


def test_duties_go_on_after_an_answer_that_is_lost() -> None:
    world = a_topic()
    (controller,) = world.controllers()
    other = 1 if controller != 1 else 2
    world.members[controller].store.lose_next_answer(AFTER)
    world.members[other].kill()
    world.until_settled()
    assert world.truth().brokers[other].fenced
    assert world.state().leader != other


def test_who_waits_too_long_is_answered() -> None:
    world = World()
    world.members[1].run = lambda work, *arguments: Deferred()  # type: ignore[method-assign]
    answer = world.members[1].driver.submit(decide_producer_id_block)
    world.time.run(24_000)
    assert not answer.done
    world.time.run(2_000)
    with pytest.raises(ProtocolError, match="coordination unavailable"):
        answer.result()


def test_a_decision_that_always_comes_too_late_is_given_up() -> None:
    world = World()

    def stale(image: MetadataImage) -> Decision[None]:
        return Decision([Write(paths.FEATURES, b"{}", 99)], None)

    answer = world.members[1].driver.submit(stale)
    world.time.run_until(lambda: answer.done)
    with pytest.raises(ProtocolError) as error:
        answer.result()
    assert error.value.code == NOT_CONTROLLER


def test_who_is_back_already_is_not_declared_dead() -> None:
    world = a_topic()
    (controller,) = world.controllers()
    other = 2 if controller != 2 else 3
    store = world.members[controller].store
    fresh = store.liveness
    stale = Liveness(fresh().brokers - {other}, controller)
    answers = [stale, stale]
    store.liveness = lambda: answers.pop() if answers else fresh()  # type: ignore[method-assign]
    world.members[controller].driver.duties.ask_liveness()
    world.time.run(1_000)
    assert answers == []
    assert not world.truth().brokers[other].fenced
    assert other in world.state().in_sync


# ----------------------------------------------------------------------------------------- damage
def test_a_damaged_topic_is_told_once_kept_and_healed(caplog: pytest.LogCaptureFixture) -> None:
    world = a_topic()
    world.create("u", (2, 3, 1))
    hand = MemoryStore(world.ensemble)
    sound = hand.load().nodes[paths.topic("t")]
    with caplog.at_level(logging.ERROR):
        hand.commit([Write(paths.topic("t"), b"{", None)])
        world.time.run(30_000)
    told = [record for record in caplog.records if "damaged" in record.getMessage()]
    assert len(told) == 3, "once for each broker"
    for member in world.members.values():
        assert "t" in member.image.topics
    world.members[2].kill()
    world.time.run(10_000)
    assert world.members[3].image.topics["u"].partitions[0].leader == 3, "others go on"
    # Mended by hand: no change tells of it.
    world.ensemble.nodes[paths.topic("t")] = sound
    world.until_settled()
    assert world.state().leader == 1


def test_a_deleted_topic_is_gone_everywhere() -> None:
    world = a_topic()
    world.ask(3, lambda image: decide_delete_topics(image, [TopicSelection("t")]))
    world.until_settled()
    assert all(member.image.topics == {} for member in world.members.values())


def test_an_emptied_store_is_not_taken_for_true() -> None:
    world = a_topic()
    member = world.members[1]
    member.store.cut_off()
    world.ensemble.nodes.clear()
    member.store.expire()
    member.store.heal()
    world.time.run(30_000)
    assert "t" in member.image.topics
    assert refused(world, member).code == NOT_CONTROLLER
