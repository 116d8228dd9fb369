"""How fast replicas that catch up may copy: a rate over those that a topic names (KIP-73).

Owns a budget of bytes that fills with time, up to one second's worth, and may be overdrawn by one
answer. Replicas in the in-sync set are never held back: the caller asks only for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

EVERYBODY = "*"
_PAIR = re.compile(r"[0-9]+:[0-9]+")


class Throttle:
    __slots__ = ("_budget", "_filled_ms", "_rate", "_replicas", "is_on")

    def __init__(self) -> None:
        self._rate = 0
        self._budget = 0.0
        self._filled_ms = 0
        self._replicas: Mapping[str, frozenset[tuple[int, int]] | None] = {}
        self.is_on = False

    def set_rate(self, bytes_per_second: int | None, now_ms: int) -> bool:
        """None: as fast as they can. Whether it was another rate: then whoever was told to wait is
        to ask again."""
        rate = 0 if bytes_per_second is None else max(bytes_per_second, 1)
        if rate == self._rate:
            return False
        self._rate = rate
        self._budget = float(rate)
        self._filled_ms = now_ms
        self._settle()
        return True

    def set_replicas(self, listed: Mapping[str, Iterable[str]]) -> bool:
        """By topic: "*", or items "partition:broker", as in the topic's settings. Whether others
        were named before, as with `set_rate`.

        What is neither names nobody. Kafka lets items be empty, and the settings of a cluster may
        have been written by others: a broker must not fall over them.
        """
        replicas: dict[str, frozenset[tuple[int, int]] | None] = {}
        for topic, items in listed.items():
            named = list(items)
            if EVERYBODY in named:
                replicas[topic] = None
            elif pairs := frozenset(map(_pair, filter(_PAIR.fullmatch, named))):
                replicas[topic] = pairs
        if replicas == self._replicas:
            return False
        self._replicas = replicas
        self._settle()
        return True

    def applies(self, topic: str, partition: int, broker_id: int) -> bool:
        if topic not in self._replicas:
            return False
        named = self._replicas[topic]
        return named is None or (partition, broker_id) in named

    def spend(self, size: int, now_ms: int) -> None:
        self._fill(now_ms)
        self._budget -= size

    def wait_ms(self, now_ms: int) -> int:
        """How long until there is a budget again; 0 if there is."""
        if not self._rate:
            return 0
        self._fill(now_ms)
        if self._budget > 0:
            return 0
        return int(-self._budget * 1000 / self._rate) + 1

    def _fill(self, now_ms: int) -> None:
        earned = (now_ms - self._filled_ms) * self._rate / 1000
        self._budget = min(self._budget + earned, float(self._rate))
        self._filled_ms = now_ms

    def _settle(self) -> None:
        self.is_on = bool(self._rate and self._replicas)


def _pair(item: str) -> tuple[int, int]:
    partition, _, broker_id = item.partition(":")
    return int(partition), int(broker_id)
