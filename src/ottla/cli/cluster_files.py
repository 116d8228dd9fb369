"""What a cluster on this machine leaves in its directory for the other commands to find.

`cluster.json` says which processes there are; `control` is the socket at which the one in the
foreground takes commands; whoever holds the lock on `cluster.lock` is that one. A socket's path may
be no longer than 107 bytes, which directories of tests and people exceed: it is reached through the
directory's own descriptor.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ottla.cli.failure import Failure

STATE_FILE = "cluster.json"
LOCK_FILE = "cluster.lock"
SOCKET_FILE = "control"


@dataclass(slots=True)
class BrokerState:
    """`pid` is None while no process runs; `state` is starting, running, paused or stopped."""

    id: int
    address: str
    pid: int | None
    data_dir: str
    state: str


@dataclass(slots=True)
class ClusterState:
    pid: int
    brokers: list[BrokerState]
    zookeeper: list[str]
    zookeeper_pids: list[int]

    def document(self) -> dict[str, Any]:
        return asdict(self)


def read_state(directory: Path) -> ClusterState | None:
    """None where there has been no cluster yet."""
    path = directory / STATE_FILE
    try:
        document = json.loads(path.read_bytes())
        brokers = [BrokerState(**broker) for broker in document.pop("brokers")]
        return ClusterState(brokers=brokers, **document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as cause:
        raise Failure(f"{path} cannot be read: {cause}") from cause


def write_state(directory: Path, state: ClusterState) -> None:
    path = directory / STATE_FILE
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(state.document(), indent=2) + "\n")
    fresh.replace(path)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One cluster for each directory; the lock goes with the process that holds it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"a cluster runs in {directory} already") from None
        yield


@contextmanager
def socket_path(directory: Path) -> Iterator[str]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_FILE}"
    finally:
        os.close(descriptor)


def is_ours(pid: int, data_dir: str) -> bool:
    """Whether the process is what `cluster up` started there, and not another with its number."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return data_dir in command
