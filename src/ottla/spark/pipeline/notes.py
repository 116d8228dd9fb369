"""What an engine notes of its queries: which flows each is made of, and which sink it has.

By the name of their checkpoints. The next engine sees whether it may go on from one, and a reset,
which runs without Spark, sees which sinks belong to it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class QueryNote:
    """`sink` is its sinkId, `servers` the brokers that the sink names itself; both may be empty."""

    flows: tuple[str, ...]
    sink: str = ""
    servers: str = ""


class QueryNotes:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, QueryNote]:
        try:
            given = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        return {
            name: QueryNote(tuple(one["flows"]), one["sink"], one["servers"])
            for name, one in given.items()
        }

    def add(self, name: str, note: QueryNote) -> None:
        found = {**self.read(), name: note}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        draft.write_text(json.dumps({one: asdict(note) for one, note in sorted(found.items())}))
        draft.replace(self._path)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
