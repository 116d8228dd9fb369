"""`ottla.moves` in a partition's directory: how often the replica has changed its log dir.

A move ends with the new directory taking its proper name, and after that the old one loses it. Who
starts after a crash in between finds two; the one that has moved more often is the later. It holds
everything, since it got its name only then.
"""

from __future__ import annotations

from ottla.base.ports import Files
from ottla.log.storage_errors import storing

NAME = "ottla.moves"


def read_moves(files: Files, directory: str) -> int:
    """None is 0, and so is what is no number: it was synced before it counted."""
    path = f"{directory}/{NAME}"
    with storing(path, "read"):
        if not files.exists(path):
            return 0
        content = files.read(path)
    return int(content) if content.strip().isdigit() else 0


def encode(moves: int) -> bytes:
    return b"%d\n" % moves
