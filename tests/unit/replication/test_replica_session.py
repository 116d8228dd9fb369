"""Goal: a leader tells each follower what is new and no more, and learns only what can be true.
Method: requests by hand at the sessions of a leader of one or more partitions.
"""

from __future__ import annotations

import uuid

import pytest

from ottla.base.errors import StorageError
from ottla.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
)
from ottla.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from ottla.protocol.fetch_request import NO_HIGH_WATERMARK
from ottla.replication.effects import InSyncProposal
from ottla.replication.partition import Partition
from ottla.replication.replica_session import ReplicaSession, ReplicaSessions, Surroundings
from ottla.replication.throttle import Throttle
from tests.unit.replication.replicas import TOPIC_ID, Replica, assigned

EPOCH = 5
BROKER_EPOCH = 70


class Setting:
    """Broker 1 leads partitions of `topic` in epoch 5; all three replicas are in sync."""

    def __init__(self, count: int = 1) -> None:
        self.leaders = [self._leader(index) for index in range(count)]
        self.proposals: list[InSyncProposal] = []
        self.failures: list[StorageError] = []
        self.doubted: list[tuple[Partition, int, int]] = []
        self.suspected: list[tuple[Partition, int]] = []
        self.throttle = Throttle()
        self.ids = 0
        self.sessions = ReplicaSessions(
            Surroundings(
                broker_id=1,
                find=self._find,
                may_be_member=lambda broker, epoch: True,
                propose=lambda partition, proposal: self.proposals.append(proposal),
                storage_failed=self.failures.append,
                throttle=self.throttle,
                doubt=lambda *claim: self.doubted.append(claim),
                suspect=lambda *place: self.suspected.append(place),
            ),
            self._new_id,
        )
        self.woken = 0

    def _leader(self, index: int) -> Replica:
        replica = Replica(1)
        replica.partition = Partition("topic", index, TOPIC_ID, "/data")
        replica.partition.log = replica.log
        return replica.lead(epoch=EPOCH)

    def _new_id(self) -> int:
        self.ids += 1
        return self.ids

    def _find(self, topic_id: uuid.UUID, index: int) -> Partition | int:
        if topic_id != TOPIC_ID or index >= len(self.leaders):
            return UNKNOWN_TOPIC_ID
        return self.leaders[index].partition

    def request(
        self,
        asked: dict[int, tuple[int, int]],
        session: ReplicaSession | None = None,
        *,
        replica: int = 2,
        forgotten: tuple[int, ...] = (),
        leader_epoch: int = EPOCH,
        log_start: int = 0,
        high_watermark: int = NO_HIGH_WATERMARK,
    ) -> FetchRequest:
        """`asked`: offset and last fetched epoch by partition."""
        partitions = [
            FetchPartition(
                index,
                fetch_offset=offset,
                partition_max_bytes=1 << 20,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                high_watermark=high_watermark,
            )
            for index, (offset, last_epoch) in asked.items()
        ]
        return FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            replica_id=replica,
            replica_epoch=BROKER_EPOCH,
            session_id=0 if session is None else session.session_id,
            session_epoch=0 if session is None else session.epoch,
            topics=[(None, TOPIC_ID, partitions)] if partitions else [],
            forgotten=[(None, TOPIC_ID, list(forgotten))] if forgotten else [],
        )

    def begin(self, asked: dict[int, tuple[int, int]], replica: int = 2) -> ReplicaSession:
        session = self.sessions.resolve(self.request(asked, replica=replica), 0)
        assert isinstance(session, ReplicaSession)
        session.take(self.request(asked, replica=replica), 0)
        return session

    def next(
        self,
        session: ReplicaSession,
        asked: dict[int, tuple[int, int]],
        *,
        forgotten: tuple[int, ...] = (),
        now_ms: int = 0,
        high_watermark: int = NO_HIGH_WATERMARK,
    ) -> None:
        request = self.request(
            asked,
            session,
            replica=session.replica_id,
            forgotten=forgotten,
            high_watermark=high_watermark,
        )
        assert self.sessions.resolve(request, now_ms) is session
        session.take(request, now_ms)

    def tell(self, session: ReplicaSession, bytes_max: int = 1 << 20) -> list[FetchedPartition]:
        told, self.is_urgent = session.collect(bytes_max)
        assert {topic_id for topic_id, _ in told} <= {TOPIC_ID}
        return [fetched for _, fetched in told]

    def park(self, session: ReplicaSession) -> None:
        def wake() -> None:
            self.woken += 1

        session.wake = wake
        session.is_parked = True


