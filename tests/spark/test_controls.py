"""The designs that the protocol was chosen over must go on failing: a harness that finds nothing
wrong with them would find nothing wrong with ours either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from tests.spark import controls
from tests.spark.test_sink import copy
from tests.spark.topics import Topics

ROWS = 400
IN_FIRST_BATCH = 300


@pytest.fixture
def shipped() -> Iterator[None]:
    """Spark's processes get the controls by value: they are not installed."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(controls)
    yield
    cloudpickle.unregister_pickle_by_value(controls)


@pytest.mark.parametrize(
    ("control", "point"),
    [(controls.TaskControl, "after-commit"), (controls.DecisionControl, "after-first-end")],
    ids=["commits in tasks", "no decision"],
)
@pytest.mark.usefixtures("shipped")
def test_a_control_writes_rows_twice_when_the_driver_dies(
    spark: Any,
    broker: Broker,
    topics: Topics,
    tmp_path: Path,
    crash_plan: Path,
    control: Any,
    point: str,
) -> None:
    source, target = topics.create("in"), topics.create("out")
    topics.fill("in", range(ROWS))
    spark.dataSource.register(control)
    (crash_plan / "plan").write_text(f"{point}@1:kill")
    try:
        with pytest.raises(Exception, match=r"Python worker|StreamingQueryException|EOF"):
            copy(spark, broker, tmp_path, source, target, sink=control.name())
        assert (crash_plan / point).exists(), "nobody died"
    finally:
        (crash_plan / "plan").unlink()
        (crash_plan / point).unlink(missing_ok=True)
    copy(spark, broker, tmp_path, source, target, sink=control.name())
    seen = Counter(topics.values("out"))
    twice = [value for value, count in seen.items() if count == 2]
    assert sorted(seen) == list(range(ROWS))
    assert twice, "the control is as good as the design: what is the design for?"
    assert len(twice) <= ROWS - IN_FIRST_BATCH
    assert set(seen.values()) == {1, 2}
