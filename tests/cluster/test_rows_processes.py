"""Goal: the rows of the feature list that say most of a cluster hold for processes, too: too few in
sync (14), the last one in sync killed, with unclean elections off (16) and on (17, 18), and nothing
that was acknowledged lost where three must have it (12, 29 to 31).
Method: `ottla cluster up` on a real ZooKeeper; all of it about one kill, since the others wait for
the end of a session. All rows run so in `make chaos`.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from ottla.client import Admin
from tests.cluster import raw
from tests.cluster.processes import ProcessCluster
from tests.cluster.replicated import Replicated
from tests.cluster.waiting import until
from tests.cluster.zookeeper import ZooKeeper
from tests.compat.wire import batch_of, produce


def test_the_last_one_in_sync_is_killed(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    with ProcessCluster(tmp_path, zookeeper.connect) as cluster:
        careful, bold = Replicated(cluster, "careful"), Replicated(cluster, "bold")
        careful.create()
        bold.create(min_insync_replicas="1")
        writer = careful.producer()
        write(careful, writer)
        write(bold, bold.producer())
        last = bold.leader()
        first_away, then_away = (one for one in cluster.broker_ids if one != last)
        for one in (first_away, then_away):
            cluster.stop(one)
        for orders in (careful, bold):
            orders.until_in_sync(last)
        assert answer_to_acks_all(careful, last) == raw.NOT_ENOUGH_REPLICAS
        assert raw.end_of_log(cluster, last, "careful") == 10
        # These wait at their producer until two have them, whoever leads then.
        careful.send(writer, 10)
        write(bold, bold.producer())

        cluster.kill(last)
        for one in (first_away, then_away):
            cluster.start(one)
        until(lambda: careful.leader() == then_away, "who knows all that was acknowledged leads")
        careful.flush(writer)
        careful.check_nothing_lost()
        assert len(careful.acked) == 20
        until(lambda: bold.leader() == -1, "nobody leads where the last one may know more")
        assert cluster.in_sync("bold") == {last}
        told = raw.partition_of(cluster, then_away, "bold")
        assert int(told.error_code) == raw.LEADER_NOT_AVAILABLE

        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.alter_configs("topic", "bold", {"unclean.leader.election.enable": "true"})
        until(lambda: ends_at(bold, bold.until_led(not_by=last), 10), "it has ten, and no more")
        cluster.start(last)
        for orders in (careful, bold):
            orders.until_in_sync(1, 2, 3)
            orders.until_alike(1, 2, 3)
        careful.check_nothing_lost()


def write(orders: Replicated, producer: Producer) -> None:
    orders.send(producer, 10)
    orders.flush(producer)


def ends_at(orders: Replicated, leader: int, offset: int) -> bool:
    beyond = raw.fetch(orders.cluster, leader, orders.topic, offset + 5)
    if int(beyond.error_code) != raw.OFFSET_OUT_OF_RANGE:
        return False
    return raw.watermark(orders.cluster, leader, orders.topic) == offset


def answer_to_acks_all(orders: Replicated, broker_id: int) -> int:
    with raw.wire_to(orders.cluster, broker_id) as wire:
        return int(produce(wire, orders.topic, batch_of([b"x"]), acks=-1).error_code)
