"""Goal: the short way of a fetch steps aside for everything that only the long way can tell.
Method: a route that the handler has learned, over a real replica; then the world changes under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.handlers import api_01_fetch
from ottla.handlers.context import Context, Services
from ottla.protocol.messages import encode_request
from tests.unit.handlers.cluster_fakes import ClusterBroker
from tests.unit.handlers.read_fakes import LISTENER
from tests.unit.replication.replicas import TOPIC_ID

VERSION = 17
EPOCH = 5


class Reader:
    """A connection that asks for one partition, in a session or without one."""

    def __init__(self, broker: ClusterBroker) -> None:
        services = cast(Services, broker.services)
        self.context = Context(services, VERSION, "x", LISTENER, 1, "127.0.0.1")
        self._services = services

    def asks(
        self,
        offset: int,
        session: tuple[int, int] = (0, -1),
        indexes: Sequence[int] = (0,),
        forgets: Sequence[int] = (),
        bytes_wanted: tuple[int, int] = (1, 1 << 20),
    ) -> memoryview:
        partitions = [
            {
                "partition": index,
                "current_leader_epoch": EPOCH,
                "fetch_offset": offset,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": bytes_wanted[1],
            }
            for index in indexes
        ]
        fields = {
            "max_wait_ms": 500,
            "min_bytes": bytes_wanted[0],
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [{"topic_id": TOPIC_ID, "partitions": partitions}],
            "forgotten_topics_data": [{"topic_id": TOPIC_ID, "partitions": list(forgets)}]
            if forgets
            else [],
            "rack_id": "",
        }
        return memoryview(encode_request(api_01_fetch.API_KEY, VERSION, fields))

    def takes_the_long_way(self, body: memoryview) -> Any:
        return api_01_fetch.handle(self.context, body)

    def takes_the_short_way(self, body: memoryview) -> Any:
        """None if there is none."""
        route = self.context.route
        return None if route is None else route.answer(self.context, body, 7)


@pytest.fixture
def broker() -> ClusterBroker:
    """It leads, and its three records are committed."""
    broker = ClusterBroker(epoch=EPOCH)
    broker.replica.produce(3)
    for replica in (2, 3):
        broker.replica.fetched_by(replica, 3)
    return broker


@pytest.fixture
def reader(broker: ClusterBroker) -> Reader:
    reader = Reader(broker)
    reader.takes_the_long_way(reader.asks(0))
    return reader


def in_a_session(broker: ClusterBroker) -> tuple[Reader, int]:
    """A reader whose route belongs to a session in epoch 2, and the session's id."""
    reader = Reader(broker)
    reader.takes_the_long_way(reader.asks(0, (0, 0)))
    reader.takes_the_long_way(reader.asks(0, (5, 1)))
    return reader, 5


def test_what_was_asked_before_is_found_again(reader: Reader) -> None:
    assert isinstance(reader.takes_the_short_way(reader.asks(1)), list)
    assert isinstance(reader.takes_the_short_way(reader.asks(3)), Deferred)


@pytest.mark.parametrize(("leader", "epoch"), [(2, 6), (1, 6), (-1, 6)])
def test_another_leader_or_epoch(
    broker: ClusterBroker, reader: Reader, leader: int, epoch: int
) -> None:
    broker.become(leader, epoch, 1)
    assert reader.takes_the_short_way(reader.asks(1)) is None


def test_the_batch_that_does_not_fit_counts_for_who_waits(broker: ClusterBroker) -> None:
    reader = Reader(broker)
    size = len(broker.replica.content()) // 3
    for least, waits in ((size + 1, False), (size + 2, True)):
        body = reader.asks(0, bytes_wanted=(least, size + 1))
        reader.takes_the_long_way(body)
        answer = reader.takes_the_short_way(body)
        assert answer is not None
        assert isinstance(answer, Deferred) == waits


def test_a_disk_that_has_failed(broker: ClusterBroker, reader: Reader) -> None:
    broker.replica.partition.go_offline()
    assert reader.takes_the_short_way(reader.asks(1)) is None


def test_an_offset_that_is_not_there(reader: Reader) -> None:
    assert reader.takes_the_short_way(reader.asks(4)) is None


def test_a_session_that_the_request_names(reader: Reader) -> None:
    assert reader.takes_the_short_way(reader.asks(1, (0, 0))) is None
    assert reader.takes_the_short_way(reader.asks(1, (5, -1))) is None


def test_a_session_goes_on_by_both_ways(broker: ClusterBroker) -> None:
    reader, session = in_a_session(broker)
    assert isinstance(reader.takes_the_short_way(reader.asks(1, (session, 2))), list)
    reader.takes_the_long_way(reader.asks(1, (session, 3)))
    assert isinstance(reader.takes_the_short_way(reader.asks(2, (session, 4))), list)


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_an_epoch_that_is_not_due(broker: ClusterBroker, epoch: int) -> None:
    reader, session = in_a_session(broker)
    assert reader.takes_the_short_way(reader.asks(1, (session, epoch))) is None
    assert isinstance(reader.takes_the_short_way(reader.asks(1, (session, 2))), list)


def test_a_refusal_leaves_the_session_as_it_was(broker: ClusterBroker) -> None:
    reader, session = in_a_session(broker)
    assert reader.takes_the_short_way(reader.asks(99, (session, 2))) is None
    assert isinstance(reader.takes_the_short_way(reader.asks(1, (session, 2))), list)


def test_a_session_with_more_in_it(broker: ClusterBroker) -> None:
    reader, session = in_a_session(broker)
    reader.takes_the_long_way(reader.asks(1, (session, 2), (0, 1)))
    assert reader.takes_the_short_way(reader.asks(1, (session, 3))) is None


def test_a_partition_that_was_forgotten_and_asked_for_anew(broker: ClusterBroker) -> None:
    reader, session = in_a_session(broker)
    reader.takes_the_long_way(reader.asks(1, (session, 2), (0, 1)))
    reader.takes_the_long_way(reader.asks(1, (session, 3), (1,), forgets=(0,)))
    reader.takes_the_long_way(reader.asks(1, (session, 4), (0, 1), forgets=(1,)))
    reader.takes_the_long_way(reader.asks(1, (session, 5), (), forgets=(1,)))
    assert reader.takes_the_short_way(reader.asks(1, (session, 6))) is None


def test_a_session_that_was_ended_and_one_of_the_same_id(broker: ClusterBroker) -> None:
    reader, session = in_a_session(broker)
    reader.takes_the_long_way(Reader(broker).asks(0, (session, -1)))
    assert reader.takes_the_short_way(reader.asks(1, (session, 2))) is None
    other = Reader(broker)
    other.takes_the_long_way(other.asks(0, (0, 0)))
    other.takes_the_long_way(other.asks(0, (session, 1)))
    assert reader.takes_the_short_way(reader.asks(1, (session, 2))) is None
