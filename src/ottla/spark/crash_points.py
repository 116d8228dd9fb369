"""Places where a test may let a process die: named in the environment, silent otherwise.

OTTLA_SPARK_CRASH names a directory. Its file `plan` is `point`, `point@batch` or several of them
with commas, each with an action after a colon: `kill` (the process kills itself, as a lost executor
does), `stall` (it waits until its mark or the plan is taken away, while the test kills whom it
likes) or `raise`. Each happens once: a file `point` says that it has.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from ottla.spark.errors import SparkError

POINTS = (
    "task-mid-read",
    "task-mid-write",
    "task-prepared",
    "before-claim",
    "before-decision",
    "after-decision",
    "after-first-end",
    "after-commit",
)
_LOOK_SECONDS = 0.05


def is_armed() -> bool:
    return "OTTLA_SPARK_CRASH" in os.environ


def crash_point(name: str, batch: int) -> None:
    directory = os.environ.get("OTTLA_SPARK_CRASH")
    if directory is None:
        return
    plan = Path(directory) / "plan"
    for entry in _entries(plan):
        where, _, action = entry.strip().partition(":")
        point, _, number = where.partition("@")
        if point == name and (not number or int(number) == batch):
            _crash(Path(directory) / name, plan, action)


def _entries(plan: Path) -> list[str]:
    try:
        return plan.read_text().split(",")
    except FileNotFoundError:
        return []


def _crash(mark: Path, plan: Path, action: str) -> None:
    name = mark.name
    try:
        # Whole at once: who sees the mark can read in it who waits.
        draft = mark.with_name(f"{name}.{os.getpid()}")
        draft.write_text(str(os.getpid()))
        os.link(draft, mark)
    except FileExistsError:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "raise":
        raise SparkError(f"crash point {name}")
    # Nobody takes away the mark of one who read the plan just before it was taken away.
    while mark.exists() and plan.exists():
        time.sleep(_LOOK_SECONDS)
