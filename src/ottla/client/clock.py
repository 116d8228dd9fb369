"""The one place of the client that looks at clocks and throws dice; shells tell the core."""

from __future__ import annotations

import random
import time
import uuid

# Our own: who has seeded Python's gets the same numbers with or without a client beside it.
_dice = random.Random()


def monotonic_ms() -> float:
    return time.monotonic() * 1000.0


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def chance() -> float:
    return _dice.random()


def new_id() -> str:
    return str(uuid.uuid4())


def nonce() -> str:
    """A text that nobody can guess."""
    return f"{random.SystemRandom().getrandbits(192):048x}"
