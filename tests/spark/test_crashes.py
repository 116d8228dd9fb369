"""Deaths within a Spark session: processes of tasks and of the driver's planner, at each point.

What is killed here is the Python side, and Spark notices: it repeats the task, or gives the batch
up and the query fails. `tests/chaos/spark` kills the JVM with everything, which costs a start each.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ottla.spark import crash_points
from ottla.testing import Broker
from tests.spark.test_sink import copy
from tests.spark.topics import Topics

# All of them in `make chaos`; here one of a task and one of the driver, half of its list done.
IS_FULL = "OTTLA_SPARK_FULL" in os.environ
POINTS = crash_points.POINTS if IS_FULL else ("task-mid-write", "after-first-end")

# A task that dies is done again by Spark itself; all other deaths end the query.
OF_TASKS = ("task-mid-read", "task-mid-write", "task-prepared")


@pytest.mark.parametrize("point", POINTS)
def test_every_row_once_whoever_dies(
    spark: Any, broker: Broker, topics: Topics, tmp_path: Path, crash_plan: Path, point: str
) -> None:
    source, target = topics.create("in"), topics.create("out")
    topics.fill("in", range(400))
    (crash_plan / "plan").write_text(f"{point}@1:kill")
    try:
        if point in OF_TASKS:
            copy(spark, broker, tmp_path, source, target)
        else:
            with pytest.raises(Exception, match=r"Python worker|StreamingQueryException|EOF"):
                copy(spark, broker, tmp_path, source, target)
        assert (crash_plan / point).exists(), "nobody died"
    finally:
        (crash_plan / "plan").unlink()
        (crash_plan / point).unlink(missing_ok=True)
    copy(spark, broker, tmp_path, source, target)
    assert sorted(topics.values("out")) == list(range(400))
