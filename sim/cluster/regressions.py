"""The seeds that have failed once, from `sim/regressions.txt`."""

from __future__ import annotations

from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "regressions.txt"


def _read() -> list[tuple[int, bool]]:
    """Seeds, and whether they are rough."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [(int(first), second == "rough") for first, second, *_ in words]


REGRESSIONS = _read()
