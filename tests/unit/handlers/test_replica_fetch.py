"""Goal: only brokers copy from a leader, in the life that the image knows; they wait for news and
for nothing else.
Method: the Fetch handler over real partitions; the test owns time and the turns of the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.handlers import api_01_fetch, complaints
from ottla.handlers.context import Context, Services
from ottla.handlers.reply import Reply
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    NOT_LEADER_OR_FOLLOWER,
    STALE_BROKER_EPOCH,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages import encode_request
from ottla.protocol.replica_fetch import (
    ReplicaFetched,
    pack_partition,
    pack_replica_fetch,
    pack_tail,
    read_replica_fetched,
)
from ottla.replication.replica_session import ReplicaSessions, Surroundings
from ottla.replication.throttle import Throttle
from sim.groups.virtual import VirtualTime
from tests.unit.handlers.read_fakes import a_broker
from tests.unit.replication.replicas import TOPIC_ID, Replica

Answer = tuple[int, int, list[ReplicaFetched]]


class Setting:
    """Broker 1 leads partition 0 in epoch 5; broker 2, in its life 7, copies it."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.leader = Replica(1).lead()
        self.soon: list[Callable[[], None]] = []
        self.services = SimpleNamespace(
            broker_id=1,
            clock=self.time,
            timers=self.time,
            soon=self.soon.append,
            inter_broker_listener="REPLICATION",
            image=MetadataImage(brokers={one: a_broker(one) for one in (1, 2, 3)}),
            replica_sessions=ReplicaSessions(
                Surroundings(
                    broker_id=1,
                    find=lambda topic_id, index: self.leader.partition,
                    may_be_member=lambda broker, epoch: True,
                    propose=lambda partition, proposal: None,
                    storage_failed=lambda failure: None,
                    throttle=Throttle(),
                    doubt=lambda partition, replica, epoch: None,
                ),
                lambda: 33,
            ),
        )

    def ask(
        self,
        offset: int | None = 0,
        session: tuple[int, int] = (0, 0),
        *,
        listener: str = "REPLICATION",
        replica: int = 2,
        life: int = 7,
        wait_ms: int = 500,
    ) -> Reply | Deferred[Any]:
        packed = {}
        if offset is not None:
            epoch = 5 if offset else -1
            packed[TOPIC_ID.bytes] = [pack_partition(0, 5, offset, epoch, 0, 1 << 20, 0)]
        body = pack_replica_fetch(
            (wait_ms, 1, 1 << 20), session, packed, {}, pack_tail(replica, life)
        )
        return self.handle(17, body, listener)

    def handle(self, version: int, body: bytes, listener: str) -> Reply | Deferred[Any]:
        context = Context(cast(Services, self.services), version, "x", listener, 1, "127.0.0.1")
        return api_01_fetch.handle(context, memoryview(body))

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()


def told(reply: Any) -> Answer:
    parts = (reply.result() if isinstance(reply, Deferred) else reply).parts
    body = b"".join(
        part if isinstance(part, bytes) else part.file.read_at(part.position, part.size)
        for part in parts
    )
    return read_replica_fetched(memoryview(body))


@pytest.fixture
def setting() -> Iterator[Setting]:
    complaints._complained_ms.clear()
    yield Setting()
    complaints._complained_ms.clear()


def test_a_new_session_is_answered_at_once(setting: Setting) -> None:
    code, session_id, [one] = told(setting.ask())
    assert (code, session_id, one.error_code, len(one.records)) == (0, 33, 0, 0)


def test_records_are_sent(setting: Setting) -> None:
    setting.leader.produce(2)
    _, _, [one] = told(setting.ask())
    assert bytes(one.records) == setting.leader.content()


def test_a_follower_that_has_all_waits_for_more(setting: Setting) -> None:
    setting.ask()
    waiting = setting.ask(None, (33, 1))
    assert isinstance(waiting, Deferred)
    setting.leader.produce()
    setting.leader.produce()
    assert not waiting.done, "the turn is not over"
    setting.turn()
    _, _, [one] = told(waiting)
    assert bytes(one.records) == setting.leader.content()


def a_follower_of_three_at_a_time(setting: Setting) -> int:
    """Its last answer told of three appends; returns the offset where its log ends."""
    setting.ask()
    waiting = setting.ask(None, (33, 1))
    for _ in range(3):
        setting.leader.produce()
    setting.turn()
    assert len(told(waiting)[2]) == 1
    return 3


def test_as_many_as_the_last_time_are_waited_for(setting: Setting) -> None:
    end = a_follower_of_three_at_a_time(setting)
    waiting = setting.ask(end, (33, 2))
    assert isinstance(waiting, Deferred)
    for _ in range(2):
        setting.leader.produce()
        setting.turn()
        assert not waiting.done
    setting.leader.produce()
    setting.turn()
    _, _, [one] = told(waiting)
    assert bytes(one.records) == setting.leader.content(end)


def test_they_are_waited_for_a_moment_only(setting: Setting) -> None:
    end = a_follower_of_three_at_a_time(setting)
    waiting = setting.ask(end, (33, 2))
    assert isinstance(waiting, Deferred)
    setting.leader.produce()
    setting.leader.produce()
    setting.turn()
    assert not waiting.done
    setting.time.advance(1)
    _, _, [one] = told(waiting)
    assert bytes(one.records) == setting.leader.content(end)
    # Two came, and two are hoped for.
    waiting = setting.ask(end + 2, (33, 3))
    setting.leader.produce()
    setting.leader.produce()
    setting.turn()
    assert len(told(waiting)[2]) == 1


