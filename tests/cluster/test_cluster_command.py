"""`ottla cluster` from a shell: a cluster of real processes, and everything that is done to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import cluster_control, cluster_status
from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.cli.model import NewTopic
from tests.cluster.zookeeper import ZooKeeper, wait_until
from tests.compat.nodes import COMPLAINT, OTTLA

SECONDS_MAX = 180


class Shell:
    """A cluster in a directory, and the commands for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "cluster"
        self.process: subprocess.Popen[str] | None = None

    def up(self, *options: str) -> None:
        """Returns when it says that it is up."""
        with (self.directory / "up.log").open("w") as log:
            self.process = subprocess.Popen(
                [OTTLA, "cluster", "up", "--data", self.data, "--listen", "127.0.0.1:0", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        process = self.process
        wait_until(
            lambda: "Ctrl-C" in self.said() or process.poll() is not None, "the cluster is up"
        )
        assert process.poll() is None, self.said()

    def said(self) -> str:
        return (self.directory / "up.log").read_text()

    def run(self, *arguments: str, fails: bool = False) -> str:
        command = [str(OTTLA), "cluster", *arguments, "--data", str(self.data)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX
        )
        assert done.returncode == (1 if fails else 0), done
        return done.stderr if fails else done.stdout

    def brokers(self) -> list[dict[str, Any]]:
        """What `status` shows; a process of its own for each look would be slow."""
        found: list[dict[str, Any]] = cluster_status.take(self.data)["brokers"]
        return found

    def states(self) -> list[str]:
        return [broker["state"] for broker in self.brokers()]

    def do(self, command: str, broker_id: int) -> None:
        cluster_control.call(self.data, command, broker_id)

    def refused(self, command: str, broker_id: int) -> str:
        with pytest.raises(Failure) as failure:
            self.do(command, broker_id)
        return str(failure.value)

    def complaints(self) -> list[str]:
        texts = [path.read_text(errors="replace") for path in self.data.glob("broker-*.log")]
        return [line for text in texts for line in text.splitlines() if COMPLAINT.search(line)]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.run("down")
            assert self.process.wait(SECONDS_MAX) == 0, self.said()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    one = Shell(tmp_path)
    yield one
    one.close()


def kernel_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_cluster_of_three_and_what_is_done_to_it(shell: Shell) -> None:
    shell.up()
    status = json.loads(shell.run("status", "--json"))
    assert [broker["id"] for broker in status["brokers"]] == [1, 2, 3]
    assert [broker["state"] for broker in status["brokers"]] == ["running"] * 3
    assert len(status["zookeeper"]) == 1
    for broker in status["brokers"]:
        assert broker["data_dir"] == str(shell.data / f"broker-{broker['id']}")
        assert Path(broker["data_dir"], "meta.properties").exists()
        line = f"broker {broker['id']} listens on {broker['address']} (pid {broker['pid']}"
        assert line in shell.said()
    first, second, _ = (broker["pid"] for broker in status["brokers"])

    # Three replicas, and every broker leads its share.
    addresses = ",".join(broker["address"] for broker in status["brokers"])
    connection = Connection(addresses, {}, SECONDS_MAX)
    connection.create_topic(NewTopic("orders", 6))

    def replication_factors() -> list[int]:
        connection.refresh()
        return [topic.replication_factor for topic in connection.topics()]

    wait_until(lambda: replication_factors() == [3], "the broker that is asked knows it")
    wait_until(lambda: [one["leads"] for one in shell.brokers()] == [2, 2, 2], "two each")

    shell.do("pause", 1)
    assert kernel_state(first) == "T"
    assert shell.states() == ["paused", "running", "running"]
    shell.do("resume", 1)
    assert kernel_state(first) != "T"

    assert shell.run("kill", "2") == "killed broker 2\n"
    assert not Path(f"/proc/{second}").exists()
    assert shell.states() == ["running", "stopped", "running"]
    assert "broker 2 does not run" in shell.run("stop", "2", fails=True)
    shell.do("start", 2)
    assert shell.states() == ["running"] * 3
    assert shell.refused("start", 2) == "broker 2 is running already"
    assert shell.refused("kill", 4) == "there is no broker 4; there are 1, 2, 3"

    shell.do("stop", 3)
    after = shell.brokers()
    assert (after[2]["pid"], after[2]["state"]) == (None, "stopped")
    assert "already" in shell.run("up", fails=True)

    assert shell.run("down") == f"the cluster in {shell.data} is down\n"
    assert shell.process is not None
    assert shell.process.wait(SECONDS_MAX) == 0
    assert "no cluster runs" in shell.refused("status", 0)
    assert shell.complaints() == []


def test_what_was_there_is_there_again(shell: Shell, zookeeper: ZooKeeper) -> None:
    """With a ZooKeeper that runs already, which outlives the cluster; Ctrl-C is the end."""
    found: list[list[str]] = []
    for name in ("first", "second"):
        shell.up("--brokers", "1", "--zookeeper", zookeeper.connect)
        assert cluster_control.ask_state(shell.data).zookeeper == [zookeeper.servers.connect]
        connection = Connection(shell.brokers()[0]["address"], {}, SECONDS_MAX)
        found.append([topic.name for topic in connection.topics()])
        connection.create_topic(NewTopic(name))
        assert shell.process is not None
        shell.process.send_signal(signal.SIGINT)
        assert shell.process.wait(SECONDS_MAX) == 0
    assert found == [[], ["first"]]
    assert zookeeper.client.exists("/brokers/topics/second")
    assert shell.complaints() == []


def test_a_cluster_that_grows_to_three_asks_for_two_copies(
    shell: Shell, zookeeper: ZooKeeper
) -> None:
    seen = []
    for brokers in ("1", "3"):
        shell.up("--brokers", brokers, "--zookeeper", zookeeper.connect)
        connection = Connection(shell.brokers()[0]["address"], {}, SECONDS_MAX)
        settings = {one.name: one.value for one in connection.configs("broker", "")}
        seen.append(settings["min.insync.replicas"])
        connection.close()
        shell.run("down")
        assert shell.process is not None
        assert shell.process.wait(SECONDS_MAX) == 0
    assert seen == ["1", "2"]
    assert "min.insync.replicas is 2 now, it was 1" in shell.said()


def test_processes_that_nobody_looks_after_can_be_ended(shell: Shell) -> None:
    shell.up("--brokers", "1")
    state = cluster_control.ask_state(shell.data)
    broker = state.brokers[0].pid
    # ZooKeeper is started again when it ends by itself.
    os.kill(state.zookeeper_pids[0], signal.SIGKILL)
    wait_until(lambda: "had ended: started again" in shell.said(), "another ZooKeeper")
    os.kill(state.pid, signal.SIGKILL)
    assert shell.process is not None
    shell.process.wait(SECONDS_MAX)
    assert Path(f"/proc/{broker}").exists()
    assert f"pids {broker}, " in shell.refused("status", 0)
    assert f"pids {broker}, " in shell.run("up", fails=True)
    shell.run("down")
    assert cluster_control.leftovers(shell.data) == []
    assert "no cluster runs" in shell.refused("status", 0)


def test_a_broker_that_can_not_start_is_told(shell: Shell, zookeeper: ZooKeeper) -> None:
    options = ["--brokers=1", "--listen=127.0.0.1:0", "--override=num.io.threads=x"]
    said = shell.run("up", f"--zookeeper={zookeeper.connect}", *options, fails=True)
    assert "broker 1 did not start" in said
    assert "num.io.threads" in said
