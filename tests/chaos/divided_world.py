"""Three brokers as processes whose network can be divided, and whose disks can be slow or full.

They reach each other and ZooKeeper through doors of this process (`divided_network`); clients reach
them directly. A sync takes its time while a flag is there (`slow_serve`); a full disk is a limit on
the size of files, which the kernel keeps to as it keeps to the end of a disk.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ottla.cli.cluster_plan import replication_defaults
from ottla.runtime.zookeeper_server import ZooKeeperServers
from tests.chaos import slow_serve
from tests.chaos.divided_network import Network, Way
from tests.chaos.troubled_cluster import BROKERS, SESSION_MS, SETTINGS, TroubledCluster
from tests.compat.nodes import STOP_SECONDS_MAX, ProcessNode
from tests.ports import free_port

ZOOKEEPER = "zookeeper"
LONG_S = SESSION_MS / 750
"""Longer than a session lasts, and than a replica may lag."""


def name_of(broker: int) -> str:
    return f"broker-{broker}"


class Served(ProcessNode):
    """One broker."""

    def __init__(self, directory: Path, broker: int, zookeeper_port: int, network: Network) -> None:
        super().__init__(directory)
        self.slow_flag = directory / "slow"
        peers_port = free_port()
        peers_door = network.door_to(name_of(broker), peers_port)
        clients = f"PLAINTEXT://{self.bootstrap}"
        zookeeper_door = network.door_to(ZOOKEEPER, zookeeper_port, name_of(broker))
        self.overrides = {
            **replication_defaults(len(BROKERS)),
            **SETTINGS,
            "node.id": str(broker),
            "log.dirs": str(self.data),
            "zookeeper.connect": f"127.0.0.1:{zookeeper_door}/ottla",
            "listeners": f"{clients},PEERS://127.0.0.1:{peers_port}",
            "advertised.listeners": f"{clients},PEERS://127.0.0.1:{peers_door}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT",
            "inter.broker.listener.name": "PEERS",
            "ottla.metrics.listener": "",
        }

    def command(self) -> list[str]:
        options = [
            part for pair in self.overrides.items() for part in ("--override", "=".join(pair))
        ]
        return [sys.executable, slow_serve.__file__, str(self.slow_flag), "serve", *options]

    def ready_mark(self) -> str:
        return f"listening on {self.bootstrap}"

    def allow_no_files(self) -> None:
        assert self.process is not None
        _, most = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (0, most))

    def end_without_disk(self) -> None:
        """Which it does by itself if it has noticed; else it is told to, with room for its files.
        Whichever came first: a stop that takes too long is a fault."""
        process, self.process = self.process, None
        assert process is not None
        with suppress(ProcessLookupError):
            _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        process.terminate()
        process.wait(STOP_SECONDS_MAX)
        assert process.returncode >= 0, f"it fell over: {self.log_tail()}"

    def end_somehow(self) -> None:
        """Whatever state it is in."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


class DividedWorld(TroubledCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._zookeeper = ZooKeeperServers(directory / "zookeeper", count=1, durable=False)
        self._network = Network()
        self._nodes: dict[int, Served] = {}

    def __enter__(self) -> DividedWorld:
        try:
            self._zookeeper.start()
            port = self._zookeeper.servers[0].address.client_port
            for broker in BROKERS:
                node = Served(self._directory / name_of(broker), broker, port, self._network)
                self._nodes[broker] = node
                node.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.bootstrap = ",".join(node.bootstrap for node in self._nodes.values())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self._nodes.values():
            node.end_somehow()
        self._network.close()
        self._zookeeper.stop()

    def data_of(self, broker: int) -> Path:
        return self._nodes[broker].data

    # -- faults -----------------------------------------------------------------------------

    def misfortune(self, chance: random.Random) -> None:
        one, other = chance.sample(BROKERS, 2)
        lasts_s = chance.choice((1.0, 3.0, LONG_S)) * chance.uniform(0.5, 1.5)
        peers = _both_ways(one, *(each for each in BROKERS if each != one))
        store = [(name_of(one), ZOOKEEPER), (ZOOKEEPER, name_of(one))]
        reset = chance.random() < 0.5

        def divided(ways: list[Way]) -> Callable[[], None]:
            return lambda: self._divide(ways, lasts_s, reset=reset)

        faults: dict[str, Callable[[], None]] = {
            f"{one} and {other} apart": divided(_both_ways(one, other)),
            f"nothing from {one} to {other}": divided([(name_of(one), name_of(other))]),
            f"{one} apart from all brokers": divided(peers),
            f"{one} apart from ZooKeeper": divided(store),
            f"{one} apart from everybody": divided(peers + store),
            f"{one} with a slow disk": lambda: self._slow_disk(one, lasts_s),
            f"{one} with a full disk": lambda: self._full_disk(one, lasts_s),
        }
        what = chance.choice(sorted(faults))
        self.faults.append(f"{what} for {lasts_s:.1f} s")
        faults[what]()

    def _divide(self, ways: list[Way], lasts_s: float, *, reset: bool) -> None:
        self._network.hold(ways)
        time.sleep(lasts_s)
        self._network.heal(reset=reset)

    def _slow_disk(self, broker: int, lasts_s: float) -> None:
        flag = self._nodes[broker].slow_flag
        flag.touch()
        time.sleep(lasts_s)
        flag.unlink()

    def _full_disk(self, broker: int, lasts_s: float) -> None:
        """Its log dir is offline from the next write on, and as that is the last one it stops by
        itself; once there is room, it starts again."""
        node = self._nodes[broker]
        node.allow_no_files()
        time.sleep(lasts_s)
        node.end_without_disk()
        node.start()

    def heal(self) -> None:
        ended = [
            broker
            for broker, node in self._nodes.items()
            if node.process is None or node.process.poll() is not None
        ]
        assert ended == [], f"after {self.faults}: {self._nodes[ended[0]].log_tail()}"


def _both_ways(one: int, *others: int) -> list[Way]:
    return [
        way
        for other in others
        for way in ((name_of(one), name_of(other)), (name_of(other), name_of(one)))
    ]
