"""Goal: a broker of a cluster whose last log dir fails hands over, stops and says why (F7).
Method: `ottla cluster up` on a real ZooKeeper; the leader of a topic may from some moment on not
write files beyond a size, so the kernel refuses its appends as a broken disk would.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from ottla.cli.cluster_control import ask_state
from tests.cluster.processes import ProcessCluster
from tests.cluster.replicated import Replicated
from tests.cluster.waiting import until
from tests.cluster.zookeeper import ZooKeeper

FILE_BYTES_MAX = 1 << 20
VALUE_BYTES = 100_000


def pid_of(cluster: ProcessCluster, broker_id: int) -> int | None:
    return next(one.pid for one in ask_state(Path(cluster.data_dir)).brokers if one.id == broker_id)


def test_the_last_log_dir_of_a_broker_fails(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    with ProcessCluster(tmp_path, zookeeper.connect) as cluster:
        orders = Replicated(cluster)
        orders.create(min_insync_replicas="2")
        leader = orders.leader()
        subprocess.run(
            ["prlimit", f"--pid={pid_of(cluster, leader)}", f"--fsize={FILE_BYTES_MAX}"], check=True
        )
        producer = orders.producer()
        orders.send(producer, 20, size=VALUE_BYTES)
        until(lambda: pid_of(cluster, leader) is None, f"broker {leader} stops")
        cluster.ended(leader)
        orders.flush(producer)
        assert orders.failed == {}, "others took over, and the client retried"
        until(lambda: cluster.leader(orders.topic) not in (leader, -1), "another one leads")
        assert leader not in cluster.in_sync(orders.topic)

        said = cluster.said()
        assert f"broker {leader} has ended with status 1: ottla serve: stopped, since" in said
        assert str(Path(cluster.data_dir, f"broker-{leader}")) in said.rpartition("since")[2]
        ended = Path(cluster.data_dir, f"broker-{leader}.log").read_text()
        assert "every log dir has failed: this broker hands over and stops" in ended
        assert "Traceback" not in ended

        cluster.start(leader)  # without the limit, so on a disk that works again
        orders.until_in_sync(1, 2, 3)
        orders.check_nothing_lost()
