"""Goal: a leader comes out of those who have everything, unless losing something was asked for.
Method: each kind of candidate alone; elections by an administrator over a small cluster.
"""

from __future__ import annotations

import pytest

from ottla.metadata import nodes, paths
from ottla.metadata.changes import apply
from ottla.metadata.controller import decide_elect_leaders
from ottla.metadata.elections import (
    PREFERRED,
    UNCLEAN,
    elect_leader,
    partitions_to_elect,
)
from ottla.metadata.image import PartitionState
from ottla.metadata.nodes import StateContent
from ottla.metadata.store import Write
from ottla.protocol.error_codes import (
    ELECTION_NOT_NEEDED,
    ELIGIBLE_LEADERS_NOT_AVAILABLE,
    INVALID_REQUEST,
    NONE,
    PREFERRED_LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.unit.metadata.builders import Cluster


def elected(state: PartitionState, *live: int, unclean: bool = False) -> StateContent | None:
    return elect_leader(state, lambda broker: broker in live, unclean=unclean)


def test_the_first_live_replica_that_is_in_sync() -> None:
    state = PartitionState(1, 5, (1, 2, 3), (1, 3, 2))
    assert elected(state, 2, 3) == StateContent(2, 6, (1, 3, 2), (), ())
    assert elected(state, 3) == StateContent(3, 6, (1, 3, 2), (), ())


def test_who_is_being_removed_leads_only_if_nobody_else_can() -> None:
    state = PartitionState(3, 5, (2, 1), (1, 2), removing=(1,))
    assert elected(state, 1, 2) == StateContent(2, 6, (1, 2), (), ())
    assert elected(state, 1) == StateContent(1, 6, (1, 2), (), ())


def test_who_is_not_in_sync_does_not_lead() -> None:
    assert elected(PartitionState(1, 5, (1, 2), (1,)), 2) is None


def test_the_eligible_come_next() -> None:
    state = PartitionState(-1, 5, (1, 2, 3), (1,), eligible=(3, 2), last_known=(1,))
    assert elected(state, 2, 3) == StateContent(2, 6, (2,), (3,), ())


def test_an_unclean_election_takes_the_last_leader_then_anybody() -> None:
    state = PartitionState(-1, 5, (1, 2, 3), (1,), eligible=(1,), last_known=(9, 3))
    assert elected(state, 2, 3) is None
    assert elected(state, 2, 3, unclean=True) == StateContent(3, 6, (3,), (), ())
    assert elected(state, 2, unclean=True) == StateContent(2, 6, (2,), (), ())
    assert elected(state, 9, unclean=True) is None


def test_an_unclean_election_is_clean_where_it_can_be() -> None:
    state = PartitionState(-1, 5, (1, 2), (2,))
    assert elected(state, 1, 2, unclean=True) == StateContent(2, 6, (2,), (), ())


def a_cluster(leader: int, in_sync: tuple[int, ...]) -> Cluster:
    """Topic t with replicas 1, 2 and 3, of which 3 is dead."""
    cluster = Cluster(brokers=(1, 2), dead=(3,))
    cluster.create_on("t", (1, 2, 3))
    content = nodes.partition_state(1, StateContent(leader, 4, in_sync, (), ()))
    write = Write(paths.partition_state("t", 0), content, None)
    cluster.image = apply(cluster.image, cluster.store.commit([write]))
    return cluster


def test_the_preferred_leader_comes_back() -> None:
    cluster = a_cluster(2, (2, 1))
    (result,) = cluster.run(lambda image: decide_elect_leaders(image, [("t", 0)], PREFERRED))
    assert result.error_code == NONE
    state = cluster.image.topics["t"].partitions[0]
    assert (state.leader, state.leader_epoch, state.in_sync) == (1, 5, (2, 1))
    assert cluster.same_as_store()


@pytest.mark.parametrize(
    ("leader", "in_sync", "kind", "code"),
    [
        (1, (1, 2), PREFERRED, ELECTION_NOT_NEEDED),
        (2, (2,), PREFERRED, PREFERRED_LEADER_NOT_AVAILABLE),
        (2, (2,), UNCLEAN, ELECTION_NOT_NEEDED),
        (-1, (3,), UNCLEAN, NONE),
        (1, (1,), 7, INVALID_REQUEST),
    ],
)
def test_answers(leader: int, in_sync: tuple[int, ...], kind: int, code: int) -> None:
    cluster = a_cluster(leader, in_sync)
    before = cluster.image
    (result,) = cluster.run(lambda image: decide_elect_leaders(image, [("t", 0)], kind))
    assert result.error_code == code
    assert (cluster.image is before) == (code != NONE)


def test_a_dead_preferred_leader_in_sync_is_not_elected() -> None:
    cluster = a_cluster(2, (2, 1))
    cluster.lose(1)
    (result,) = cluster.run(lambda image: decide_elect_leaders(image, [("t", 0)], PREFERRED))
    assert result.error_code == PREFERRED_LEADER_NOT_AVAILABLE


def test_nobody_alive_to_lead() -> None:
    cluster = a_cluster(-1, (3,))
    cluster.lose(1)
    cluster.lose(2)
    (result,) = cluster.run(lambda image: decide_elect_leaders(image, [("t", 0)], UNCLEAN))
    assert result.error_code == ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_a_partition_named_twice_is_elected_once_and_told_twice() -> None:
    cluster = a_cluster(2, (2, 1))
    results = cluster.run(
        lambda image: decide_elect_leaders(
            image, [("t", 0), ("t", 9), ("nope", 0), ("t", 0)], PREFERRED
        )
    )
    assert [result.error_code for result in results] == [
        NONE,
        UNKNOWN_TOPIC_OR_PARTITION,
        UNKNOWN_TOPIC_OR_PARTITION,
        NONE,
    ]
    assert cluster.image.topics["t"].partitions[0].leader_epoch == 5


def test_of_everything_only_what_needs_it() -> None:
    cluster = a_cluster(2, (2, 1))
    cluster.create_on("u", (1, 2), (2, 1))
    assert partitions_to_elect(cluster.image, PREFERRED) == [("t", 0)]
    assert partitions_to_elect(cluster.image, UNCLEAN) == []
    assert partitions_to_elect(a_cluster(-1, (3,)).image, UNCLEAN) == [("t", 0)]
