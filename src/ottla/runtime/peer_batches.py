"""Questions to other brokers, several in one request: what comes while one is under way goes next.

Owns the queue for each broker and its bound. Knows nothing of what is asked: how a batch is packed
and what an answer means is told. Whoever asked hears of an answer or of a loss, once; nothing is
asked again here, since only the asker knows whether it still wants to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, Generic, Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import MalformedRequest, PeerLost
from ottla.protocol.messages import decode_response, encode_request
from ottla.runtime.peers import Peers

ITEMS_PER_REQUEST_MAX = 500
WAITING_MAX = 100_000

Item = TypeVar("Item")


class Packing(Protocol[Item]):
    """One kind of question. `key_of`: two with the same key are not asked in one request."""

    api_key: int
    version: int
    purpose: str
    """Of the connection: what waits long there must not hold up other kinds of questions."""

    def key_of(self, item: Item) -> Hashable: ...
    def pack(self, items: list[Item]) -> dict[str, Any]: ...
    def on_answer(self, items: list[Item], answer: Any) -> None: ...
    def on_lost(self, items: list[Item]) -> None: ...


class PeerBatches(Generic[Item]):
    def __init__(self, peers: Peers, packing: Packing[Item]) -> None:
        self._peers = peers
        self._packing = packing
        self._waiting: dict[int, deque[Item]] = {}
        self._busy: set[int] = set()

    def put(self, broker_id: int, item: Item) -> None:
        waiting = self._waiting.setdefault(broker_id, deque())
        if len(waiting) >= WAITING_MAX:
            self._packing.on_lost([item])
            return
        waiting.append(item)
        self._next(broker_id)

    def _next(self, broker_id: int) -> None:
        # In a loop and not by the answer alone: a broker that can't be reached is lost at once.
        while broker_id not in self._busy and self._waiting.get(broker_id):
            self._send(broker_id, self._take(broker_id))

    def _take(self, broker_id: int) -> list[Item]:
        batch: dict[Hashable, Item] = {}
        left: deque[Item] = deque()
        waiting = self._waiting.pop(broker_id)
        while waiting and len(batch) < ITEMS_PER_REQUEST_MAX:
            item = waiting.popleft()
            if batch.setdefault(self._packing.key_of(item), item) is not item:
                left.append(item)
        left.extend(waiting)
        if left:
            self._waiting[broker_id] = left
        return list(batch.values())

    def _send(self, broker_id: int, items: list[Item]) -> None:
        packing = self._packing
        self._busy.add(broker_id)
        body = encode_request(packing.api_key, packing.version, packing.pack(items))

        def answered(outcome: Deferred[memoryview]) -> None:
            self._busy.discard(broker_id)
            try:
                answer = decode_response(packing.api_key, packing.version, outcome.result())
            except (PeerLost, MalformedRequest):
                packing.on_lost(items)
            else:
                packing.on_answer(items, answer)
            self._next(broker_id)

        asked = self._peers.request(
            broker_id, packing.purpose, packing.api_key, packing.version, body
        )
        asked.when_done(answered)
