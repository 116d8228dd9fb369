"""Where a test lets a process wait, it must be able to let it go."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.spark.crash_points import crash_point
from ottla.spark.errors import SparkError

SECONDS_MAX = 30


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OTTLA_SPARK_CRASH", str(tmp_path))
    return tmp_path


def test_without_a_plan_nothing_happens(directory: Path) -> None:
    crash_point("after-commit", 0)
    assert list(directory.iterdir()) == []


def test_it_happens_once_and_in_its_batch(directory: Path) -> None:
    (directory / "plan").write_text("before-claim@0:raise,after-commit@2:raise")
    crash_point("after-commit", 1)
    with pytest.raises(SparkError, match="after-commit"):
        crash_point("after-commit", 2)
    crash_point("after-commit", 2)


@pytest.mark.parametrize("taken", ["plan", "after-commit"])
def test_who_waits_goes_on_without_its_plan_or_its_mark(directory: Path, taken: str) -> None:
    (directory / "plan").write_text("after-commit:stall")
    mark = directory / "after-commit"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(crash_point, "after-commit", 0)
        deadline = time.monotonic() + SECONDS_MAX
        while not mark.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        try:
            assert not waiting.done()
            (directory / taken).unlink()
            waiting.result(SECONDS_MAX)
        finally:
            mark.unlink(missing_ok=True)
