"""What the tests do with a ZooKeeper: stores on it, a look from outside, sessions that end."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kazoo.client import KazooClient

from ottla.base.ports import Clock
from ottla.metadata.configs.zookeeper import ZooKeeperSettings
from ottla.metadata.store import StoreUnavailable
from ottla.runtime.clocks import SystemClock
from ottla.runtime.zookeeper_server import ServerAddress, ZooKeeperServers, ask
from ottla.runtime.zookeeper_store import ZooKeeperStore

SECONDS_MAX = 120.0
# Long enough for a process that gets no CPU for a while; tests end sessions, they do not wait.
SESSION_TIMEOUT_MS = 30_000
# kazoo's own waits twice as long after each failure, up to an hour.
RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 1, "max_delay": 1.0}


class ZooKeeper:
    def __init__(self, servers: ZooKeeperServers, chroot: str) -> None:
        self.servers = servers
        self.chroot = chroot
        self._stores: list[ZooKeeperStore] = []
        self._client: KazooClient | None = None

    @property
    def connect(self) -> str:
        return self.servers.connect + self.chroot

    def settings(self, hosts: str | None = None) -> ZooKeeperSettings:
        return ZooKeeperSettings(
            hosts=hosts or self.servers.connect,
            chroot=self.chroot,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            connection_timeout_ms=60_000,
        )

    def store(
        self,
        clock: Clock | None = None,
        hosts: str | None = None,
        directory: Path | None = None,
    ) -> ZooKeeperStore:
        place = None if directory is None else str(directory)
        store = ZooKeeperStore(self.settings(hosts), clock or SystemClock(), place)
        self._stores.append(store)
        return store

    @property
    def client(self) -> KazooClient:
        """A look from outside, below the chroot."""
        if self._client is None:
            self._client = KazooClient(self.connect, timeout=30.0, connection_retry=RECONNECT)
            self._client.start(60)
        return self._client

    def close(self) -> None:
        for store in self._stores:
            store.close()
        if self._client is not None:
            self._client.stop()
            self._client.close()

    # -- faults -----------------------------------------------------------------------------

    def expire(self, store: ZooKeeperStore) -> None:
        """Ends the store's session on the server, as its time-out would."""
        self.end_session(connection_of(store).client_id)

    def end_session(self, identity: tuple[int, bytes] | None) -> None:
        """Its owner takes it back as soon as it notices, and then nobody hears the thief's goodbye:
        so until a server knows of no such session, and gives out a new one."""
        assert identity is not None
        found: tuple[int, bytes] | None = identity
        while found is not None and found[0] == identity[0]:
            thief = KazooClient(self.servers.connect, timeout=30.0, client_id=identity)
            thief.start(60)
            found = thief.client_id
            thief.stop()
            thief.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No server does anything."""
        processes = [server.process for server in self.servers.servers]
        pids = [process.pid for process in processes if process is not None]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def watch_count(self) -> int:
        """On all servers, by everybody."""
        return sum(_watch_count(server.address) for server in self.servers.servers)


def _watch_count(server: ServerAddress) -> int:
    found: list[str] = []

    def answered() -> bool:
        # No word for two seconds is no answer at all: a busy server is asked again.
        found.extend(re.findall(r"zk_watch_count\s+(\d+)", ask(server, "mntr")))
        return bool(found)

    wait_until(answered, "how many watch")
    return int(found[0])


def connection_of(store: ZooKeeperStore) -> KazooClient:
    return store._connection.client


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        time.sleep(0.02)


def eventually(action: Callable[[], object], what: str) -> None:
    """Until the store is available for it."""

    def done() -> bool:
        with suppress(StoreUnavailable):
            action()
            return True
        return False

    wait_until(done, what)
