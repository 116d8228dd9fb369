"""How long to wait before the next attempt: exponential, bounded, with 20% of jitter (KIP-580).

Chance comes in as a number, so that the same history gives the same waits.
"""

from __future__ import annotations

_RATIO = 2.0
_JITTER = 0.2


def backoff_ms(first_ms: float, most_ms: float, failures: int, chance: float) -> float:
    """Before the attempt that follows `failures` failed ones (1 or more); `chance` is in [0, 1)."""
    exponent = min(max(failures - 1, 0), 30)
    plain_ms = min(first_ms * _RATIO**exponent, max(first_ms, most_ms))
    return plain_ms * (1 - _JITTER + 2 * _JITTER * chance)
