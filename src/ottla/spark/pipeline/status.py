"""What a running pipeline is doing, as a file: the engine writes it, everybody else reads it.

Written whole and renamed into place, so that no reader sees a half.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STARTING, RUNNING, PAUSED, FAILING, DONE, STOPPED = (
    "starting",
    "running",
    "paused",
    "failing",
    "done",
    "stopped",
)
_WRITE_EVERY_MS = 200


@dataclass(slots=True)
class FlowStatus:
    """Of the last batch, except for `rows` and `batches`, which count since the start."""

    target: str
    batch: int = -1
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    # Records of its topics that it has not read; None where it reads no topic, and where nobody has
    # asked yet: a batch that is done again after a restart has its end from the checkpoint.
    lag: int | None = None
    watermark: str = ""
    groups: list[str] = field(default_factory=list)
    expectations: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Status:
    pipeline: str
    state: str = STARTING
    pid: int = 0
    started_ms: int = 0
    updated_ms: int = 0
    restarts: int = 0
    error: str = ""
    # When the next attempt begins, while it is failing.
    next_try_ms: int = 0
    views: dict[str, int] = field(default_factory=dict)
    flows: dict[str, FlowStatus] = field(default_factory=dict)


class StatusFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_ms = 0

    def write(self, status: Status, *, now: bool = False) -> None:
        """Not more often than people can look; `now` for what must not wait."""
        at = now_ms()
        if not now and at - self._written_ms < _WRITE_EVERY_MS:
            return
        status.updated_ms = at
        self._written_ms = at
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(status)))
        draft.replace(self._path)

    def read(self) -> Status | None:
        try:
            given = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        return status_of(given)


def status_of(given: Mapping[str, Any]) -> Status:
    flows = {name: FlowStatus(**one) for name, one in given["flows"].items()}
    return Status(**{**given, "flows": flows})


def now_ms() -> int:
    return time.time_ns() // 1_000_000
