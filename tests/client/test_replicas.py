"""What a consumer does with replicas of a real cluster: it reads from the nearest one, and hears of
records that a new leader has not got.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.client import Admin, Consumer, Producer, Record
from ottla.client.consumer_errors import LogTruncatedError
from ottla.testing import Cluster
from tests.client.members import PATIENCE_S, until
from tests.compat.nodes import wait_until

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
PLACE = ("t", 0)


def send(bootstrap: str, numbers: range, acks: str = "all") -> None:
    with Producer(bootstrap_servers=bootstrap, acks=acks) as producer:
        for number in numbers:
            producer.send("t", b"%d" % number)
        producer.flush(PATIENCE_S)


def read_up_to(consumer: Consumer, got: list[Record], count: int) -> None:
    until(lambda: got.extend(consumer.poll(0.1)), lambda: len(got) >= count, f"{count} records")


def preferred(consumer: Consumer) -> int | None:
    return consumer._machine.state_of(PLACE).preferred_replica


def test_the_nearest_replica_is_read_while_it_lives() -> None:
    settings = {"replica.selector.class": RACK_AWARE, "default.replication.factor": "3"}
    with Cluster(3, settings, racks=["a", "b", "c"]) as cluster:
        send(cluster.bootstrap, range(10))
        near = next(iter(cluster.in_sync("t") - {cluster.leader("t")}))
        with Consumer(
            bootstrap_servers=cluster.bootstrap,
            client_rack="abc"[near - 1],
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign(PLACE)
            got: list[Record] = []
            read_up_to(consumer, got, 10)
            until(lambda: consumer.poll(0.1), lambda: preferred(consumer) == near, "the nearest")
            send(cluster.bootstrap, range(10, 20))
            read_up_to(consumer, got, 20)
            cluster.kill(near)
            send(cluster.bootstrap, range(20, 30))
            read_up_to(consumer, got, 30)
            assert preferred(consumer) != near
        assert [int(record.value) for record in got] == list(range(30))


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_what_an_unclean_election_lost_is_noticed(reset: str) -> None:
    """Rows 17 and 27: by the epochs, though the new log is as long as the old one was."""
    settings = {
        "default.replication.factor": "2",
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "true",
    }
    with Cluster(2, settings) as cluster:
        send(cluster.bootstrap, range(10))
        old = cluster.leader("t")
        other = 3 - old
        with Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset=reset, metadata_max_age_ms=300
        ) as consumer:
            consumer.assign(PLACE)
            consumer.seek(PLACE, 0)
            got: list[Record] = []
            read_up_to(consumer, got, 10)
            cluster.kill(other)
            wait_until(lambda: cluster.in_sync("t") == {old}, PATIENCE_S, "one in sync")
            send(cluster.bootstrap, range(10, 20), acks="1")
            read_up_to(consumer, got, 20)
            cluster.kill(old)
            cluster.start(other)
            wait_until(lambda: cluster.leader("t") == other, PATIENCE_S, "an unclean leader")
            send(cluster.bootstrap, range(100, 115))
            if reset == "none":
                for _ in range(2):
                    with pytest.raises(LogTruncatedError) as raised:
                        until(lambda: consumer.poll(0.1), lambda: False, "the truncation")
                    assert raised.value.offsets == {PLACE: 10}
                consumer.seek(PLACE, 10)
            read_up_to(consumer, got, 35)
        assert [record.offset for record in got[20:]] == list(range(10, 25))
        assert [int(record.value) for record in got[20:]] == list(range(100, 115))


def test_a_send_that_waits_follows_a_leader_that_has_moved() -> None:
    """The answer that sends it away is read by the thread that waits, and is not the last one."""
    with (
        Cluster(2, {"default.replication.factor": "2"}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer,
    ):
        admin.create_topic("t", 2)
        for partition in (0, 1) * 3:  # connections to both are open, and used by this thread
            producer.send("t", b"before", partition=partition).result(PATIENCE_S)
        old = cluster.leader("t")
        wait_until(lambda: len(cluster.in_sync("t")) == 2, PATIENCE_S, "both in sync")
        admin.alter_reassignments({PLACE: [3 - old, old]})
        assert admin.elect_leaders([PLACE]) == {PLACE: None}
        with ThreadPoolExecutor(1) as waiting:
            # Without a time-out of its own: at the end of one it would find what it has missed.
            sent = waiting.submit(lambda: producer.send("t", b"after", partition=0).result())
            try:
                assert sent.result(PATIENCE_S).partition == 0
            finally:
                producer.close()
