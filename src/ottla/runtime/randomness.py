"""The system's chance, behind the port."""

from __future__ import annotations

import os
import random


class SystemRandom:
    __slots__ = ("_generator",)

    def __init__(self) -> None:
        self._generator = random.Random()

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        return self._generator.uniform(low, high)
