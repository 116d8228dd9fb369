"""Goal: a broker that has lost replicas leaves their in-sync sets, every broker knows that it has
lost them, and nothing that others know is lost by it.
Method: decisions on a cluster in memory.
"""

from __future__ import annotations

import uuid

import pytest

from ottla.metadata import offline_replicas
from ottla.metadata.changes import apply
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.duties import Duties
from ottla.metadata.elections import UNCLEAN, decide_elect_leaders
from ottla.metadata.image import PartitionState
from ottla.metadata.in_sync import decide_in_sync_changes
from ottla.metadata.offline_replicas import decide_offline_replicas
from ottla.metadata.registrations import decide_serving, decide_stopping
from ottla.metadata.store import VersionConflict
from ottla.metadata.topic_settings import TopicSettings
from ottla.protocol.error_codes import ELIGIBLE_LEADERS_NOT_AVAILABLE, NONE
from ottla.replication.effects import InSyncProposal
from tests.unit.metadata.builders import SETTINGS, Cluster, registration

UNCLEAN_SETTINGS = TopicSettings(
    BrokerConfig({"min.insync.replicas": "2", "unclean.leader.election.enable": "true"})
)


def topic_id(cluster: Cluster, name: str = "t") -> uuid.UUID:
    return cluster.image.topics[name].topic_id


def offline(
    cluster: Cluster, broker_id: int, *lost: int, settings: TopicSettings = SETTINGS
) -> bool:
    """Whether there was anything to say."""
    told = {topic_id(cluster): frozenset(lost)} if lost else {}
    said = cluster.run(lambda image: decide_offline_replicas(image, broker_id, told, settings))
    assert cluster.same_as_store()
    return said


def state(cluster: Cluster, topic: str = "t", index: int = 0) -> PartitionState:
    found = cluster.image.partition(topic, index)
    assert found is not None
    return found


def lost_by(cluster: Cluster, index: int = 0) -> set[int]:
    return set(cluster.image.lost_by(cluster.image.topics["t"], index))


def a_cluster() -> Cluster:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", (1, 2, 3), (2, 3, 1))
    return cluster


def do_duties(cluster: Cluster, settings: TopicSettings = SETTINGS) -> None:
    duties = Duties(cluster.image)
    duties.on_liveness(frozenset({1, 2, 3}))
    while (decision := duties.next(settings)) is not None:
        cluster.image = apply(cluster.image, cluster.store.commit(decision.writes))
        duties.on_image(cluster.image)


def test_a_lost_leader_is_replaced() -> None:
    cluster = a_cluster()
    assert offline(cluster, 1, 0)
    after = state(cluster)
    assert (after.leader, after.leader_epoch, after.in_sync, after.eligible) == (2, 1, (2, 3), ())
    assert state(cluster, index=1).in_sync == (2, 3, 1)


def test_a_lost_follower_leaves_the_set() -> None:
    cluster = a_cluster()
    assert offline(cluster, 1, 1)
    after = state(cluster, index=1)
    assert (after.leader, after.leader_epoch, after.in_sync) == (2, 0, (2, 3))


def test_it_is_not_even_eligible() -> None:
    cluster = a_cluster()
    for broker in (3, 2):
        offline(cluster, broker, 0)
    after = state(cluster)
    assert (after.in_sync, after.eligible) == ((1,), ())


def test_the_only_one_that_knows_leads_no_more_and_stays_in_the_set() -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.create_on("t", (1,))
    assert offline(cluster, 1, 0)
    after = state(cluster)
    assert (after.leader, after.leader_epoch, after.in_sync) == (-1, 1, (1,))
    assert after.last_known == (1,)


def test_the_only_one_that_knows_leads_again_in_a_life_that_has_its_disk() -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", (1,))
    offline(cluster, 1, 0)
    do_duties(cluster)
    assert state(cluster).leader == -1, "nobody could"
    cluster.lose(1)
    cluster.store.register(1, registration(1))
    cluster.reload()
    do_duties(cluster)
    assert (state(cluster).leader, lost_by(cluster)) == (1, set())


def test_every_image_knows_it_by_one_write_and_for_this_life_only() -> None:
    cluster = a_cluster()
    offline(cluster, 1, 0, 1)
    assert (lost_by(cluster, 0), lost_by(cluster, 1)) == ({1}, {1})
    cluster.lose(1)
    assert lost_by(cluster) == set()


def test_it_is_known_of_replicas_that_were_not_in_sync() -> None:
    cluster = a_cluster()
    offline(cluster, 1, 0)
    assert offline(cluster, 1, 0, 1)
    assert not offline(cluster, 1, 0, 1)
    offline(cluster, 1, 1)
    assert (lost_by(cluster, 0), lost_by(cluster, 1)) == (set(), {1})


