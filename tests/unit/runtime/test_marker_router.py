"""Goal: every marker comes to the leader of its partition, many in one request, and each has its
own answer.
Method: played peers, a writer that keeps what is written here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.coordinator.shard import Transactional
from ottla.metadata.image import PartitionState
from ottla.protocol.error_codes import (
    NETWORK_EXCEPTION,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.runtime.marker_router import REVOKING_EPOCH, MarkerRouter
from ottla.runtime.marker_writer import MarkerWriter
from ottla.runtime.peers import Peers
from tests.unit.runtime.played_peers import Played, PlayedPeers

LEADERS = {0: 1, 1: 2, 2: 2, 3: 3, 4: -1}


class Setting:
    def __init__(self) -> None:
        self.peers = PlayedPeers()
        self.written: list[tuple[Any, ...]] = []
        self.router = MarkerRouter(
            1,
            lambda: cast(Any, SimpleNamespace(partition=self._partition)),
            cast(MarkerWriter, self),
            cast(Peers, self.peers),
        )

    def _partition(self, topic: str, index: int) -> PartitionState | None:
        if topic != "t" or index not in LEADERS:
            return None
        return PartitionState(LEADERS[index], 0, (1, 2, 3), (1, 2, 3))

    def write(self, topic: str, index: int, marker: Transactional, **options: Any) -> Deferred[int]:
        return self._done(topic, index, marker.producer_id, options)

    def revoke(self, topic: str, index: int, producer_id: int) -> Deferred[int]:
        return self._done(topic, index, producer_id, "revoked")

    def _done(self, *what: Any) -> Deferred[int]:
        self.written.append(what)
        done: Deferred[int] = Deferred()
        done.resolve(0)
        return done

    def send(self, marker: Transactional, *indexes: int) -> list[Deferred[int]]:
        return [self.router.write("t", index, marker, client_version=2) for index in indexes]


def a_marker(producer_id: int = 7, committed: bool = True) -> Transactional:
    return Transactional(producer_id, 3, committed, 9)


def codes(played: Played, code: int = 0) -> None:
    """The peer says the same of every partition."""
    played.answer(
        markers=[
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": index, "error_code": code}
                            for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in played.request.markers
        ]
    )


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_what_is_led_here_is_written_here(setting: Setting) -> None:
    [written] = setting.send(a_marker(), 0)
    assert written.result() == 0
    assert setting.written == [("t", 0, 7, {"client_version": 2, "is_repeated": False})]
    assert not setting.peers.asked


def test_what_is_led_elsewhere_goes_there(setting: Setting) -> None:
    [written] = setting.send(a_marker(), 3)
    [played] = setting.peers.asked
    assert (played.broker_id, played.purpose, played.api_key) == (3, "markers", 27)
    [marker] = played.request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 9)
    assert (marker.transaction_result, marker.transaction_version) == (True, 2)
    assert not written.done
    codes(played)
    assert written.result() == 0


def test_what_comes_meanwhile_goes_together(setting: Setting) -> None:
    first = setting.send(a_marker(1), 1)
    others = setting.send(a_marker(2), 1, 2) + setting.send(a_marker(3, committed=False), 1)
    assert len(setting.peers.asked) == 1
    codes(setting.peers.asked.pop())
    [played] = setting.peers.asked
    told = {
        marker.producer_id: (
            marker.transaction_result,
            [(topic.name, topic.partition_indexes) for topic in marker.topics],
        )
        for marker in played.request.markers
    }
    assert told == {2: (True, [("t", [1, 2])]), 3: (False, [("t", [1])])}
    codes(played, 6)
    assert [one.result() for one in first + others] == [0, 6, 6, 6]


def test_two_of_one_producer_for_one_partition_are_not_mixed_up(setting: Setting) -> None:
    setting.send(a_marker(1), 1)
    first = setting.send(a_marker(7), 1)
    second = setting.send(a_marker(7, committed=False), 1)
    codes(setting.peers.asked.pop())
    assert len(setting.peers.asked[0].request.markers) == 1
    codes(setting.peers.asked.pop(), 5)
    assert first[0].result() == 5
    codes(setting.peers.asked.pop(), 4)
    assert second[0].result() == 4


def test_where_nobody_leads(setting: Setting) -> None:
    assert setting.send(a_marker(), 4)[0].result() == NOT_LEADER_OR_FOLLOWER
    assert setting.send(a_marker(), 9)[0].result() == UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_that_knows_less_is_asked_again(setting: Setting) -> None:
    """Only the coordinator's own image says that a topic is gone: else a marker would be lost."""
    [asked] = setting.send(a_marker(), 1)
    codes(setting.peers.asked.pop(), UNKNOWN_TOPIC_OR_PARTITION)
    assert asked.result() == NOT_LEADER_OR_FOLLOWER


def test_a_lost_answer_is_told(setting: Setting) -> None:
    lost = setting.send(a_marker(), 1, 2)
    setting.peers.asked.pop().lose()
    assert lost[0].result() == NETWORK_EXCEPTION
    codes(setting.peers.asked.pop())
    assert lost[1].result() == 0


def test_a_broker_that_can_not_be_reached(setting: Setting) -> None:
    setting.peers.unreachable.add(2)
    assert [one.result() for one in setting.send(a_marker(), 1, 2)] == [NETWORK_EXCEPTION] * 2


def test_an_answer_that_leaves_somebody_out(setting: Setting) -> None:
    [written] = setting.send(a_marker(), 1)
    setting.peers.asked.pop().answer(markers=[])
    assert written.result() == NETWORK_EXCEPTION


def test_revoking(setting: Setting) -> None:
    assert setting.router.revoke("t", 0, 7).result() == 0
    assert setting.written == [("t", 0, 7, "revoked")]
    revoked = setting.router.revoke("t", 1, 7)
    [played] = setting.peers.asked
    assert played.request.markers[0].producer_epoch == REVOKING_EPOCH
    codes(played)
    assert revoked.result() == 0