def test_a_follower_that_comes_before_the_last_of_them_waits_for_it(setting: Setting) -> None:
    end = a_follower_of_three_at_a_time(setting)
    setting.leader.produce()
    waiting = setting.ask(end, (33, 2))
    assert isinstance(waiting, Deferred)
    setting.leader.produce()
    setting.turn()
    assert not waiting.done
    setting.leader.produce()
    setting.turn()
    _, _, [one] = told(waiting)
    assert bytes(one.records) == setting.leader.content(end)


def test_what_it_has_is_learned_before_it_waits(setting: Setting) -> None:
    setting.leader = Replica(1).lead((1, 2))
    end = a_follower_of_three_at_a_time(setting)
    setting.leader.produce()
    waiting = setting.ask(end, (33, 2))
    assert isinstance(waiting, Deferred)
    assert not waiting.done
    assert setting.leader.partition.high_watermark == end


def test_one_at_a_time_is_never_held_back(setting: Setting) -> None:
    end = a_follower_of_three_at_a_time(setting)
    waiting = setting.ask(end, (33, 2))
    setting.leader.produce()
    setting.time.advance(1)
    assert len(told(waiting)[2]) == 1
    for number in range(3):
        waiting = setting.ask(end + 1 + number, (33, 3 + number))
        setting.leader.produce()
        setting.turn()
        assert len(told(waiting)[2]) == 1


def test_news_that_are_not_worth_an_answer_are_not_waited_with(setting: Setting) -> None:
    """Else an append behind them would be waited with until the follower's time is up."""
    end = a_follower_of_three_at_a_time(setting)
    partition = setting.leader.partition
    for _ in range(3):
        partition._tell_readers()
    waiting = setting.ask(end, (33, 2))
    assert isinstance(waiting, Deferred)
    assert not waiting.done
    setting.leader.produce()
    setting.time.advance(1)
    setting.turn()
    assert len(told(waiting)[2]) == 1


def test_it_waits_no_longer_than_it_said(setting: Setting) -> None:
    setting.ask()
    waiting = setting.ask(None, (33, 1))
    assert isinstance(waiting, Deferred)
    setting.time.advance(499)
    assert not waiting.done
    setting.time.advance(1)
    assert told(waiting) == (0, 33, [])
    setting.leader.produce()
    setting.turn()


def test_the_next_request_ends_the_wait_of_the_one_before(setting: Setting) -> None:
    setting.ask()
    first = setting.ask(None, (33, 1))
    second = setting.ask(None, (33, 2))
    assert isinstance(first, Deferred)
    assert isinstance(second, Deferred)
    setting.turn()
    assert told(first) == (0, 33, [])
    assert not second.done
    setting.leader.produce()
    setting.turn()
    assert len(told(second)[2]) == 1


def test_an_answer_tells_nothing_of_what_only_the_next_request_names(setting: Setting) -> None:
    """The follower would not take it (R10), and would never be told the watermark again."""
    setting.leader = Replica(1).lead((1, 2))
    setting.leader.produce()
    setting.ask(None)
    waiting = setting.ask(None, (33, 1))
    naming = setting.ask(1, (33, 2))
    setting.turn()
    assert told(waiting) == (0, 33, [])
    setting.time.advance(1_000)
    assert [one.high_watermark for one in told(naming)[2]] == [1]


def test_a_lost_leadership_ends_the_wait(setting: Setting) -> None:
    setting.ask()
    waiting = setting.ask(None, (33, 1))
    setting.leader.partition.go_offline()
    setting.turn()
    _, _, [one] = told(waiting)
    assert one.error_code == 56


def test_a_replica_that_moves_away_is_no_failed_disk(setting: Setting) -> None:
    """Its files are out of the way by the time the waiting follower is answered."""
    setting.ask()
    waiting = setting.ask(None, (33, 1))
    partition = setting.leader.partition
    partition.go_away()
    partition.log = None
    setting.turn()
    _, _, [one] = told(waiting)
    assert one.error_code == NOT_LEADER_OR_FOLLOWER


def test_a_session_nobody_knows(setting: Setting) -> None:
    assert told(setting.ask(None, (9, 4))) == (FETCH_SESSION_ID_NOT_FOUND, 0, [])


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ({"listener": "PLAINTEXT"}, TOPIC_AUTHORIZATION_FAILED),
        ({"replica": 9}, NOT_LEADER_OR_FOLLOWER),
        ({"replica": 1}, NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_who_is_no_replica_is_refused(
    setting: Setting, caplog: pytest.LogCaptureFixture, claim: dict[str, Any], code: int
) -> None:
    setting.leader.produce()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            _, _, [one] = told(setting.ask(1, **claim))
            assert (one.error_code, len(one.records)) == (code, 0)
    assert len([one for one in caplog.records if one.name == "ottla.handlers"]) == 1
    assert len(setting.services.replica_sessions) == 0
    assert setting.leader.partition.high_watermark == 0


@pytest.mark.parametrize("life", [6, 8, -1])
def test_another_life_is_refused(setting: Setting, life: int) -> None:
    assert told(setting.ask(life=life)) == (STALE_BROKER_EPOCH, 0, [])
    assert len(setting.services.replica_sessions) == 0


def test_the_dead_are_refused(setting: Setting) -> None:
    brokers = {**setting.services.image.brokers, 2: a_broker(2, epoch=-1, fenced=True)}
    setting.services.image = replace(setting.services.image, brokers=brokers)
    assert told(setting.ask(life=-1))[0] == STALE_BROKER_EPOCH


def test_a_version_that_says_no_life_is_refused(setting: Setting) -> None:
    body = encode_request(
        1,
        12,
        {
            "replica_id": 2,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": "topic",
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": 0,
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        },
    )
    reply: Any = setting.handle(12, body, "REPLICATION")
    assert UNSUPPORTED_VERSION.to_bytes(2, "big") in b"".join(reply.parts)