@pytest.fixture
def setting() -> Setting:
    return Setting()


def sizes(told: list[FetchedPartition]) -> dict[int, int]:
    return {one.index: 0 if one.records is None else one.records.size for one in told}


def test_records_are_told(setting: Setting) -> None:
    leader = setting.leaders[0]
    leader.produce(2)
    session = setting.begin({0: (0, -1)})
    [told] = setting.tell(session)
    assert setting.is_urgent
    assert told.records.size == len(leader.content())
    assert (told.high_watermark, told.log_start_offset, told.error_code) == (0, 0, 0)


def test_what_was_told_is_not_told_again(setting: Setting) -> None:
    setting.leaders[0].produce(2)
    session = setting.begin({0: (0, -1)})
    setting.tell(session)
    setting.next(session, {0: (2, EPOCH)})
    assert setting.tell(session) == []
    assert not setting.is_urgent


def test_what_was_not_taken_is_told_again(setting: Setting) -> None:
    setting.leaders[0].produce(2)
    session = setting.begin({0: (0, -1)})
    first = sizes(setting.tell(session))
    setting.next(session, {})
    assert sizes(setting.tell(session)) == first


def test_a_fetch_commits(setting: Setting) -> None:
    leader = setting.leaders[0]
    leader.produce(2)
    for replica in (2, 3):
        setting.begin({0: (2, EPOCH)}, replica)
    assert leader.partition.high_watermark == 2


def test_the_watermark_is_told_with_the_next_answer_but_wakes_nobody(setting: Setting) -> None:
    leader = setting.leaders[0]
    leader.produce()
    session = setting.begin({0: (1, EPOCH)})
    setting.tell(session)
    setting.park(session)
    setting.begin({0: (1, EPOCH)}, replica=3)
    assert setting.woken == 0
    [told] = setting.tell(session)
    assert told.high_watermark == 1
    assert not setting.is_urgent


def test_it_wakes_followers_that_others_read_from(setting: Setting) -> None:
    setting.sessions.set_eager(True)
    setting.leaders[0].produce()
    session = setting.begin({0: (1, EPOCH)})
    setting.tell(session)
    setting.park(session)
    setting.begin({0: (1, EPOCH)}, replica=3)
    assert setting.woken == 1


def test_who_moves_the_watermark_by_its_own_request_is_told_at_once(setting: Setting) -> None:
    setting.sessions.set_eager(True)
    setting.leaders[0].assume(assigned(1, EPOCH, 1, in_sync=(1, 2)))
    setting.leaders[0].produce()
    session = setting.begin({0: (0, -1)})
    setting.tell(session)
    setting.next(session, {0: (1, EPOCH)})
    assert [one.high_watermark for one in setting.tell(session)] == [1]
    assert setting.is_urgent
    setting.next(session, {})
    assert setting.tell(session) == []
    assert not setting.is_urgent


def test_who_comes_in_again_is_told_what_it_says_it_does_not_know(setting: Setting) -> None:
    """It had let go of the partition (another epoch, a pause) when the answer came that told of
    this watermark, and did not take it; if nothing is appended, no other one would ever tell it."""
    leader = setting.leaders[0]
    leader.produce(2)
    session = setting.begin({0: (2, EPOCH)})
    leader.fetched_by(3, 2)
    assert [one.high_watermark for one in setting.tell(session)] == [2]
    setting.next(session, {0: (2, EPOCH)}, high_watermark=1)
    assert [one.high_watermark for one in setting.tell(session)] == [2]
    setting.next(session, {0: (2, EPOCH)}, high_watermark=2)
    assert setting.tell(session) == []


def test_what_was_not_worth_an_answer_is_told_with_the_next(setting: Setting) -> None:
    setting.leaders[0].produce()
    session = setting.begin({0: (1, EPOCH)})
    told, is_urgent = session.collect(1 << 20)
    assert not is_urgent
    session.put_back(told)
    assert len(setting.tell(session)) == 1


def test_an_append_wakes_once(setting: Setting) -> None:
    session = setting.begin({0: (0, -1)})
    setting.tell(session)
    setting.park(session)
    setting.leaders[0].produce(3)
    assert setting.woken == 1
    assert len(sizes(setting.tell(session))) == 1


def test_only_partitions_with_news_are_looked_at() -> None:
    setting = Setting(5)
    session = setting.begin(dict.fromkeys(range(5), (0, -1)))
    assert len(setting.tell(session)) == 5  # the first answer tells everything
    setting.leaders[3].produce()
    assert list(session.news) == [session._reads[TOPIC_ID, 3]]
    assert list(sizes(setting.tell(session))) == [3]


