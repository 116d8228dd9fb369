"""What a case is: one load, the figures it gives, and what they have to reach.

A figure is compared as Ottla's value divided by Kafka's of the same round, unless it already is a
ratio of a broker to itself (`own`), such as a latency with and without something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.side import Side
    from bench.sizes import Sizes

Figures = Mapping[str, float]

MAIN = "main"
CROWDED = "crowded"
RELOAD = "reload"
CLUSTER = "cluster"
# In this order: what needs a broker beside the main one comes when the others have their figures.
BLOCKS = (MAIN, CROWDED, RELOAD, CLUSTER)


@dataclass(frozen=True)
class Figure:
    key: str
    label: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    own: bool = False

    def target(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    def is_reached_by(self, ratio: float) -> bool | None:
        """None where nothing has to be reached."""
        if self.at_least is not None:
            return ratio >= self.at_least
        return None if self.at_most is None else ratio <= self.at_most


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    issue: int
    figures: tuple[Figure, ...]
    run: Callable[[Side, Sizes], Figures]
    needs_api: int | None = None  # an API key; without it the broker cannot be asked this yet
    block: str = MAIN


def throughput(at_least: float | None = None) -> Figure:
    return Figure("mb_per_s", "throughput", "MB/s", at_least=at_least)


def cpu_per_gib(at_most: float | None = None) -> Figure:
    return Figure("cpu_s_per_gib", "broker CPU", "s/GiB", at_most=at_most)
