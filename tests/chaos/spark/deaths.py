"""A driver killed with everything below it, at every point of the protocol.

For `make chaos`, which names this file: each life costs a start of Spark.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ottla.spark.crash_points import POINTS
from ottla.testing import Broker
from tests.chaos.spark.lives import Copier, until
from tests.seeds import seed_for
from tests.spark.topics import Topics

ROWS = 1_000
SEEDS = range(3)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("number", SEEDS)
def test_every_row_once_when_everything_dies_at_a_point(
    tmp_path: Path, point: str, number: int
) -> None:
    random = Random(seed_for(f"deaths-{point}-{number}"))
    partitions = random.choice([1, 2, 8])
    with Broker() as broker:
        topics = Topics(broker.bootstrap, "deaths")
        topics.create("in", partitions)
        topics.create("out", random.choice([1, 3]))
        topics.fill("in", range(ROWS), partitions)
        copier = Copier(topics, tmp_path)
        crash = tmp_path / "crash"
        (crash / "plan").write_text(f"{point}@{random.randrange(4)}:stall")
        with copier.life() as process:
            until(
                lambda: (crash / point).exists() or process.poll() is not None,
                f"it comes to {point}",
            )
            assert process.poll() is None, copier.said()
        (crash / "plan").unlink()
        copier.end()
        copier.expect_once(ROWS)
