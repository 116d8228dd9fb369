"""Peers on the same machine: no network to share with anybody, so nothing to pace.

Where the system's congestion control paces what is sent (BBR), timers of the kernel hand it over in
small pieces. Over loopback that doubles the broker's processor time for readers and spares nobody
anything (docs/internals/performance.md), so a client on this machine is sent to without it.

Except librdkafka: with its default settings it stops to fetch for a second when its queue is full
(`fetch.queue.backoff.ms`), so what comes faster than its application reads arrives later.
"""

from __future__ import annotations

import socket

_PACED = b"bbr"
_UNPACED = b"reno"  # part of every kernel, and open to everybody
_NAME_BYTES_MAX = 16
_BETTER_PACED = "rdkafka"


def is_nearby(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


def wants_pace(software_name: str, software_version: str) -> bool:
    """Of whoever is built on librdkafka, name or version says so."""
    return _BETTER_PACED in software_name or _BETTER_PACED in software_version


def send_unpaced(connected: socket.socket) -> bool:
    """Whether anything has changed; where that is not possible or not needed, nothing has."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None:
        return False
    try:
        if not connected.getsockopt(socket.IPPROTO_TCP, option, _NAME_BYTES_MAX).startswith(_PACED):
            return False
        connected.setsockopt(socket.IPPROTO_TCP, option, _UNPACED)
    except OSError:
        return False
    return True
