"""Goal: the controller goes on whatever the store answers, says each reason once, and counts what
comes about while it is the controller.
Method: three drivers over an ensemble in memory, in simulated time, with stores that refuse.
"""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import pytest

from ottla.base.errors import OttlaError
from ottla.metadata import nodes, paths
from ottla.metadata.elections import PREFERRED, UNCLEAN, decide_elect_leaders
from ottla.metadata.store import ChangeTooLarge, StoreRefused
from tests.unit.runtime.metadata_world import World


def a_topic(settings: dict[str, str] | None = None) -> World:
    """Three brokers, and topic t led by 1."""
    world = World(settings=settings)
    world.create("t", (1, 2, 3))
    return world


@pytest.mark.parametrize(
    "failure",
    [StoreRefused("not allowed"), ChangeTooLarge("much"), nodes.DamagedNode("/a", "no JSON")],
)
def test_duties_go_on_after_an_answer_that_nobody_expects(
    failure: OttlaError, caplog: pytest.LogCaptureFixture
) -> None:
    world = a_topic()
    (controller,) = world.controllers()
    other = 1 if controller != 1 else 2
    store = world.members[controller].store
    with mock.patch.object(store, "commit", side_effect=failure) as refusing:
        world.members[other].kill()
        world.time.run(2_000)
    assert refusing.call_count > 2
    told = [one.getMessage() for one in caplog.records if str(failure) in one.getMessage()]
    assert told == [f"the controller's duties have to wait: {failure}"]
    world.until_settled()
    assert world.truth().brokers[other].fenced
    assert world.state().leader != other


def test_who_cannot_be_elected_says_so_once_and_tries_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = a_topic()
    (controller,) = world.controllers()
    damage = nodes.DamagedNode(paths.CONTROLLER_EPOCH, "it is not a number")
    with ExitStack() as stack:
        for member in world.members.values():
            stack.enter_context(mock.patch.object(member.store, "campaign", side_effect=damage))
        world.members[controller].kill()
        world.time.run(60_000)
        assert world.controllers() == []
    told = [one.getMessage() for one in caplog.records if str(damage) in one.getMessage()]
    assert told == [f"this broker cannot become the controller: {damage}"] * 2
    world.until_settled()
    assert world.truth().brokers[controller].fenced


def test_the_controller_counts_elections_whoever_asks_for_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = a_topic({"min.insync.replicas": "1"})
    everybody = list(world.members.values())

    def elect(election_type: int) -> tuple[int, int]:
        asked = next(one for one in world.members if one not in world.controllers())
        settings = world.members[asked].driver.settings()
        world.ask(
            asked, lambda image: decide_elect_leaders(image, [("t", 0)], election_type, settings)
        )
        world.until_settled()
        stats = [one.driver.duties.stats for one in everybody]
        return sum(one.elections for one in stats), sum(one.unclean_elections for one in stats)

    world.members[1].propose("t", 0, 1)
    world.until_settled()
    world.members[1].kill()
    world.until_settled()
    assert elect(UNCLEAN) == (1, 1)
    leader = world.state().leader
    assert [one for one in caplog.messages if "unclean election" in one] == [
        f"unclean election: broker {leader} leads t-0 in epoch {world.state().leader_epoch};"
        " records may be lost"
    ]
    everybody.append(world.add(1))
    world.until_settled()
    world.members[leader].propose("t", 0, leader, 1)
    world.until_settled()
    assert elect(PREFERRED) == (2, 1)
    assert world.state().leader == 1


def test_who_lost_a_session_in_a_silence_of_the_store_is_not_taken_for_dead() -> None:
    world = a_topic()
    (controller,) = world.controllers()
    epoch = world.state().leader_epoch
    for member in world.members.values():
        member.store.cut_off()
    world.time.run(3_000)
    for broker_id, member in world.members.items():
        if broker_id != controller:
            member.store.expire()
    # The controller is heard first; the others register again soon.
    world.members[controller].store.heal()
    world.time.run(500)
    for broker_id, member in world.members.items():
        if broker_id != controller:
            member.store.heal()
    world.until_settled()
    assert world.controllers() == [controller]
    assert world.state().leader_epoch == epoch
    assert not any(broker.fenced for broker in world.truth().brokers.values())


def test_who_died_in_a_silence_of_the_store_is_replaced_after_it() -> None:
    world = a_topic()
    (controller,) = world.controllers()
    other = 1 if controller != 1 else 2
    store = world.members[controller].store
    store.cut_off()
    world.members[other].kill()
    world.time.run(3_000)
    store.heal()
    world.time.run(4_000)
    assert other in world.state().in_sync
    world.until_settled()
    assert other not in world.state().in_sync
