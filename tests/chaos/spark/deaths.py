"""A driver killed with everything below it, at every point of the protocol; leaders of partitions
killed under a driver that lives, in the middle of a batch.

For `make chaos`, which names this file: each life costs a start of Spark.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ottla.client.murmur2 import murmur2
from ottla.spark.crash_points import POINTS
from ottla.spark.decision_log import PARTITIONS
from ottla.spark.decisions import TOPIC
from ottla.testing import Broker, Cluster
from tests.chaos.spark.lives import SECONDS_MAX, Copier, until
from tests.seeds import seed_for
from tests.spark.topics import Topics

ROWS = 1_000
SEEDS = range(3)

# Where a batch stands still while a broker is killed, and whose leader that is ("" is anybody).
LEADERS = (
    ("task-mid-read", "in"),
    ("task-mid-write", "out"),
    ("task-prepared", ""),
    ("before-decision", TOPIC),
    ("after-decision", ""),
    ("after-first-end", "out"),
)
ROWS_BETWEEN = 200
# One block of records for each fetch, so that a task that stands still has more to fetch.
SMALL_FETCHES = {"kafka.fetch.max.bytes": "1"}


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


def _is_let_go(mark: Path) -> bool:
    """Whoever waits at the mark goes on; each time, since another task may have read the plan just
    before it was taken away, and made the mark anew."""
    mark.unlink(missing_ok=True)
    return True


@pytest.mark.parametrize("number", SEEDS)
def test_every_row_once_while_leaders_die(tmp_path: Path, number: int) -> None:
    """On three brokers, under one driver, which goes on by itself: it needs no second life."""
    random = Random(seed_for(f"leaders-{number}"))
    crash = tmp_path / "crash"
    with Cluster(3) as cluster:
        topics = Topics(cluster.bootstrap, "leaders")
        for name in ("in", "out"):
            topics.create(name, 2, replicas=3)
        copier = Copier(topics, tmp_path, reading=SMALL_FETCHES)
        rows = 0
        with copier.life() as process:
            for point, of in LEADERS:
                (crash / "plan").write_text(f"{point}:stall")
                for _ in range(10):
                    topics.fill("in", range(rows, rows + ROWS_BETWEEN // 10))
                    rows += ROWS_BETWEEN // 10
                until(
                    lambda point=point: (crash / point).exists() or process.poll() is not None,  # type: ignore[misc]
                    f"it comes to {point}",
                )
                assert process.poll() is None, copier.said()
                victim = random.choice(cluster.broker_ids)
                if of == TOPIC:
                    victim = cluster.leader(TOPIC, murmur2(topics("out").encode()) % PARTITIONS)
                elif of:
                    victim = cluster.leader(topics(of), random.randrange(2))
                cluster.kill(victim)
                (crash / "plan").unlink()
                until(
                    lambda point=point: (  # type: ignore[misc]
                        _is_let_go(crash / point)
                        and (len(topics.values("out")) >= rows or process.poll() is not None)  # noqa: B023
                    ),
                    f"the rows that {victim} was killed under",
                )
                cluster.start(victim)
            (tmp_path / "ended").touch()
            assert process.wait(SECONDS_MAX) == 0, copier.said()
        copier.expect_once(rows)
