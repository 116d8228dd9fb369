"""Ports for servers that tests start, each for one test process alone as long as that runs.

A port that the kernel chose and that is free again may be anybody's by the time a server binds it,
another test's client included. So these are below the range that the kernel takes ports from, and
each is held by a lock that ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

FIRST = 10_240
LEASES = Path(tempfile.gettempdir()) / f"ottla-test-ports-{os.getuid()}"

_held: list[IO[bytes]] = []


def free_port() -> int:
    """One that nobody listens on, and that no other test process will be given."""
    LEASES.mkdir(exist_ok=True)
    behind = _first_port_of_the_kernel()
    # By the number of the process, so that those that run side by side begin far apart.
    start = os.getpid() * 97 + len(_held)
    for step in range(behind - FIRST):
        port = FIRST + (start + step) % (behind - FIRST)
        if _is_free(port) and _lease(port):
            return port
    raise AssertionError(f"no port from {FIRST} to {behind} is free")


def _first_port_of_the_kernel() -> int:
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    low, high = (int(word) for word in text.split())
    # Where the kernel takes nearly all, so do we: then a clash is as unlikely as it gets.
    return low if low > FIRST + 1000 else high


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # The address is not to be shared: a port that a cluster holds for a broker is not free.
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _lease(port: int) -> bool:
    lease = (LEASES / str(port)).open("wb")
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lease.close()
        return False
    _held.append(lease)
    return True
