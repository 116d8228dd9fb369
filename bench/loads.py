"""Starts the loads of bench.clients, waits for them, and lets none of them outlive the harness."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType

from bench.errors import BenchError
from bench.kafka_jars import REPOSITORY

LOAD_SECONDS_MAX = 300


Argument = str | float | Sequence[int]


class LoadFailed(BenchError):
    """A load ended with an error."""


class Load:
    """One load that runs. Leaving it without a result ends it."""

    def __init__(self, name: str, **arguments: Argument) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.clients.{name}", json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def __enter__(self) -> Load:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def figures(self) -> dict[str, float]:
        """Waits for its end."""
        printed, complaints = self._process.communicate(timeout=LOAD_SECONDS_MAX)
        if self._process.returncode != 0:
            reason = complaints.strip().splitlines()[-1:] or ["no reason given"]
            raise LoadFailed(f"{self._name}: {reason[0]}")
        figures: dict[str, float] = json.loads(printed)
        return figures


def run_load(name: str, **arguments: Argument) -> dict[str, float]:
    with Load(name, **arguments) as load:
        return load.figures()
