"""Goal: the controller finds what is to be done in the image, once, in commits of a bounded size,
and nothing where all is well.
Method: images made by hand; each decision is committed and the next one asked for until there is
none.
"""

from __future__ import annotations

import pytest

from ottla.metadata import nodes, partition_writes, paths
from ottla.metadata.changes import apply
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.duties import Duties, is_well
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.nodes import StateContent
from ottla.metadata.partition_writes import PARTITIONS_MAX
from ottla.metadata.preferred_leaders import decide_preferred_leaders
from ottla.metadata.store import Gone, VersionConflict, Write
from ottla.metadata.topic_settings import TopicSettings
from tests.unit.metadata.builders import SETTINGS, Cluster, registration


class Controller:
    """Duties over a cluster, whose liveness is what the test says."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.duties = Duties(cluster.image)
        self.commits = 0

    def work(self) -> None:
        """Until nothing is left; a controller that finds work for ever would hang here."""
        for _ in range(20):
            decision = self.duties.next(SETTINGS)
            if decision is None:
                return
            self.cluster.image = apply(
                self.cluster.image, self.cluster.store.commit(decision.writes)
            )
            self.commits += 1
            self.duties.on_committed(decision.response)
            self.duties.on_image(self.cluster.image)
        raise AssertionError("it never ends")

    def news(self) -> None:
        self.cluster.reload()
        self.duties.on_image(self.cluster.image)


def a_controller(partitions: int = 2) -> Controller:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", *[(1, 2, 3)] * partitions)
    cluster.create_on("u", (2, 3, 1))
    return Controller(cluster)


def end(cluster: Cluster, broker: int) -> None:
    """Its session ends: the node goes, and no change tells."""
    del cluster.store.ensemble.nodes[paths.broker_id(broker)]


def state(controller: Controller, topic: str = "t", index: int = 0) -> PartitionState:
    return controller.cluster.image.topics[topic].partitions[index]


def test_where_all_is_well_nothing_is_done() -> None:
    controller = a_controller()
    controller.duties.on_liveness(frozenset({1, 2, 3}))
    assert controller.duties.next(SETTINGS) is None


def test_nobody_is_dead_before_liveness_is_known() -> None:
    controller = a_controller()
    end(controller.cluster, 1)
    assert controller.duties.next(SETTINGS) is None


def test_a_death_and_its_elections_are_one_commit() -> None:
    controller = a_controller()
    end(controller.cluster, 1)
    controller.duties.on_liveness(frozenset({2, 3}))
    controller.work()
    assert controller.commits == 1
    assert controller.cluster.image.brokers[1].fenced
    assert (state(controller).leader, state(controller).in_sync) == (2, (2, 3))
    assert state(controller, "u").in_sync == (2, 3)
    assert controller.cluster.same_as_store()


def test_who_is_back_stops_the_commit() -> None:
    controller = a_controller()
    controller.duties.on_liveness(frozenset({2, 3}))
    decision = controller.duties.next(SETTINGS)
    assert decision is not None
    assert Gone(paths.broker_id(1)) in decision.writes
    with pytest.raises(VersionConflict):
        controller.cluster.store.commit(decision.writes)


@pytest.mark.parametrize("content", [registration(2, None, False, True), None])
def test_who_stops_or_dies_meanwhile_is_not_elected(content: bytes | None) -> None:
    controller = a_controller()
    end(controller.cluster, 1)
    controller.duties.on_liveness(frozenset({2, 3}))
    decision = controller.duties.next(SETTINGS)
    assert decision is not None
    controller.cluster.store.commit([Write(paths.broker_id(2), content, None)])
    with pytest.raises(VersionConflict):
        controller.cluster.store.commit(decision.writes)


def test_who_comes_back_meanwhile_with_less_is_not_elected() -> None:
    """Its new node has the version of the old one."""
    controller = a_controller()
    end(controller.cluster, 1)
    controller.duties.on_liveness(frozenset({2, 3}))
    decision = controller.duties.next(SETTINGS)
    assert decision is not None
    end(controller.cluster, 2)
    controller.cluster.store.register(2, registration(2, None, True, False, True))
    with pytest.raises(VersionConflict):
        controller.cluster.store.commit(decision.writes)


def test_a_death_that_a_loaded_image_knows_is_told_to_the_others() -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", (1, 2, 3))
    end(cluster, 3)
    cluster.reload()
    controller = Controller(cluster)
    controller.duties.on_liveness(frozenset({1, 2}))
    before = cluster.store.ensemble.last_change
    controller.work()
    (change,) = cluster.store.changes_after(before) or []
    assert paths.broker_id(3) in [update.path for update in change.updates]
    assert controller.duties.next(SETTINGS) is None, "once"


def test_somebody_who_comes_and_goes_again_is_told_again() -> None:
    controller = a_controller()
    end(controller.cluster, 3)
    controller.duties.on_liveness(frozenset({1, 2}))
    controller.work()
    controller.cluster.store.register(3, registration(3))
    controller.news()
    controller.duties.on_liveness(frozenset({1, 2, 3}))
    controller.work()
    end(controller.cluster, 3)
    controller.duties.on_liveness(frozenset({1, 2}))
    commits = controller.commits
    controller.work()
    assert controller.commits == commits + 1


def test_a_commit_holds_two_hundred_partitions() -> None:
    controller = a_controller(450)
    end(controller.cluster, 1)
    controller.duties.on_liveness(frozenset({2, 3}))
    decision = controller.duties.next(SETTINGS)
    assert decision is not None
    assert len(decision.response.moved) == PARTITIONS_MAX
    controller.work()
    assert controller.commits == 3, "451 partitions, u among them"
    assert all(one.leader == 2 for one in controller.cluster.image.topics["t"].partitions.values())


def test_who_has_no_leader_comes_first() -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("a", *[(2, 1, 3)] * 250)
    cluster.create_on("b", *[(1, 2, 3)] * 50)
    controller = Controller(cluster)
    end(cluster, 1)
    controller.duties.on_liveness(frozenset({2, 3}))
    decision = controller.duties.next(SETTINGS)
    assert decision is not None
    assert [moved.topic for moved in decision.response.moved] == ["b"] * 50 + ["a"] * 150
    controller.work()
    assert controller.commits == 2


def test_a_commit_stays_far_below_what_zookeeper_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert partition_writes.BYTES_MAX == 256 * 1024
    monkeypatch.setattr(partition_writes, "BYTES_MAX", 10_000)
    controller = a_controller(150)
    end(controller.cluster, 1)
    controller.duties.on_liveness(frozenset({2, 3}))
    decision = controller.duties.next(SETTINGS)
    assert decision is not None
    written = [one for one in decision.writes if isinstance(one, Write)]
    size = sum(len(one.content or b"") + len(one.path) for one in written)
    assert 5_000 < size < 10_500
    controller.work()
    assert controller.cluster.image.topics["t"].partitions[149].leader == 2


def test_after_a_conflict_only_what_is_left_is_decided() -> None:
    controller = a_controller(3)
    end(controller.cluster, 1)
    controller.duties.on_liveness(frozenset({2, 3}))
    stale = controller.duties.next(SETTINGS)
    assert stale is not None
    # The leader of partition 1 has changed its set meanwhile.
    content = nodes.partition_state(1, StateContent(1, 0, (1, 3), (), ()))
    controller.cluster.store.commit([Write(paths.partition_state("t", 1), content, None)])
    with pytest.raises(VersionConflict):
        controller.cluster.store.commit(stale.writes)
    controller.cluster.image = image_of(controller)
    controller.duties.on_image(controller.cluster.image)
    controller.work()
    assert controller.commits == 1
    assert [state(controller, "t", index).leader for index in range(3)] == [2, 3, 2]


def test_what_was_not_committed_is_found_again() -> None:
    controller = a_controller()
    controller.cluster.store.unregister(1)
    controller.news()
    stale = controller.duties.next(SETTINGS)
    assert stale is not None
    assert {moved.topic for moved in stale.response.moved} == {"t", "u"}
    # Refused because of t; nothing has happened to u meanwhile.
    content = nodes.partition_state(1, StateContent(1, 0, (1, 3), (), ()))
    controller.cluster.store.commit([Write(paths.partition_state("t", 1), content, None)])
    controller.cluster.image = image_of(controller)
    controller.duties.on_image(controller.cluster.image)
    controller.work()
    assert state(controller, "u").in_sync == (2, 3)


def image_of(controller: Controller) -> MetadataImage:
    """As a follower of the journal has it: the end of a session is not in it."""
    change = (controller.cluster.store.changes_after(0) or [])[-1]
    return apply(controller.cluster.image, change)


def test_who_comes_back_leads_what_nobody_leads() -> None:
    controller = a_controller()
    for broker in (1, 2, 3):
        controller.cluster.store.unregister(broker)
    controller.news()
    controller.duties.on_liveness(frozenset())
    controller.work()
    assert (state(controller).leader, state(controller).in_sync) == (-1, (1, 2, 3))
    controller.cluster.store.register(3, registration(3))
    controller.news()
    controller.work()
    assert (state(controller).leader, state(controller).in_sync) == (3, (3,))


def test_who_is_fenced_or_unclean_is_taken_out() -> None:
    controller = a_controller()
    controller.cluster.store.register(1, registration(1, None, True, False, True))
    controller.news()
    controller.work()
    assert (state(controller).leader, state(controller).in_sync) == (2, (2, 3))


@pytest.mark.parametrize(
    ("now", "is_so"),
    [
        (PartitionState(1, 0, (1, 2), (1, 2)), True),
        (PartitionState(1, 0, (1, 2), (1,)), True),
        (PartitionState(-1, 0, (1, 2), (1,)), False),
        (PartitionState(1, 0, (1, 9), (1, 9)), False),
        (PartitionState(1, 0, (1, 2), (1, 2), adding=(2,)), False),
        (PartitionState(1, 0, (1, 2, 3), (1, 2, 3)), False),
        (PartitionState(1, 0, (1, 2, 3), (1, 2), eligible=(3,)), False),
    ],
)
def test_well(now: PartitionState, is_so: bool) -> None:
    assert is_well(now, {1, 2, 3}, frozenset({3})) == is_so


def preferred(cluster: Cluster, percentage: int = 0) -> list[int]:
    decision = decide_preferred_leaders(cluster.image, SETTINGS, percentage=percentage)
    if decision is not None:
        cluster.run(lambda image: decision)
    return [one.leader for one in cluster.image.topics["t"].partitions.values()]


def led_elsewhere(*leaders: int) -> Cluster:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", *[(1, 2, 3)] * len(leaders))
    for index, leader in enumerate(leaders):
        content = nodes.partition_state(1, StateContent(leader, 4, (1, 2, 3), (), ()))
        cluster.store.commit([Write(paths.partition_state("t", index), content, None)])
    cluster.reload()
    return cluster


def test_preferred_leaders_come_back() -> None:
    assert preferred(led_elsewhere(2, 1, 3)) == [1, 1, 1]
    assert decide_preferred_leaders(led_elsewhere(1, 1).image, SETTINGS, percentage=0) is None


def test_preferred_leaders_stay_away_below_the_percentage() -> None:
    assert preferred(led_elsewhere(2, 1, 1, 1), percentage=25) == [2, 1, 1, 1]
    assert preferred(led_elsewhere(2, 1, 1, 1), percentage=24) == [1, 1, 1, 1]


def test_a_preferred_leader_that_is_not_there_is_not_missed() -> None:
    cluster = led_elsewhere(2)
    cluster.lose(1)
    assert decide_preferred_leaders(cluster.image, SETTINGS, percentage=0) is None


def test_preferred_leaders_in_commits_of_two_hundred() -> None:
    cluster = led_elsewhere(*[2] * 250)
    assert preferred(cluster).count(1) == PARTITIONS_MAX
    assert preferred(cluster).count(1) == 250


def test_an_election_that_could_not_be_written_is_decided_again() -> None:
    """The commit was lost, and no newer image has come."""
    controller = a_controller()
    end(controller.cluster, 1)
    controller.duties.on_liveness(frozenset({2, 3}))
    controller.work()
    for broker in (2, 3):
        end(controller.cluster, broker)
    controller.duties.on_liveness(frozenset())
    controller.work()
    assert state(controller).leader == -1
    controller.cluster.store.register(2, registration(2))
    controller.news()
    decided = [controller.duties.next(SETTINGS) for _ in range(3)]
    assert all(one is not None and one.response.moved for one in decided)
    controller.work()
    assert state(controller).leader == 2


def test_who_is_eligible_by_an_older_setting_is_so_no_longer() -> None:
    """Who lowered min.insync.replicas did not know yet that the set was below it."""
    controller = a_controller()
    controller.duties.on_liveness(frozenset({1, 2, 3}))
    for in_sync, eligible in (((1,), (2,)), ((1, 2), (3,))):
        before = state(controller)
        content = StateContent(1, before.leader_epoch, in_sync, eligible, (), -1)
        path = paths.partition_state("t", 0)
        controller.cluster.store.commit(
            [Write(path, nodes.partition_state(0, content), before.partition_epoch)]
        )
        controller.news()
        controller.work()
        after = state(controller)
        is_enough = len(in_sync) >= SETTINGS.min_in_sync(controller.cluster.image.topics["t"])
        assert after.eligible == (() if is_enough else eligible)
        assert (after.in_sync, after.leader_epoch) == (in_sync, before.leader_epoch)


@pytest.mark.parametrize("path", [paths.topic_configs("t"), paths.broker_configs("")])
def test_nobody_is_elected_uncleanly_once_that_has_been_forbidden(path: str) -> None:
    """The controller may not have heard of it yet; who forbade it has been answered."""
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create_on("t", (1, 2, 3))
    setting = "unclean.leader.election.enable"
    content = nodes.partition_state(1, StateContent(-1, 4, (1,), (), (1,)))
    cluster.store.commit(
        [
            Write(paths.partition_state("t", 0), content, None),
            Write(path, nodes.configs({setting: "true"}), None),
        ]
    )
    end(cluster, 1)
    cluster.reload()
    duties = Duties(cluster.image)
    duties.on_liveness(frozenset({2, 3}))
    allowed = TopicSettings(BrokerConfig({"min.insync.replicas": "2", setting: "true"}))
    decision = duties.next(allowed)
    assert decision is not None
    assert [moved.after.leader for moved in decision.response.moved] == [2]
    cluster.store.commit([Write(path, nodes.configs({setting: "false"}), None)])
    with pytest.raises(VersionConflict):
        cluster.store.commit(decision.writes)
