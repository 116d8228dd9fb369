"""Three brokers and an ensemble of three ZooKeeper servers, as processes, and what happens to them.

Brokers belong to an `ottla cluster up`, ZooKeeper's servers to this process. Every fault can be
healed; `heal` mends all of them, and says who had ended by itself, which nobody may.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from ottla.cli.cluster_control import ask_state, call
from ottla.runtime.zookeeper_server import ZooKeeperServers, ask
from tests.chaos.troubled_cluster import BROKERS, SESSION_MS, SETTINGS, TroubledCluster
from tests.cluster.waiting import until
from tests.patience import SECONDS_MAX

OTTLA = (sys.executable, "-m", "ottla.cli.main")


class World(TroubledCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._data = directory / "cluster"
        self._zookeeper = ZooKeeperServers(directory / "zookeeper", count=3, durable=False)
        self._log = directory / "up.log"
        self._up: subprocess.Popen[bytes] | None = None
        self._away: dict[int, str] = {}

    def __enter__(self) -> World:
        self._zookeeper.start()
        overrides = [part for pair in SETTINGS.items() for part in ("--override", "=".join(pair))]
        where = ["--data", str(self._data), "--listen", "127.0.0.1:0"]
        where += ["--zookeeper", f"{self._zookeeper.connect}/ottla"]
        with self._log.open("wb") as log:
            self._up = subprocess.Popen(
                [*OTTLA, "cluster", "up", *where, *overrides],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            until(self._is_up, "the cluster is up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.bootstrap = ",".join(broker.address for broker in ask_state(self._data).brokers)
        return self

    def _is_up(self) -> bool:
        assert self._up is not None
        said = self._log.read_text()
        assert self._up.poll() is None, said
        return f"{len(BROKERS)} brokers up" in said

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._zookeeper.servers:
            if server.process is not None and server.process.poll() is not None:
                server.launch()
        if self._up is not None:
            self._up.terminate()
            try:
                self._up.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._up.kill()
                self._up.wait()
                subprocess.run([*OTTLA, "cluster", "down", "--data", str(self._data)], check=False)
        self._zookeeper.stop()

    # -- faults -----------------------------------------------------------------------------

    def misfortune(self, chance: random.Random) -> None:
        broker = chance.choice(BROKERS)
        faults: dict[str, Callable[[], None]] = {
            f"kill {broker}": lambda: self._without(broker, "kill", chance.uniform(0, 3)),
            f"kill {broker} for long": lambda: self._without(broker, "kill", SESSION_MS / 750),
            f"stop {broker}": lambda: self._without(broker, "stop", chance.uniform(0, 2)),
            f"pause {broker}": lambda: self._pause(broker, chance.uniform(0.2, 3)),
            f"pause {broker} for long": lambda: self._pause(broker, SESSION_MS / 750),
            "kill everybody": self._kill_everybody,
            "kill the first of ZooKeeper": self._kill_zookeeper_leader,
            "restart one after the other": self._roll,
        }
        what = chance.choice(sorted(faults))
        self.faults.append(what)
        faults[what]()

    def _without(self, broker: int, how: str, seconds: float) -> None:
        self._take(broker, how)
        time.sleep(seconds)
        self._give_back(broker)

    def _pause(self, broker: int, seconds: float) -> None:
        self._take(broker, "pause")
        time.sleep(seconds)
        self._give_back(broker)

    def _kill_everybody(self) -> None:
        for broker in BROKERS:
            self._take(broker, "kill")
        for broker in BROKERS:
            self._give_back(broker)

    def _roll(self) -> None:
        for broker in BROKERS:
            self._without(broker, "stop", 0.0)

    def _kill_zookeeper_leader(self) -> None:
        for server in self._zookeeper.servers:
            if "Mode: leader" in ask(server.address, "srvr"):
                assert server.process is not None
                server.process.kill()
                server.process.wait()
                time.sleep(1.0)
                server.launch()
                return

    def _take(self, broker: int, how: str) -> None:
        self._away[broker] = "resume" if how == "pause" else "start"
        call(self._data, how, broker)

    def _give_back(self, broker: int) -> None:
        call(self._data, self._away[broker], broker)
        del self._away[broker]

    def heal(self) -> None:
        for broker in list(self._away):
            self._give_back(broker)
        states = {broker.id: broker.state for broker in ask_state(self._data).brokers}
        assert set(states.values()) == {"running"}, f"{states} after {self.faults}"

    def data_of(self, broker: int) -> Path:
        return self._data / f"broker-{broker}"
