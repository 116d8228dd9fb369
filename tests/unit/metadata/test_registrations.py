"""Goal: a broker takes part only when nothing is left of its earlier life, and leaves nothing
behind that another could lead.
Method: images made by hand, each decision applied.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ProtocolError
from ottla.metadata import nodes, paths
from ottla.metadata.nodes import StateContent
from ottla.metadata.registrations import (
    decide_hand_over,
    decide_new_epochs,
    decide_serving,
    decide_stopping,
    decide_unregister,
    may_serve,
)
from ottla.metadata.store import VersionConflict, Write
from ottla.protocol.error_codes import BROKER_ID_NOT_REGISTERED, INVALID_REQUEST
from tests.unit.metadata.builders import SETTINGS, Cluster, registration


def a_cluster(content: StateContent, *, fenced: bool = False, unclean: bool = False) -> Cluster:
    """Broker 1 as it is said to be, and one partition on 1, 2 and 3 in this state."""
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", (1, 2, 3))
    cluster.store.register(1, registration(1, None, fenced, False, unclean))
    state = nodes.partition_state(1, content)
    cluster.store.commit([Write(paths.partition_state("t", 0), state, None)])
    cluster.reload()
    return cluster


def state(leader: int, *in_sync: int, eligible: tuple[int, ...] = ()) -> StateContent:
    return StateContent(leader, 4, in_sync, eligible, ())


@pytest.mark.parametrize(
    ("content", "unclean", "may"),
    [
        (state(1, 1, 2), False, False),
        (state(2, 1, 2), False, True),
        (state(2, 2, 3), True, True),
        (state(2, 1, 2), True, False),
        (state(2, 2, eligible=(1,)), True, False),
        (state(2, 2, eligible=(1,)), False, True),
        (state(-1, 1, eligible=(2,)), True, False),
        (state(-1, 1), False, True),
    ],
)
def test_who_may_serve(content: StateContent, unclean: bool, may: bool) -> None:
    cluster = a_cluster(content, fenced=True, unclean=unclean)
    assert may_serve(cluster.image, 1, SETTINGS) == may


def test_the_last_one_who_knows_anything_serves_once_that_is_written_down() -> None:
    assert not may_serve(a_cluster(state(-1, 1), fenced=True, unclean=True).image, 1, SETTINGS)
    noted = state(-1, 1)._replace(unclean_epoch=5)
    assert may_serve(a_cluster(noted, fenced=True, unclean=True).image, 1, SETTINGS)


def test_serving_ends_the_fence_and_the_doubt() -> None:
    cluster = a_cluster(state(2, 2, 3), fenced=True, unclean=True)
    epoch = cluster.image.brokers[1].epoch
    cluster.run(lambda image: decide_serving(image, 1))
    broker = cluster.image.brokers[1]
    assert (broker.fenced, broker.unclean, broker.epoch) == (False, False, epoch)
    assert broker.endpoints == {"PLAINTEXT": ("host1", 9092)}
    assert decide_serving(cluster.image, 1).writes == []
    assert cluster.same_as_store()


def test_a_later_life_is_not_spoken_for() -> None:
    cluster = a_cluster(state(2, 2, 3))
    cluster.run(lambda image: decide_stopping(image, 1))
    stale = decide_serving(a_cluster(state(2, 2, 3), fenced=True).image, 1)
    with pytest.raises(VersionConflict):
        cluster.store.commit(stale.writes)


def test_a_single_node_that_may_have_lost_records_leads_in_a_new_epoch() -> None:
    """Else other records would be given the same offsets in the same epoch."""
    cluster = Cluster(brokers=(1,))
    cluster.create_on("t", (1,), (1,))
    before = cluster.image.topics["t"].partitions
    for times in (1, 2):
        cluster.run(lambda image: decide_new_epochs(image, 1, SETTINGS))
        after = cluster.image.topics["t"].partitions
        assert {index: state.leader_epoch for index, state in after.items()} == {0: times, 1: times}
        assert all(state.leader == 1 and state.in_sync == (1,) for state in after.values())
    assert {state.leader_epoch for state in before.values()} == {0}
    assert cluster.same_as_store()


def test_who_is_gone_does_not_take_part() -> None:
    """It may hear of its own end before it hears that its session has ended. If it made its node
    anew then, nobody would know any more that it may have lost records."""
    cluster = a_cluster(state(2, 1, 2), fenced=True, unclean=True)
    cluster.lose(1)
    assert not may_serve(cluster.image, 1, SETTINGS)
    for decide in (decide_serving, decide_stopping):
        with pytest.raises(ProtocolError) as refused:
            decide(cluster.image, 1)
        assert refused.value.code == BROKER_ID_NOT_REGISTERED
    cluster.run(lambda image: decide_unregister(image, 1))
    assert not may_serve(cluster.image, 1, SETTINGS)


def test_who_stops_says_so_once() -> None:
    cluster = a_cluster(state(2, 2, 3))
    cluster.run(lambda image: decide_stopping(image, 1))
    assert cluster.image.brokers[1].shutting_down
    assert not cluster.image.may_lead(1)
    assert decide_stopping(cluster.image, 1).writes == []


def test_who_stops_before_it_served_does_not_take_back_that_it_may_have_lost_records() -> None:
    """Else it would be eligible for what it has not got."""
    cluster = a_cluster(state(2, 1, 2), fenced=True, unclean=True)
    cluster.run(lambda image: decide_stopping(image, 1))
    broker = cluster.image.brokers[1]
    assert (broker.fenced, broker.unclean, broker.shutting_down) == (True, True, True)
    decision = decide_hand_over(cluster.image, 1, SETTINGS)
    assert decision is not None
    cluster.run(lambda image: decision)
    left = cluster.image.partition("t", 0)
    assert left is not None
    assert (left.in_sync, left.eligible) == ((2,), ())


@pytest.mark.parametrize(
    ("content", "leader", "in_sync"),
    [
        (state(1, 1, 2, 3), 2, (2, 3)),
        (state(2, 1, 2, 3), 2, (2, 3)),
        (state(1, 1, 3), 3, (3,)),
        (state(1, 1), 1, (1,)),
        (state(2, 2, 3), 2, (2, 3)),
    ],
)
def test_what_is_handed_over(content: StateContent, leader: int, in_sync: tuple[int, ...]) -> None:
    cluster = a_cluster(content)
    cluster.run(lambda image: decide_stopping(image, 1))
    decision = decide_hand_over(cluster.image, 1, SETTINGS)
    if decision is not None:
        cluster.run(lambda image: decision)
    after = cluster.image.topics["t"].partitions[0]
    assert (after.leader, after.in_sync) == (leader, in_sync)
    assert decide_hand_over(cluster.image, 1, SETTINGS) is None


def test_what_nobody_alive_could_lead_is_kept() -> None:
    cluster = a_cluster(state(1, 1, 2))
    cluster.run(lambda image: decide_stopping(image, 1))
    cluster.lose(2)
    assert decide_hand_over(cluster.image, 1, SETTINGS) is None


def test_only_the_dead_are_forgotten() -> None:
    cluster = a_cluster(state(2, 2, 3))
    for broker, code in ((1, INVALID_REQUEST), (9, BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(ProtocolError) as refused:
            decide_unregister(cluster.image, broker)
        assert refused.value.code == code
    cluster.lose(1)
    stale = decide_unregister(cluster.image, 1)
    cluster.store.register(1, registration(1))
    with pytest.raises(VersionConflict):
        cluster.store.commit(stale.writes)
    cluster.lose(1)
    cluster.run(lambda image: decide_unregister(image, 1))
    assert sorted(cluster.image.brokers) == [2, 3]
    assert cluster.same_as_store()
