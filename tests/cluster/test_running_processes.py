"""Goal: ZooKeeper may be away for longer than a session lasts, and nobody notices; and what a kill
does to a cluster can be read off its metrics.
Method: `ottla cluster up` on a real ZooKeeper, which is stopped by SIGSTOP; `/metrics` scraped
before and after.
"""

from __future__ import annotations

import time
from pathlib import Path

from ottla.cli.cluster_control import ask_state
from ottla.client import Admin
from ottla.client.admin_values import NewTopic
from tests.cluster import raw
from tests.cluster.processes import ProcessCluster
from tests.cluster.replicated import Replicated
from tests.cluster.scraping import Figures, metrics_port, scrape
from tests.cluster.waiting import until
from tests.cluster.zookeeper import ZooKeeper

SESSION_MS = 4_000
SENT_MIN = 3
CONTROLLER = "kafka_controller_kafkacontroller"
ELECTIONS = "kafka_controller_controllerstats_leaderelections_total"
REPLICAS = "kafka_server_replicamanager"


def test_zookeeper_is_silent_for_longer_than_a_session(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    settings = {"zookeeper.session.timeout.ms": SESSION_MS}
    with ProcessCluster(tmp_path, zookeeper.connect, settings=settings) as cluster:
        orders = Replicated(cluster)
        orders.create()
        epoch = leader_epoch(orders)
        producer = orders.producer()
        # Before: a producer's id and the topic of the group's offsets are made in the store.
        orders.send(producer)
        orders.flush(producer)
        orders.read(1)
        sent = 1
        with zookeeper.paused():
            over = time.monotonic() + 1.5 * SESSION_MS / 1000
            while time.monotonic() < over or sent < SENT_MIN:
                orders.send(producer)
                orders.flush(producer)
                sent += 1
                assert len(orders.read(sent)) == sent
        assert len(orders.acked) == sent
        # Whether a session has outlived it is a race within ZooKeeper; who lost one is back soon.
        until(lambda: len(registered(zookeeper, cluster)) == 3, "everybody is registered")
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("later", 1, 3)]) == {"later": None}
        assert leader_epoch(orders) == epoch, "nobody was taken for dead"
        orders.until_in_sync(1, 2, 3)
        orders.check_nothing_lost()


def leader_epoch(orders: Replicated) -> int:
    return int(raw.partition_of(orders.cluster, orders.leader(), orders.topic).leader_epoch)


def registered(zookeeper: ZooKeeper, cluster: ProcessCluster) -> list[str]:
    found: list[str] = zookeeper.client.get_children(f"/{Path(cluster.data_dir).name}/brokers/ids")
    return found


def test_what_a_kill_does_can_be_read_off_the_metrics(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    with ProcessCluster(tmp_path, zookeeper.connect) as cluster:
        orders = Replicated(cluster)
        orders.create()
        producer = orders.producer()
        orders.send(producer, 10)
        orders.flush(producer)
        ports = metrics_ports(cluster)

        def holds(**wanted: float) -> bool:
            found = figures(ports)
            return {name: found.get(name) for name in wanted} == wanted

        until(lambda: holds(**seen(controllers=1, leaders=1)), "all is well")
        killed = orders.leader()
        del ports[killed]
        elected = figures(ports)[ELECTIONS]
        cluster.kill(killed)
        # Each of the two counts the one that is gone, as soon as it has heard of it.
        until(
            lambda: holds(**seen(controllers=1, leaders=1, under_replicated=1, fenced=2)),
            "the others lead, without one of theirs",
        )
        until(lambda: figures(ports)[ELECTIONS] > elected, "the controller has counted it")
        cluster.start(killed)
        # It may lead again by the time that it is asked: it is the preferred one.
        ports = metrics_ports(cluster)
        until(lambda: holds(**seen(controllers=1, leaders=1)), "all is well again")


def metrics_ports(cluster: ProcessCluster) -> dict[int, int]:
    """By broker, of those that run."""
    pids = {one.id: one.pid for one in ask_state(Path(cluster.data_dir)).brokers}
    return {broker_id: metrics_port(pid) for broker_id, pid in pids.items() if pid is not None}


def seen(*, controllers: int, leaders: int, under_replicated: int = 0, fenced: int = 0) -> Figures:
    return {
        f"{CONTROLLER}_fencedbrokercount": fenced,
        "kafka_server_replicafetchermanager_maxlag": 0,
        f"{CONTROLLER}_activecontrollercount": controllers,
        f"{CONTROLLER}_offlinepartitionscount": 0,
        f"{REPLICAS}_leadercount": leaders,
        f"{REPLICAS}_underreplicatedpartitions": under_replicated,
    }


def figures(ports: dict[int, int]) -> Figures:
    """The sum over these brokers, which is that of the cluster where leaders or the controller
    count."""
    total: Figures = {}
    for port in ports.values():
        for name, value in (scrape(port) or {}).items():
            total[name] = total.get(name, 0) + value
    return total
