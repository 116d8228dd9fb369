"""Places where a test may let the sink die: named in the environment, silent otherwise.

OTTLA_SPARK_CRASH is `point`, `point@batch` or several of them with commas, each with an action
after a colon: `kill` (the process kills itself, as a lost executor does), `stall` (it waits until
its mark is taken away, while the test kills whom it likes) or `raise`. Each happens once: a mark
`point` in the directory OTTLA_SPARK_CRASH_MARKS says that it has.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from ottla.spark.errors import SparkError

POINTS = (
    "task-mid-write",
    "task-prepared",
    "before-claim",
    "before-decision",
    "after-decision",
    "after-first-end",
    "after-commit",
)
_LOOK_SECONDS = 0.05


def crash_point(name: str, batch: int) -> None:
    wanted = os.environ.get("OTTLA_SPARK_CRASH")
    if wanted is None:
        return
    for entry in wanted.split(","):
        where, _, action = entry.partition(":")
        point, _, number = where.partition("@")
        if point == name and (not number or int(number) == batch):
            _crash(name, action)


def _crash(name: str, action: str) -> None:
    mark = Path(os.environ["OTTLA_SPARK_CRASH_MARKS"]) / name
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
    while mark.exists():
        time.sleep(_LOOK_SECONDS)
