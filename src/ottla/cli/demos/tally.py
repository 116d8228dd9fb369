"""How often every group got every record: the figures of a story about delivery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.cli.demos.member import Delivery


@dataclass(slots=True)
class Figures:
    groups: int
    once: int
    twice: int
    never: int


class Tally:
    def __init__(self) -> None:
        self._counts: dict[str, Counter[tuple[int, int]]] = {}

    def expect(self, group: str, records: Iterable[tuple[int, int]]) -> None:
        """These (partition, offset) were there for the group to read."""
        counts = self._counts.setdefault(group, Counter())
        for record in records:
            counts[record] += 0

    def add(self, group: str, deliveries: Iterable[Delivery]) -> None:
        counts = self._counts.setdefault(group, Counter())
        for delivery in deliveries:
            counts[delivery.partition, delivery.offset] += 1

    def figures(self) -> Figures:
        """`twice`: or more often."""
        times = [count for counts in self._counts.values() for count in counts.values()]
        return Figures(
            groups=len(self._counts),
            once=sum(count == 1 for count in times),
            twice=sum(count > 1 for count in times),
            never=sum(count == 0 for count in times),
        )
