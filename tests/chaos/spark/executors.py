"""Executors that are killed again and again: every row once, and nobody has to do anything.

For `make chaos`, which names this file. OTTLA_SPARK_SECONDS is how long rows come in.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from ottla.testing import Broker
from tests.chaos.spark.lives import SECONDS_MAX, Copier, below, command_line
from tests.spark.topics import Topics

SECONDS = float(os.environ.get("OTTLA_SPARK_SECONDS", "300"))
SECONDS_BETWEEN_KILLS = 20.0
ROWS_AT_ONCE = 50
EXECUTOR = b"CoarseGrainedExecutorBackend"
SETTINGS = {
    # An executor that is killed is no fault of the pipeline's: it may happen all the time.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "100",
}


def test_every_row_once_while_executors_die(tmp_path: Path) -> None:
    with Broker({"num.partitions": 2}) as broker:
        topics = Topics(broker.bootstrap, "executors")
        topics.create("in")
        topics.create("out")
        copier = Copier(
            topics,
            tmp_path,
            master="local-cluster[2,1,512]",
            settings=SETTINGS,
            environment={"SPARK_WORKER_DIR": str(tmp_path / "work")},
        )
        rows, kills = 0, 0
        with copier.life() as process:
            end = time.monotonic() + SECONDS
            due = time.monotonic() + SECONDS_BETWEEN_KILLS
            while time.monotonic() < end:
                assert process.poll() is None, copier.said()
                topics.fill("in", range(rows, rows + ROWS_AT_ONCE))
                rows += ROWS_AT_ONCE
                time.sleep(0.5)
                executors = [one for one in below(process.pid) if EXECUTOR in command_line(one)]
                if time.monotonic() >= due and executors:
                    os.kill(sorted(executors)[kills % len(executors)], signal.SIGKILL)
                    kills += 1
                    due = time.monotonic() + SECONDS_BETWEEN_KILLS
            (tmp_path / "ended").touch()
            assert process.wait(SECONDS_MAX) == 0, copier.said()
        copier.expect_once(rows)
        assert kills > 0, "nobody was killed"