def test_what_a_broker_says_of_itself_later_does_not_take_it_back() -> None:
    cluster = Cluster(brokers=(2, 3))
    cluster.store.register(1, registration(1, fenced=True, unclean=True))
    cluster.reload()
    cluster.create_on("t", (2, 3, 1))
    offline(cluster, 1, 0)
    broker = cluster.image.brokers[1]
    assert (broker.fenced, broker.unclean) == (True, True)
    cluster.run(lambda image: decide_serving(image, 1))
    assert (cluster.image.brokers[1].fenced, lost_by(cluster)) == (False, {1})
    cluster.run(lambda image: decide_stopping(image, 1))
    assert (cluster.image.brokers[1].shutting_down, lost_by(cluster)) == (True, {1})
    offline(cluster, 1)
    assert (cluster.image.brokers[1].shutting_down, lost_by(cluster)) == (True, set())


def test_what_is_of_a_topic_that_is_gone_moves_nobody_out() -> None:
    cluster = a_cluster()
    gone = {uuid.UUID(int=7): frozenset({0})}
    assert cluster.run(lambda image: decide_offline_replicas(image, 1, gone, SETTINGS))
    assert not cluster.run(lambda image: decide_offline_replicas(image, 1, gone, SETTINGS))
    assert (lost_by(cluster), state(cluster).leader) == (set(), 1)


def test_what_is_said_already_or_not_there_is_nothing_to_do() -> None:
    cluster = a_cluster()
    offline(cluster, 1, 0, 9)
    assert not offline(cluster, 1, 0, 9)


def test_an_unclean_election_does_not_take_who_has_no_disk() -> None:
    """Of 1, 2, 3 only 3 was in sync, and its disk fails; that of 1 had failed before."""
    cluster = a_cluster()
    offline(cluster, 1, 0)
    offline(cluster, 2, 0)
    offline(cluster, 2)  # it was replaced: empty, and not yet in sync again
    offline(cluster, 3, 0)
    assert (state(cluster).leader, state(cluster).in_sync) == (-1, (3,))
    do_duties(cluster)
    assert state(cluster).leader == -1
    do_duties(cluster, UNCLEAN_SETTINGS)
    assert (state(cluster).leader, state(cluster).in_sync) == (2, (2,))


def test_an_election_by_hand_takes_nobody_without_a_disk() -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", (1,))
    offline(cluster, 1, 0)
    (result,) = cluster.run(
        lambda image: decide_elect_leaders(image, [("t", 0)], UNCLEAN, SETTINGS)
    )
    assert result.error_code == ELIGIBLE_LEADERS_NOT_AVAILABLE
    offline(cluster, 1)
    (result,) = cluster.run(
        lambda image: decide_elect_leaders(image, [("t", 0)], UNCLEAN, SETTINGS)
    )
    assert (result.error_code, state(cluster).leader) == (NONE, 1)


def test_with_unclean_elections_the_loss_of_the_last_disk_elects_another_at_once() -> None:
    cluster = a_cluster()
    offline(cluster, 3, 0)
    offline(cluster, 2, 0)
    offline(cluster, 2)
    offline(cluster, 1, 0, settings=UNCLEAN_SETTINGS)
    assert (state(cluster).leader, state(cluster).in_sync) == (2, (2,))


def proposal_of(cluster: Cluster, joining: int) -> InSyncProposal:
    of = state(cluster)
    return InSyncProposal(
        "t",
        0,
        of.leader_epoch,
        of.partition_epoch,
        (*of.in_sync, joining),
        ((joining, cluster.image.brokers[joining].epoch),),
    )


def test_who_loses_its_disk_while_it_joins_does_not_get_into_the_set() -> None:
    cluster = a_cluster()
    offline(cluster, 1, 0)
    offline(cluster, 1)
    proposed = proposal_of(cluster, 1)
    late = decide_in_sync_changes(cluster.image, 2, [proposed], SETTINGS)
    assert late.refused == [False]
    offline(cluster, 1, 0)
    with pytest.raises(VersionConflict):
        cluster.store.commit(late.operations)
    again = decide_in_sync_changes(cluster.image, 2, [proposed], SETTINGS)
    assert again.refused == [True]


def test_the_controller_takes_out_who_got_in_all_the_same() -> None:
    """Its own word may be too large for one commit, and it may die in the middle."""
    cluster = a_cluster()
    told = {topic_id(cluster): frozenset({0})}
    write = offline_replicas.registration_with(cluster.image, 1, told)
    cluster.image = apply(cluster.image, cluster.store.commit([write]))
    assert state(cluster).leader == 1
    do_duties(cluster)
    assert (state(cluster).leader, state(cluster).in_sync) == (2, (2, 3))
    assert state(cluster, index=1).in_sync == (2, 3, 1)


def test_more_than_a_node_holds_is_not_told_and_goes_out_of_the_sets_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offline_replicas, "TOLD_MAX", 1)
    cluster = a_cluster()
    while offline(cluster, 1, 0, 1):
        pass
    assert (lost_by(cluster, 0), lost_by(cluster, 1)) == ({1}, set())
    assert (state(cluster).in_sync, state(cluster, index=1).in_sync) == ((2, 3), (2, 3))
