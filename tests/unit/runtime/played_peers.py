"""Other brokers as a test plays them: it sees each request decoded and answers when it likes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.base.deferred import Deferred
from ottla.base.errors import PeerLost
from ottla.protocol.messages import decode_request, encode_response


class Played(NamedTuple):
    broker_id: int
    purpose: str
    api_key: int
    version: int
    request: Any
    deferred: Deferred[memoryview]

    def answer(self, **fields: Any) -> None:
        body = encode_response(self.api_key, self.version, fields)
        self.deferred.resolve(memoryview(body))

    def lose(self) -> None:
        self.deferred.fail(PeerLost("gone"))


class PlayedPeers:
    def __init__(self) -> None:
        self.asked: list[Played] = []
        self.unreachable: set[int] = set()

    def request(
        self, broker_id: int, purpose: str, api_key: int, version: int, body: bytes
    ) -> Deferred[memoryview]:
        played = Played(
            broker_id, purpose, api_key, version, decode_request(api_key, version, body), Deferred()
        )
        if broker_id in self.unreachable:
            played.lose()
        else:
            self.asked.append(played)
        return played.deferred

    def close(self, broker_id: int | None = None, purpose: str | None = None) -> None:
        """Nothing is open."""
