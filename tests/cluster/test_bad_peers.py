"""Goal: who comes to the brokers' own listener and says what can't be true is refused, and nothing
changes: not the watermark, not the in-sync set.
Method: a cluster of `ottla.testing`, a follower that is paused, and requests in its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from ottla.testing import Cluster
from tests.cluster import raw
from tests.cluster.replicated import TOPIC, Replicated
from tests.cluster.waiting import until
from tests.compat.wire import Wire, batch_of, produce

STALE_BROKER_EPOCH = 77


class Impostor:
    """Speaks for a follower that is paused, which has not copied the only record there is."""

    def __init__(self, orders: Replicated, cluster: Cluster) -> None:
        self.orders = orders
        self.cluster = cluster
        self.leader = orders.leader()
        self.victim = next(one for one in self.cluster.broker_ids if one != self.leader)
        (told,) = raw.metadata(self.cluster, self.leader, TOPIC).topics
        self._topic_id = told.topic_id
        self.cluster.pause(self.victim)
        with raw.wire_to(self.cluster, self.leader) as wire:
            assert int(produce(wire, TOPIC, batch_of([b"x"]), acks=1).error_code) == raw.NONE

    def broker_epoch(self) -> int:
        return self.cluster._witness().brokers[self.victim].epoch

    def fetch(self, offset: int, *, broker_epoch: int, leader_epoch: int = 0) -> Any:
        schema: Any = import_module("kio.schema.fetch.v17.request")
        part = schema.FetchPartition(
            partition=0,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=0,
            partition_max_bytes=1 << 20,
        )
        request = schema.FetchRequest(
            replica_state=schema.ReplicaState(replica_id=self.victim, replica_epoch=broker_epoch),
            max_wait=timedelta(0),
            min_bytes=1,
            session_epoch=0,
            topics=(schema.FetchTopic(topic_id=self._topic_id, partitions=(part,)),),
            forgotten_topics_data=(),
        )
        port = self.cluster._members[self.leader].ports["REPLICATION"]
        with Wire(f"127.0.0.1:{port}") as wire:
            return wire.call(request)

    def check_nothing_changed(self, records: int = 1) -> None:
        assert raw.watermark(self.cluster, self.leader, TOPIC) == 0
        assert self.cluster.in_sync(TOPIC) == {1, 2, 3}
        assert self.orders.leader() == self.leader
        self.cluster.resume(self.victim)
        until(lambda: raw.watermark(self.cluster, self.leader, TOPIC) == records, "it fetched")


@pytest.fixture
def impostor(lasting_sessions: dict[str, object]) -> Iterator[Impostor]:
    with Cluster(3, lasting_sessions) as cluster:
        orders = Replicated(cluster)
        orders.create()
        yield Impostor(orders, cluster)


@pytest.mark.parametrize("change", [-1, 1, 1 << 40])
def test_another_life_of_a_broker_is_refused(impostor: Impostor, change: int) -> None:
    answer = impostor.fetch(1, broker_epoch=impostor.broker_epoch() + change)
    assert int(answer.error_code) == STALE_BROKER_EPOCH
    impostor.check_nothing_changed()


@pytest.mark.parametrize("offset", [2, 1 << 40])
def test_offsets_that_nobody_can_have_do_not_count(impostor: Impostor, offset: int) -> None:
    answer = impostor.fetch(offset, broker_epoch=impostor.broker_epoch())
    told = answer.responses[0].partitions[0] if answer.responses else answer
    assert int(told.error_code) != raw.NONE or int(told.diverging_epoch.end_offset) >= 0
    impostor.check_nothing_changed()


@pytest.mark.parametrize("epoch", [1, 1 << 30])
def test_epochs_that_there_never_were_change_nothing(impostor: Impostor, epoch: int) -> None:
    """The leader asks the store, which knows better, and leads on in its epoch."""
    cluster = impostor.cluster
    state = cluster._witness().partition(TOPIC, 0)
    answer = impostor.fetch(0, broker_epoch=impostor.broker_epoch(), leader_epoch=epoch)
    told = answer.responses[0].partitions[0]
    assert int(told.error_code) == raw.UNKNOWN_LEADER_EPOCH

    def is_written() -> bool:
        with raw.wire_to(cluster, impostor.leader) as wire:
            code = int(produce(wire, TOPIC, batch_of([b"y"]), acks=1).error_code)
        assert code in (raw.NONE, raw.NOT_LEADER_OR_FOLLOWER)
        return code == raw.NONE

    until(is_written, "the leader takes writes again")
    assert cluster._witness().partition(TOPIC, 0) == state
    impostor.check_nothing_changed(records=2)
