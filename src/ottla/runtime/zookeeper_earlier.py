"""The session of an earlier life: ended at once by the next start, not after its time-out.

A broker that was killed is on record as alive until its session times out, and nobody may register
under its id before. So a broker keeps the name of its session in its data directory; whoever holds
the lock on that directory knows that the broker before it is dead, and may say so.

The file counts only where it was written: in the same directory (by its inode, so a copy of the
data can't end the original's session) and since the same start of the machine. Whatever is wrong
with it, the broker waits for the time-out instead.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path

from kazoo.client import KazooClient

from ottla.metadata.configs.zookeeper import ZooKeeperSettings
from ottla.runtime.zookeeper_connection import ClientLog
from ottla.runtime.zookeeper_socket import Sockets

log = logging.getLogger("ottla.zookeeper")

FILE_NAME = "ottla.zookeeper.session"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CONNECT_SECONDS_MAX = 5.0

Identity = tuple[int, bytes]
"""A session's number and its password."""


class SessionFile:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = Path(directory) / FILE_NAME

    def keep(self, identity: Identity) -> None:
        """Never worth a failed start: a full disk has its own alarm."""
        number, password = identity
        document = {**self._place(), "session": number, "password": password.hex()}
        fresh = self._path.with_suffix(".new")
        try:
            # Who has the password could end the session.
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(document, file)
            fresh.replace(self._path)
        except OSError as failure:
            log.warning("%s could not be written: %s", self._path, failure)

    def read(self) -> Identity | None:
        try:
            document = json.loads(self._path.read_bytes())
            identity = int(document.pop("session")), bytes.fromhex(document.pop("password"))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return identity if document == self._place() else None

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _place(self) -> dict[str, object]:
        directory = os.stat(self._directory)
        boot_id = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
        return {"boot_id": boot_id, "directory": [directory.st_dev, directory.st_ino]}


def end_session(settings: ZooKeeperSettings, identity: Identity) -> None:
    """Takes the session over and closes it. One that has ended already becomes a new one, and that
    is closed."""
    client = KazooClient(
        hosts=settings.hosts,
        timeout=settings.session_timeout_ms / 1000,
        client_id=identity,
        handler=Sockets(settings, lambda: None),
        auth_data=[("digest", settings.digest)] if settings.digest else None,
        logger=ClientLog(lambda granted_ms: None),
    )
    connected = client.start_async()
    if connected.wait(CONNECT_SECONDS_MAX):
        log.info("the session of this broker's earlier life is ended: %#x", identity[0])
    client.stop()
    client.close()
