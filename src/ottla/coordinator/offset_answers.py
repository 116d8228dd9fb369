"""The order in which answers about offsets name their topics: Kafka's.

Kafka looks first whether there is what a request names, and asks the group about the rest. So what
there is not comes first, and the rest is added to it: a topic of which a part is not there is named
once, one without partitions not at all.
"""

from __future__ import annotations

from collections.abc import Hashable

from ottla.coordinator.shard import Fields


class OffsetAnswers:
    def __init__(self) -> None:
        self._unknown: dict[Hashable, Fields] = {}
        self._decided: list[tuple[Hashable, Fields]] = []

    def add_unknown(self, key: Hashable, topic: Fields, partitions: list[Fields]) -> None:
        told = self._unknown.setdefault(key, topic | {"partitions": []})
        told["partitions"] += partitions

    def add(
        self, key: Hashable, topic: Fields, unknown: list[Fields], decided: list[Fields]
    ) -> None:
        """`topic` is there, its partitions `unknown` are not."""
        if unknown:
            self.add_unknown(key, topic, unknown)
        if decided:
            self._decided.append((key, topic | {"partitions": decided}))

    def topics(self) -> list[Fields]:
        if not self._unknown:
            return [topic for _, topic in self._decided]
        told = dict(self._unknown)
        for key, topic in self._decided:
            if key in told:
                told[key]["partitions"] += topic["partitions"]
            else:
                told[key] = topic
        return list(told.values())