def test_a_full_answer_leaves_the_rest_for_the_next() -> None:
    setting = Setting(3)
    for leader in setting.leaders:
        leader.produce(2)
    session = setting.begin(dict.fromkeys(range(3), (0, -1)))
    size = len(setting.leaders[0].content())
    assert {index for index, got in sizes(setting.tell(session, size)).items() if got} == {0}
    setting.next(session, {0: (2, EPOCH)})
    assert {index for index, got in sizes(setting.tell(session, size)).items() if got} == {1}
    setting.next(session, {1: (2, EPOCH)})
    assert {index for index, got in sizes(setting.tell(session, size)).items() if got} == {2}


def test_a_forgotten_partition_is_told_no_more(setting: Setting) -> None:
    session = setting.begin({0: (0, -1)})
    setting.tell(session)
    setting.next(session, {}, forgotten=(0,))
    setting.leaders[0].produce()
    assert setting.tell(session) == []
    assert len(session) == 0


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [
        (3, 4, (3, 2)),  # its epoch 4 is not ours
        (4, 3, (3, 2)),  # its epoch 3 is longer than ours
        (9, -1, (5, 3)),  # more than there ever was
        (3, 9, (5, 3)),  # of an epoch that is still to come
    ],
)
def test_where_the_logs_part(offset: int, last_epoch: int, expected: tuple[int, int]) -> None:
    setting = Setting()
    leader = Replica(1)
    leader.world.epoch = 3
    leader.world.fill(2)
    leader.partition.high_watermark = 2
    setting.leaders = [leader.lead(epoch=EPOCH)]
    leader.produce()
    setting.begin({0: (3, EPOCH)}, replica=3)
    session = setting.begin({0: (offset, last_epoch)})
    [told] = setting.tell(session)
    assert setting.is_urgent
    assert told.diverging_epoch == expected
    assert told.records is None
    assert leader.partition.high_watermark == 2  # nothing was learned from it


def test_below_the_start_of_the_log(setting: Setting) -> None:
    leader = setting.leaders[0]
    leader.produce(3)
    for replica in (2, 3):
        setting.begin({0: (3, EPOCH)}, replica)
    leader.partition.delete_records_before(2)
    session = setting.begin({0: (1, EPOCH)})
    [told] = setting.tell(session)
    assert (told.error_code, told.log_start_offset) == (OFFSET_OUT_OF_RANGE, 2)


@pytest.mark.parametrize(("epoch", "code"), [(4, 74), (6, 75)])
def test_in_another_epoch(setting: Setting, epoch: int, code: int) -> None:
    request = setting.request({0: (0, -1)}, leader_epoch=epoch)
    session = setting.sessions.resolve(request, 0)
    assert isinstance(session, ReplicaSession)
    session.take(request, 0)
    assert [one.error_code for one in setting.tell(session)] == [code]
    partition = setting.leaders[0].partition
    assert partition.is_leader == (epoch < EPOCH)
    assert setting.doubted == ([] if epoch < EPOCH else [(partition, 2, epoch)])


def test_who_is_no_replica_is_told_to_ask_again(setting: Setting) -> None:
    session = setting.begin({0: (0, -1)}, replica=9)
    assert [one.error_code for one in setting.tell(session)] == [UNKNOWN_LEADER_EPOCH]


def test_an_unknown_topic(setting: Setting) -> None:
    session = setting.begin({7: (0, -1)})
    assert [one.error_code for one in setting.tell(session)] == [UNKNOWN_TOPIC_ID]


def test_a_leader_that_is_one_no_more(setting: Setting) -> None:
    session = setting.begin({0: (0, -1)})
    setting.tell(session)
    setting.park(session)
    setting.leaders[0].assume(assigned(2, 6))
    assert setting.woken == 1
    [told] = setting.tell(session)
    assert told.error_code in (74, NOT_LEADER_OR_FOLLOWER)


def test_a_partition_that_is_offline(setting: Setting) -> None:
    session = setting.begin({0: (0, -1)})
    setting.tell(session)
    setting.leaders[0].partition.go_offline()
    assert [one.error_code for one in setting.tell(session)] == [KAFKA_STORAGE_ERROR]


