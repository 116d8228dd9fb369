"""Goal: an administrator gets the election that was asked for, or is told why not.
Method: elections over a small cluster, in each state that a partition may be in.
"""

from __future__ import annotations

import pytest

from ottla.metadata import nodes, paths
from ottla.metadata.changes import apply
from ottla.metadata.controller import PartitionResult, decide_elect_leaders
from ottla.metadata.elections import PREFERRED, UNCLEAN, partitions_to_elect
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
from tests.unit.metadata.builders import SETTINGS, Cluster


def a_cluster(leader: int, in_sync: tuple[int, ...]) -> Cluster:
    """Topic t with replicas 1, 2 and 3, of which 3 is dead."""
    cluster = Cluster(brokers=(1, 2), dead=(3,))
    cluster.create_on("t", (1, 2, 3))
    content = nodes.partition_state(1, StateContent(leader, 4, in_sync, (), ()))
    write = Write(paths.partition_state("t", 0), content, None)
    cluster.image = apply(cluster.image, cluster.store.commit([write]))
    return cluster


def elect(cluster: Cluster, kind: int) -> list[PartitionResult]:
    return cluster.run(lambda image: decide_elect_leaders(image, [("t", 0)], kind, SETTINGS))


def test_the_preferred_leader_comes_back() -> None:
    cluster = a_cluster(2, (2, 1))
    (result,) = cluster.run(
        lambda image: decide_elect_leaders(image, [("t", 0)], PREFERRED, SETTINGS)
    )
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
    (result,) = elect(cluster, kind)
    assert result.error_code == code
    assert (cluster.image is before) == (code != NONE)


def test_a_dead_preferred_leader_in_sync_is_not_elected() -> None:
    cluster = a_cluster(2, (2, 1))
    cluster.lose(1)
    (result,) = cluster.run(
        lambda image: decide_elect_leaders(image, [("t", 0)], PREFERRED, SETTINGS)
    )
    assert result.error_code == PREFERRED_LEADER_NOT_AVAILABLE


def test_nobody_alive_to_lead() -> None:
    cluster = a_cluster(-1, (3,))
    cluster.lose(1)
    cluster.lose(2)
    (result,) = cluster.run(
        lambda image: decide_elect_leaders(image, [("t", 0)], UNCLEAN, SETTINGS)
    )
    assert result.error_code == ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert result.error_message == "Eligible topic partition leaders are not available."


def test_a_partition_named_twice_is_elected_once_and_told_twice() -> None:
    cluster = a_cluster(2, (2, 1))
    results = cluster.run(
        lambda image: decide_elect_leaders(
            image, [("t", 0), ("t", 9), ("nope", 0), ("t", 0)], PREFERRED, SETTINGS
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
