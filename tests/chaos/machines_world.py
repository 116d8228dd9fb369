"""Three machines (`machines`), each with a ZooKeeper server and a broker, set up as
docs/guide/cluster.md says: with the very files that stand there, but for names and places.

Here the ensemble itself is divided: a server that the others do not hear, with brokers that go on
talking to it, and servers none of which hears another, so that nobody decides anything.
"""

from __future__ import annotations

import random
import re
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from ottla.runtime.zookeeper_server import server_command
from tests.chaos.machines import NETWORKS, Machines
from tests.chaos.troubled_cluster import BROKERS, SESSION_MS, SETTINGS, TroubledCluster
from tests.cluster.waiting import until
from tests.compat.nodes import OTTLA, REPOSITORY, ProcessNode

CLIENT_PORT = 2181
PROBE_SECONDS_MAX = 2.0
LONG_S = SESSION_MS / 750
"""Longer than a session lasts, and than a replica may lag."""

ZOO_CFG_BESIDES = """\
tickTime=500
initLimit=40
syncLimit=20
minSessionTimeout=1000
maxSessionTimeout=600000
admin.enableServer=false
forceSync=no
preAllocSize=16384
"""


def steps() -> tuple[str, str]:
    """A zoo.cfg and a server.properties, as the guide has them."""
    page = (REPOSITORY / "docs" / "guide" / "cluster.md").read_text()
    section = page.partition("\n## On several machines\n")[2].partition("\n## ")[0]
    zoo_cfg, properties, *_ = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return zoo_cfg, properties


class Server(ProcessNode):
    """One of ZooKeeper. Ready means launched: whom it can ask for is the network's matter."""

    def __init__(self, directory: Path, host: str, command: list[str]) -> None:
        super().__init__(directory)
        self._host = host
        self._command = command

    def command(self) -> list[str]:
        return self._command

    def ready_mark(self) -> str:
        return ""

    def is_serving(self) -> bool:
        """It belongs to a majority."""
        try:
            with socket.create_connection((self._host, CLIENT_PORT), PROBE_SECONDS_MAX) as line:
                line.settimeout(PROBE_SECONDS_MAX)
                line.sendall(b"srvr")
                return b"Mode:" in b"".join(iter(lambda: line.recv(4096), b""))
        except OSError:
            return False


class Broker(ProcessNode):
    def __init__(self, directory: Path, host: str, command: list[str]) -> None:
        super().__init__(directory)
        self._host = host
        self._command = command

    @property
    def bootstrap(self) -> str:
        return f"{self._host}:9092"

    def command(self) -> list[str]:
        return self._command

    def ready_mark(self) -> str:
        return f"listening on {self.bootstrap}"


class MachinesWorld(TroubledCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._machines = Machines(BROKERS)
        self._servers: dict[int, Server] = {}
        self._nodes: dict[int, Broker] = {}
        self._ending = ExitStack()

    def __enter__(self) -> MachinesWorld:
        with ExitStack() as stack:
            stack.callback(self._machines.remove)
            self._machines.make()
            for number in BROKERS:
                self._servers[number] = self._server(number)
                stack.callback(end_somehow, self._servers[number])
            for server in self._servers.values():
                server.start()
            for server in self._servers.values():
                until(server.is_serving, "an ensemble of three")
            for number in BROKERS:
                self._nodes[number] = self._broker(number)
                stack.callback(end_somehow, self._nodes[number])
                self._nodes[number].start()
            self.bootstrap = ",".join(node.bootstrap for node in self._nodes.values())
            self._ending = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.close()

    def _server(self, number: int) -> Server:
        directory = self._directory / f"zoo{number}"
        data = directory / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{number}\n")
        text = self._by_address(steps()[0], self._machines.host_of_server)
        config = directory / "zoo.cfg"
        config.write_text(f"{text}{ZOO_CFG_BESIDES}dataDir={data}\n")
        command = self._machines.command(number, server_command(config))
        return Server(directory, self._machines.host(number), command)

    def _broker(self, number: int) -> Broker:
        directory = self._directory / f"broker{number}"
        directory.mkdir()
        _, text = steps()
        # "Only node.id and the host differ".
        text = text.replace("node.id=1", f"node.id={number}").replace("broker1", f"broker{number}")
        text = self._by_address(text, self._machines.host)
        text = text.replace("/var/lib/ottla", str(directory / "data"))
        text += "".join(f"{key}={value}\n" for key, value in SETTINGS.items())
        properties = directory / "server.properties"
        properties.write_text(text)
        command = self._machines.command(number, [str(OTTLA), "serve", str(properties)])
        return Broker(directory, self._machines.host(number), command)

    def _by_address(self, text: str, address_of: Callable[[int], str]) -> str:
        """These machines have no names."""
        return re.sub(r"\b(?:zoo|broker)([1-3])\b", lambda found: address_of(int(found[1])), text)

    def data_of(self, broker: int) -> Path:
        return self._nodes[broker].data

    # -- faults -----------------------------------------------------------------------------

    def misfortune(self, chance: random.Random) -> None:
        one = chance.choice(BROKERS)
        lasts_s = chance.choice((1.0, 3.0, LONG_S)) * chance.uniform(0.5, 1.5)
        faults: dict[str, Callable[[], None]] = {
            f"machine {one} off all networks": lambda: self._without(
                [(one, network) for network in NETWORKS], lasts_s
            ),
            f"brokers do not reach machine {one}": lambda: self._without(
                [(one, "clients")], lasts_s
            ),
            f"ZooKeeper without server {one}": lambda: self._without([(one, "servers")], lasts_s),
            "ZooKeeper's servers all apart": lambda: self._without(
                [(each, "servers") for each in BROKERS], lasts_s
            ),
            f"ZooKeeper's server {one} killed": lambda: self._killed(self._servers[one], lasts_s),
            f"broker {one} killed": lambda: self._killed(self._nodes[one], lasts_s),
        }
        what = chance.choice(sorted(faults))
        self.faults.append(f"{what} for {lasts_s:.1f} s")
        faults[what]()

    def _without(self, cables: list[tuple[int, str]], lasts_s: float) -> None:
        for number, network in cables:
            self._machines.pull(number, network)
        time.sleep(lasts_s)
        self._machines.heal()

    def _killed(self, served: ProcessNode, lasts_s: float) -> None:
        served.kill()
        time.sleep(lasts_s)
        served.start()

    def heal(self) -> None:
        nodes: list[ProcessNode] = [*self._nodes.values(), *self._servers.values()]
        for node in nodes:
            is_running = node.process is not None and node.process.poll() is None
            assert is_running, f"after {self.faults}: {node.log_tail()}"


def end_somehow(node: ProcessNode) -> None:
    """Whatever state it is in."""
    if node.process is not None:
        node.kill()
