"""Seeds for tests that draw at random: the same for the same sources, others after every change.

A failure can be run again as long as nothing was edited, and each new version of the code meets new
cases without anybody thinking of it.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "ottla"
SUFFIXES = (".py", ".c", ".h")


@functools.cache
def _digest_of_sources() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        digest.update(str(path.relative_to(SOURCES)).encode())
        digest.update(path.read_bytes())
    return digest.digest()


def seed_for(name: str) -> int:
    """A seed for the test `name`, from the contents of all sources."""
    digest = hashlib.sha256(_digest_of_sources() + name.encode()).digest()
    return int.from_bytes(digest[:8], "big")
