"""Processes that a command of `ottla pipeline` starts and waits for.

SIGTERM ends a command the way Ctrl-C does, its child first. A child that people do not talk to
never outlives its command, whatever ends that: its input is a pipe whose other end the command
alone holds, and the end of it says that nobody waits any more (`ottla.spark.pipeline.inspection`
listens).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


def run_child(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], is_quiet: bool
) -> subprocess.CompletedProcess[str]:
    """Its end; `is_quiet`: what it says is in the answer and not on our outputs, and what people
    type is not for it."""
    listening, held = os.pipe()
    try:
        with _ended_by_sigterm():
            return subprocess.run(
                command,
                cwd=cwd,
                env=environment,
                stdin=listening if is_quiet else None,
                capture_output=is_quiet,
                text=True,
                check=False,
            )
    finally:
        os.close(listening)
        os.close(held)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
