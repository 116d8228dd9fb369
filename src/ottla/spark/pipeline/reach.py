"""Whether the brokers of a query answer: asked when it is to end, and its batch does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.spark.client_view import answers
from ottla.spark.listener import position_in


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

    def _answer(self, servers: str, places: list[TopicPartition]) -> bool:
        if servers not in self._away and not answers(self._client, servers, places):
            self._away.add(servers)
        return servers not in self._away
