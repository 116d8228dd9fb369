"""Goal: a partition moves without ever being on fewer in-sync replicas than it had to be.
Method: moves by hand, from order to completion; random orders and catch-ups, after each of which
the invariants of a partition must hold and the image must be the one that the store holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.controller import PartitionResult, decide_alter_reassignments
from ottla.metadata.decision import decided
from ottla.metadata.image import PartitionState
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.reassignment import Reassignment, maybe_complete
from ottla.metadata.store import VersionConflict
from ottla.protocol.error_codes import (
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.unit.metadata.builders import SETTINGS, Cluster, registration


def a_cluster() -> Cluster:
    cluster = Cluster(brokers=(1, 2, 3, 4))
    cluster.create_on("t", (1, 2), (2, 1))
    return cluster


def move(
    cluster: Cluster, replicas: Sequence[int] | None, *, allow_factor_change: bool = True
) -> PartitionResult:
    (result,) = cluster.run(
        lambda image: decide_alter_reassignments(
            image,
            [Reassignment("t", 0, replicas)],
            SETTINGS,
            allow_factor_change=allow_factor_change,
        )
    )
    return result


def partition(cluster: Cluster) -> PartitionState:
    return cluster.image.topics["t"].partitions[0]


def catch_up(cluster: Cluster, *replicas: int) -> None:
    """These join the in-sync set, as their leader would propose it; a move may be done then."""
    state = partition(cluster)
    joined = replace(state, in_sync=(*state.in_sync, *replicas))
    write(cluster, maybe_complete(joined, cluster.image.may_lead, 2))


def write(cluster: Cluster, state: PartitionState) -> None:
    writes = PartitionWrites(cluster.image)
    writes.add(cluster.image.topics["t"], 0, state)
    cluster.run(lambda image: decided(image, writes.operations(), None))


def test_a_move_from_order_to_end() -> None:
    cluster = a_cluster()
    assert move(cluster, (3, 4)).error_code == NONE
    state = partition(cluster)
    assert state.replicas == (3, 4, 1, 2)
    assert (state.adding, state.removing) == ((3, 4), (1, 2))
    assert (state.leader, state.in_sync, state.leader_epoch) == (1, (1, 2), 0)
    assert state.partition_epoch == 1, "a leader that knows only the old replicas must be refused"
    assert list(cluster.image.reassigning()) == [("t", 0, state)]
    catch_up(cluster, 3)
    assert partition(cluster).adding == (3, 4), "one is missing"
    catch_up(cluster, 4)
    state = partition(cluster)
    assert (state.replicas, state.in_sync) == ((3, 4), (3, 4))
    assert not state.is_reassigning()
    assert (state.leader, state.leader_epoch) == (3, 1)
    assert cluster.same_as_store()


def test_another_partition_of_the_topic_is_left_alone() -> None:
    cluster = a_cluster()
    before = cluster.image.topics["t"].partitions[1]
    move(cluster, (3,))
    assert cluster.image.topics["t"].partitions[1] is before


def test_another_order_of_the_same_brokers_is_done_at_once() -> None:
    cluster = a_cluster()
    move(cluster, (2, 1))
    state = partition(cluster)
    assert (state.replicas, state.leader, state.leader_epoch) == ((2, 1), 1, 0)
    assert not state.is_reassigning()


def test_the_same_replicas_are_no_change() -> None:
    cluster = a_cluster()
    before = cluster.image
    assert move(cluster, (1, 2)).error_code == NONE
    assert cluster.image is before


def test_fewer_replicas_are_done_at_once_in_a_new_epoch() -> None:
    cluster = a_cluster()
    move(cluster, (2,))
    assert partition(cluster) == PartitionState(2, 1, (2,), (2,), 1)


def test_the_last_in_sync_replica_is_not_removed_before_another_is_in_sync() -> None:
    cluster = a_cluster()
    move(cluster, (3,))
    state = partition(cluster)
    assert (state.leader, state.in_sync, state.removing) == (1, (1, 2), (1, 2))


def test_a_new_leader_must_be_alive() -> None:
    state = PartitionState(1, 0, (3, 1), (1, 3), adding=(3,), removing=(1,))
    assert maybe_complete(state, lambda broker: broker == 1, 2) is state
    assert maybe_complete(state, lambda broker: True, 2).leader == 3


def alone_and_back(cluster: Cluster, *, unclean: bool) -> PartitionState:
    """2 was the last in sync, 4 knew as much; 2 died and is back, not yet taking part."""
    cluster.create_on("t", (3, 2, 4))
    write(cluster, replace(partition(cluster), leader=2, in_sync=(2,), eligible=(4,)))
    cluster.store.unregister(2)
    cluster.store.register(2, registration(2, fenced=True, unclean=unclean))
    return partition(cluster)


def test_who_may_have_lost_records_is_not_what_a_move_leaves() -> None:
    cluster = Cluster(brokers=(1, 2, 3, 4))
    alone_and_back(cluster, unclean=True)
    cluster.reload()
    move(cluster, (3, 2))
    state = partition(cluster)
    assert (state.leader, state.leader_epoch, state.in_sync) == (4, 1, (4,))
    assert state.removing == (4,), "it stays until another has what it has"
    assert state.unclean_epoch == -1


def test_a_new_epoch_of_a_move_is_not_given_to_who_is_not_back_yet() -> None:
    cluster = Cluster(brokers=(1, 2, 3, 4))
    before = alone_and_back(cluster, unclean=False)
    cluster.reload()
    move(cluster, (3, 2))
    state = partition(cluster)
    assert state.removing == (4,), "the move is not done: nobody of those left may lead"
    assert (state.leader, state.leader_epoch) == (2, before.leader_epoch)


def test_a_new_epoch_of_a_move_is_for_the_life_that_was_meant() -> None:
    cluster = Cluster(brokers=(1, 2, 3, 4))
    alone_and_back(cluster, unclean=True)
    with pytest.raises(VersionConflict):
        move(cluster, (3, 2))


def test_only_who_may_have_lost_records_would_be_left_by_a_cancelled_move() -> None:
    cluster = Cluster(brokers=(1, 2, 3, 4))
    cluster.create_on("t", (3, 2))
    move(cluster, (4, 2))
    write(cluster, replace(partition(cluster), leader=2, in_sync=(2,), eligible=(4,)))
    cluster.store.unregister(2)
    cluster.store.register(2, registration(2, fenced=True, unclean=True))
    cluster.reload()
    assert move(cluster, None).error_code == INVALID_REPLICA_ASSIGNMENT


def test_cancelled_as_if_it_had_never_been() -> None:
    cluster = a_cluster()
    move(cluster, (3, 4))
    assert move(cluster, None).error_code == NONE
    state = partition(cluster)
    assert (state.replicas, state.in_sync, state.leader) == ((1, 2), (1, 2), 1)
    assert state.leader_epoch == 1, "those left behind must not count any more"
    assert not state.is_reassigning()
    assert move(cluster, None).error_code == NO_REASSIGNMENT_IN_PROGRESS
    assert move(cluster, None).error_message is None


def test_a_leader_that_was_being_added_steps_down_when_cancelled() -> None:
    cluster = a_cluster()
    move(cluster, (3, 4))
    catch_up(cluster, 3)
    led = replace(partition(cluster), leader=3, leader_epoch=5)
    write(cluster, led)
    move(cluster, None)
    state = partition(cluster)
    assert (state.leader, state.leader_epoch, state.in_sync) == (1, 6, (1, 2))


def test_a_move_that_only_its_newcomers_could_serve_is_not_cancelled() -> None:
    cluster = a_cluster()
    move(cluster, (3, 4))
    only_new = replace(partition(cluster), leader=3, leader_epoch=5, in_sync=(3,))
    write(cluster, only_new)
    assert move(cluster, None).error_code == INVALID_REPLICA_ASSIGNMENT
    assert partition(cluster).replicas == (3, 4, 1, 2)


def test_a_new_target_is_counted_from_the_replicas_before_the_move() -> None:
    cluster = a_cluster()
    move(cluster, (3, 2))
    move(cluster, (4, 2))
    state = partition(cluster)
    assert state.replicas == (4, 2, 1)
    assert (state.adding, state.removing) == ((4,), (1,))
    move(cluster, (1, 2))
    assert not partition(cluster).is_reassigning()


def test_the_number_of_replicas_can_be_kept() -> None:
    cluster = a_cluster()
    assert move(cluster, (3,), allow_factor_change=False).error_code == INVALID_REPLICATION_FACTOR
    assert move(cluster, (3, 4), allow_factor_change=False).error_code == NONE
    refused = move(cluster, (3, 4, 1), allow_factor_change=False)
    assert refused.error_message == "The replication factor is changed from 2 to 3"


def test_each_order_sees_the_one_before() -> None:
    cluster = a_cluster()
    results = cluster.run(
        lambda image: decide_alter_reassignments(
            image,
            [
                Reassignment("t", 0, (3, 4)),
                Reassignment("t", 0, None),
                Reassignment("t", 0, None),
                Reassignment("t", 7, (1,)),
                Reassignment("nope", 0, None),
                Reassignment("t", 1, (9,)),
            ],
            SETTINGS,
        )
    )
    assert [result.error_code for result in results] == [
        NONE,
        NONE,
        NO_REASSIGNMENT_IN_PROGRESS,
        UNKNOWN_TOPIC_OR_PARTITION,
        UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_REPLICA_ASSIGNMENT,
    ]
    assert partition(cluster).replicas == (1, 2)
    assert cluster.same_as_store()


def test_an_in_sync_set_that_changed_meanwhile_stops_the_move() -> None:
    cluster = a_cluster()
    decision = decide_alter_reassignments(cluster.image, [Reassignment("t", 0, (3,))], SETTINGS)
    write(cluster, replace(partition(cluster), in_sync=(1,)))
    with pytest.raises(VersionConflict):
        cluster.store.commit(decision.writes)


ORDERS = st.lists(
    st.one_of(
        st.none(),
        st.permutations([1, 2, 3, 4]).flatmap(
            lambda ids: st.integers(1, 4).map(lambda count: ("move", ids[:count]))
        ),
        st.integers(1, 4).map(lambda broker: ("join", [broker])),
    ),
    max_size=12,
)


@given(ORDERS)
def test_invariants(orders: list[tuple[str, list[int]] | None]) -> None:
    cluster = a_cluster()
    for order in orders:
        before = partition(cluster)
        if order is None:
            move(cluster, None)
        elif order[0] == "move":
            move(cluster, order[1])
        elif order[1][0] in set(before.replicas) - set(before.in_sync):
            catch_up(cluster, order[1][0])
        state = partition(cluster)
        assert state.leader in state.in_sync
        assert set(state.in_sync) <= set(state.replicas)
        assert set(state.adding) <= set(state.replicas)
        assert set(state.removing) <= set(state.replicas)
        assert not set(state.adding) & set(state.removing)
        assert set(state.adding) - set(state.in_sync) or not state.adding, "it should be done"
        assert (state.leader_epoch, state.partition_epoch) >= (
            before.leader_epoch,
            before.partition_epoch,
        )
        if state.leader != before.leader:
            assert state.leader_epoch > before.leader_epoch
        assert cluster.same_as_store()