def test_sessions_have_ids_and_epochs(setting: Setting) -> None:
    session = setting.begin({0: (0, -1)})
    wrong = setting.request({}, session)
    wrong.session_id += 1
    assert setting.sessions.resolve(wrong, 0) == FETCH_SESSION_ID_NOT_FOUND
    late = setting.request({}, session)
    late.session_epoch += 1
    assert setting.sessions.resolve(late, 0) == INVALID_FETCH_SESSION_EPOCH
    other = setting.request({}, session)
    other.replica_epoch += 1
    assert setting.sessions.resolve(other, 0) == INVALID_FETCH_SESSION_EPOCH
    unknown = setting.request({}, session, replica=3)
    assert setting.sessions.resolve(unknown, 0) == FETCH_SESSION_ID_NOT_FOUND


def test_a_new_session_ends_the_old_one(setting: Setting) -> None:
    first = setting.begin({0: (0, -1)})
    setting.tell(first)
    setting.park(first)
    setting.begin({0: (0, -1)})
    assert setting.woken == 1
    assert len(setting.sessions) == 1
    setting.leaders[0].produce()
    assert not first.news


def test_a_follower_that_could_join_is_proposed(setting: Setting) -> None:
    setting.leaders[0].assume(assigned(1, EPOCH, 1, in_sync=(1, 3)))
    setting.begin({0: (0, -1)})
    [proposal] = setting.proposals
    assert proposal.in_sync == (1, 3, 2)
    assert proposal.joining == ((2, BROKER_EPOCH),)


def test_a_throttled_follower_gets_its_bytes_later(setting: Setting) -> None:
    leader = setting.leaders[0]
    leader.assume(assigned(1, EPOCH, 1, in_sync=(1, 3)))
    setting.throttle.set_rate(100, now_ms=0)
    setting.throttle.set_replicas({"topic": ["0:1"]})
    leader.produce(2)
    session = setting.begin({0: (0, -1)})
    assert sizes(setting.tell(session))[0] > 100  # one answer may overdraw
    leader.produce()
    setting.next(session, {0: (2, EPOCH)})
    assert sizes(setting.tell(session)) == {}
    assert not setting.is_urgent
    setting.next(session, {}, now_ms=10_000)
    assert sizes(setting.tell(session))[0] > 0


def test_the_throttled_replicas_of_a_leader_are_those_that_send(setting: Setting) -> None:
    leader = setting.leaders[0]
    leader.assume(assigned(1, EPOCH, 1, in_sync=(1, 3)))
    setting.throttle.set_rate(1, now_ms=0)
    setting.throttle.set_replicas({"topic": ["0:2", "1:1"]})
    session = setting.begin({0: (0, -1)})
    for offset in range(3):
        leader.produce()
        setting.next(session, {0: (offset, EPOCH if offset else -1)})
        assert sizes(setting.tell(session))[0] > 0


def test_who_is_in_sync_is_not_throttled(setting: Setting) -> None:
    setting.throttle.set_rate(1, now_ms=0)
    setting.throttle.set_replicas({"topic": ["*"]})
    session = setting.begin({0: (0, -1)})
    for offset in range(3):
        setting.leaders[0].produce()
        setting.next(session, {0: (offset, EPOCH if offset else -1)})
        assert sizes(setting.tell(session))[0] > 0


def test_what_is_let_go_of_and_asked_for_again_is_suspicious(setting: Setting) -> None:
    """As by a follower that could not take it, and rests."""
    leader = setting.leaders[0]
    leader.produce(3)
    session = setting.begin({0: (0, -1)})
    session.collect(1 << 20)
    setting.next(session, {}, forgotten=(0,))
    assert setting.suspected == []
    setting.next(session, {0: (0, -1)})
    assert setting.suspected == [(leader.partition, 0)]


def test_so_it_is_in_the_next_session(setting: Setting) -> None:
    leader = setting.leaders[0]
    leader.produce(3)
    for _ in range(2):
        session = setting.begin({0: (0, -1)})
        session.collect(1 << 20)
    assert setting.suspected == [(leader.partition, 0)]
    setting.begin({0: (3, EPOCH)}).collect(1 << 20)
    assert len(setting.suspected) == 1


def test_who_rests_after_it_has_taken_everything_makes_nobody_suspicious(setting: Setting) -> None:
    """As by one that syncs first, or is throttled."""
    setting.leaders[0].produce(3)
    session = setting.begin({0: (0, -1)})
    session.collect(1 << 20)
    setting.next(session, {}, forgotten=(0,))
    setting.next(session, {0: (3, EPOCH)})
    session.collect(1 << 20)
    setting.next(session, {}, forgotten=(0,))
    setting.next(session, {0: (3, EPOCH)})
    assert setting.suspected == []
