"""Whether the brokers of a query answer: asked when it is to end, and its batch does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.spark.client_view import ClientView
from ottla.spark.decisions import TOPIC
from ottla.spark.listener import position_in
from ottla.spark.option_values import LATEST
from ottla.spark.source_options import Subscription

# A broker that needs longer than that for a word is not one to wait for.
PATIENCE_MS = 3_000


class Reach:
    """`servers` are the brokers of a query that has not said yet which it reads from."""

    def __init__(self, client: Mapping[str, str], servers: str) -> None:
        self._client = dict(client)
        self._servers = servers
        # Queries are ended one after the other, and all have to be prompt.
        self._away: set[str] = set()

    def has(self, query: Any) -> bool:
        """Also where nobody knows which brokers it has."""
        asked: dict[str, list[TopicPartition]] = {}
        last = query.lastProgress
        for source in last["sources"] if last is not None else ():
            position = position_in(source["endOffset"])
            if position is not None:
                asked.setdefault(position.servers or self._servers, []).extend(
                    position.next_offsets
                )
        if not asked and self._servers:
            asked[self._servers] = []
        return all(self._answer(servers, places) for servers, places in asked.items())

    def _answer(self, servers: str, places: Iterable[TopicPartition]) -> bool:
        if servers in self._away:
            return False
        settings = {
            **self._client,
            "bootstrap.servers": servers,
            "request.timeout.ms": str(PATIENCE_MS),
            "default.api.timeout.ms": str(PATIENCE_MS),
        }
        try:
            view = ClientView(settings)
            try:
                view.topics(Subscription((TOPIC,)))
                view.offsets(dict.fromkeys(places, LATEST))
            finally:
                view.close()
        except OttlaError:
            self._away.add(servers)
            return False
        return True
