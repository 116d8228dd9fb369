"""The addresses that a command connects to: reading them, and asking whether anybody is there.

The client library retries a refused connection until its time-out and then says little; a plain
connection first gives people the reason at once, with the address it was tried at.
"""

from __future__ import annotations

import socket

from ottla.cli.failure import Failure
from ottla.cli.model import Address

PORT_DEFAULT = 9092
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def parse_addresses(text: str) -> list[Address]:
    """`host:port,host:port`; raises ValueError with a message for people."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError("no address given: it should look like 127.0.0.1:9092")
    return addresses


def _parse_address(text: str) -> Address:
    # Kafka's own files write a listener as PLAINTEXT://host:port; people paste that.
    bare = text.rpartition("://")[2]
    host, colon, port = bare.rpartition(":")
    if not colon or bare.endswith("]"):
        host, port = bare, str(PORT_DEFAULT)
    bracketed = host.startswith("[") and host.endswith("]")
    host = host.removeprefix("[").removesuffix("]")
    # ::1 without brackets would be the host ":" with port 1.
    if (
        not host
        or (":" in host and not bracketed)
        or not (port.isascii() and port.isdigit())
        or not 0 < int(port) < 65536
    ):
        raise ValueError(f"{text!r} is no address: it should look like 127.0.0.1:9092")
    return Address(host, int(port))


def check_anybody_listens(addresses: list[Address], timeout_s: float) -> None:
    """Raises Failure with the reason when not one of the addresses accepts a connection."""
    reasons: list[str] = []
    for address in addresses:
        try:
            socket.create_connection(
                (address.host, address.port), timeout_s / len(addresses)
            ).close()
            return
        except socket.gaierror:
            reasons.append(f"the host name {address.host!r} cannot be resolved")
        except TimeoutError:
            reasons.append(f"{address} does not answer")
        except OSError:
            reasons.append(f"nothing answers at {address}")
    raise Failure(f"{', '.join(dict.fromkeys(reasons))}; {_advice(addresses)}")


def _advice(addresses: list[Address]) -> str:
    if any(address.host in LOOPBACK for address in addresses):
        return "start one with `ottla serve`"
    return "check --bootstrap-server (or OTTLA_BOOTSTRAP)"
