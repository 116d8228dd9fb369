"""The same project where one process is not enough: a Spark master with two workers on loopback.

For `make chaos`, which names this file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from ottla.testing import Broker
from tests.chaos.spark.lives import kill_all, until
from tests.spark.shell import Shell

SPARK_HOME = Path(pyspark.__file__).parent
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
MASTER_SAYS = re.compile(r"Starting Spark master at (spark://\S+)")
WORKER_SAYS = re.compile(r"Successfully registered with master")
ROWS = 200


@contextmanager
def spark_process(directory: Path, name: str, *arguments: str) -> Iterator[Path]:
    """One of Spark's own, with a log that is given."""
    log = directory / f"{name}.log"
    environment = {
        **{key: value for key, value in os.environ.items() if key != "SPARK_HOME"},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(directory / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *arguments],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        kill_all(process.pid)
        process.wait(60)


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """The address of a master that has two workers."""
    place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        log = stack.enter_context(spark_process(directory, "master", MASTER, *place))
        until(lambda: MASTER_SAYS.search(log.read_text()) is not None, "the master is there")
        found = MASTER_SAYS.search(log.read_text())
        assert found is not None
        address = found.group(1)
        for name in ("worker-1", "worker-2"):
            options = (*place, "--cores", "1", "--memory", "1g", address)
            worker = stack.enter_context(spark_process(directory, name, WORKER, *options))
            until(lambda worker=worker: bool(WORKER_SAYS.search(worker.read_text())), name)  # type: ignore[misc]
        yield address


def test_a_project_runs_on_a_master_with_two_workers(tmp_path: Path) -> None:
    with Broker({"num.partitions": 2}) as broker, standalone(tmp_path) as master:
        shell = Shell(tmp_path, broker.bootstrap)
        shell("pipeline", "init", "shop")
        settings = tmp_path / "shop" / "ottla.yml"
        more = f"master: {master}\nspark:\n  spark.driver.host: 127.0.0.1\n"
        settings.write_text(settings.read_text() + more)
        shell("topic", "create", "shop-events")
        for round_number in range(2):
            numbers = range(round_number * ROWS, (round_number + 1) * ROWS)
            shell.produce("shop-events", *(f'{{"id":"{one}","amount":1}}' for one in numbers))
            shell("pipeline", "run", "shop", "--once")
        found = shell("consume", "shop-clean").splitlines()
        assert sorted(found) == sorted(
            f'{{"id":"{number}","amount":1.0}}' for number in range(2 * ROWS)
        )
        executors = list((tmp_path / "work").rglob("stderr"))
        assert executors, "the workers have done nothing"
