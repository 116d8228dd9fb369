"""The ZooKeeper that a cluster on this machine brings along."""

from __future__ import annotations

from pathlib import Path

from ottla.base.errors import OttlaError
from ottla.cli.failure import Failure
from ottla.runtime.zookeeper_server import ZooKeeperServers


class OwnZooKeeper:
    """Blocks: whoever has an event loop calls it from a thread."""

    def __init__(self, directory: Path) -> None:
        self._servers = ZooKeeperServers(directory)

    def start(self) -> None:
        try:
            self._servers.start()
        except (OttlaError, OSError) as cause:
            raise Failure(str(cause)) from cause

    def stop(self) -> None:
        self._servers.stop()

    def revive(self) -> list[str]:
        """Starts again what has ended by itself; its addresses."""
        ended = [
            server
            for server in self._servers.servers
            if server.process is not None and server.process.poll() is not None
        ]
        for server in ended:
            server.launch()
        return [str(server.address) for server in ended]

    @property
    def connect(self) -> str:
        return self._servers.connect

    def pids(self) -> list[int]:
        processes = [server.process for server in self._servers.servers]
        return [process.pid for process in processes if process is not None]
