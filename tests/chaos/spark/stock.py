"""The stock connector beside ours, with the same code on the same broker: the same rows.

For `make chaos`, which names this file: the connector comes from Maven.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.spark.connector import connector_jars
from ottla.spark.worker_start import python_for_spark
from ottla.testing import Broker
from tests.spark.topics import Topics

SECONDS_MAX = 1800
ROWS = 500


def run(name: str, jars: str, *arguments: str) -> Any:
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        **({"spark.driver.extraClassPath": jars} if jars else {}),
    }
    options = " ".join(f"--conf {key}={value}" for key, value in conf.items())
    environment = {
        **{key: value for key, value in os.environ.items() if key != "SPARK_HOME"},
        "PYSPARK_PYTHON": python_for_spark(),
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {options} pyspark-shell",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.spark.stock_code", name, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_code_for_the_stock_connector_finds_the_same_under_our_name(tmp_path: Path) -> None:
    """And a query of the stock connector goes on as one of ours, from its own checkpoint."""
    jars = ":".join(str(one) for one in connector_jars())
    with Broker() as broker:
        topics = Topics(broker.bootstrap, "stock")
        source = topics.create("in")
        topics.fill("in", range(ROWS))
        found = {}
        for name in ("kafka", "ottla"):
            target = topics.create(f"out-{name}")
            arguments = (broker.bootstrap, source, target, str(tmp_path / name))
            found[name] = run(name, jars if name == "kafka" else "", *arguments)
        assert found["kafka"] == found["ottla"]
        assert found["ottla"]["written"] == list(range(ROWS))
        topics.fill("in", range(ROWS, ROWS + 100))
        target = topics("out-kafka")
        again = run("ottla", "", broker.bootstrap, source, target, str(tmp_path / "kafka"))
        assert again["written"] == list(range(ROWS + 100))
