"""Where the jars of Spark's stock connector are. `tools/fetch_spark_connector.sh` brings them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench.errors import BenchError
from bench.kafka_jars import REPOSITORY


def connector_jars() -> list[Path]:
    """OTTLA_SPARK_CONNECTOR if set, else what the tool fills."""
    done = subprocess.run([REPOSITORY / "tools" / "fetch_spark_connector.sh"], check=False)
    named = os.environ.get("OTTLA_SPARK_CONNECTOR")
    directory = Path(named) if named else REPOSITORY / ".cache" / "spark-connector"
    found = sorted(directory.glob("*.jar"))
    if done.returncode or not found:
        raise BenchError(f"no stock connector in {directory}: tools/fetch_spark_connector.sh")
    return found
