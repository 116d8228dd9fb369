"""The other brokers of the cluster, as this one reaches them: by the inter-broker listener.

Owns one connection for each peer and purpose, so that a fetch that waits holds up nothing else.
Where a broker is, the image says; when it is somewhere else, or dead, its connections end. Knows
sockets only through the port that makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.base.deferred import Deferred
from ottla.base.errors import PeerLost
from ottla.metadata.image import MetadataImage

Address = tuple[str, int]


class Peer(Protocol):
    """One connection, made when it is first used; see `net.peer_client`."""

    def request(self, api_key: int, version: int, body: bytes) -> Deferred[memoryview]:
        """The body of the answer, good until the callback returns; or PeerLost."""
        ...

    def close(self) -> None: ...


class Peers:
    """`connect` makes a Peer for an address and a purpose."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        listener_name: str,
        connect: Callable[[Address, str], Peer],
    ) -> None:
        self._image = image
        self._listener_name = listener_name
        self._connect = connect
        self._peers: dict[tuple[int, str], tuple[Address, Peer]] = {}
        self._is_closed = False

    def request(
        self, broker_id: int, purpose: str, api_key: int, version: int, body: bytes
    ) -> Deferred[memoryview]:
        address = None if self._is_closed else self._address_of(broker_id)
        if address is None:
            lost: Deferred[memoryview] = Deferred()
            lost.fail(PeerLost(f"broker {broker_id} can't be reached"))
            return lost
        key = (broker_id, purpose)
        known = self._peers.get(key)
        if known is not None and known[0] != address:
            self._peers.pop(key)[1].close()
            known = None
        if known is None:
            known = self._peers[key] = address, self._connect(address, purpose)
        return known[1].request(api_key, version, body)

    def close(self, broker_id: int | None = None, purpose: str | None = None) -> None:
        """Ends connections; whoever waits for an answer hears of it. All of them: for good, since
        who hears of it may ask for what is next, on a connection that nobody would ever end."""
        if broker_id is None and purpose is None:
            self._is_closed = True
        for key in list(self._peers):
            if broker_id in (None, key[0]) and purpose in (None, key[1]):
                self._peers.pop(key)[1].close()

    def _address_of(self, broker_id: int) -> Address | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(self._listener_name)
