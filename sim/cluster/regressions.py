"""The seeds that have failed once, from `sim/regressions.txt`."""

from __future__ import annotations

from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "regressions.txt"


def _read() -> list[int]:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


REGRESSIONS = _read()
