"""One broker and one Spark session for all tests of this directory.

A session costs ten seconds of both cores, so all of these tests run in one worker (the xdist group
`spark`), with topics and checkpoints of their own. Checkpoint files are written the short way: see
docs/guide/pipelines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from tests.spark.batches import COLUMNS
from tests.spark.topics import Topics

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": 2}) as found:
        yield found


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> Topics:
    return Topics(broker.bootstrap, request.node.name)


@pytest.fixture(scope="session")
def crash_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that Spark's processes look into: see `ottla.spark.crash_points`."""
    return tmp_path_factory.mktemp("crashes")


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, crash_plan: Path, broker: Broker
) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from ottla.spark.session import (
        LOCAL_CHECKPOINTS,
        PATIENCE,
        PATIENT_ENVIRONMENT,
        without_checksums,
    )
    from ottla.spark.worker_start import python_for_spark

    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = {
        **LOCAL_CHECKPOINTS,
        **PATIENCE,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # A short life: what a JIT spends on code that runs for a minute never comes back.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2,3]").appName("ottla-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Spark's processes have the environment of this moment; tests of other things keep theirs.
    environment = {
        **PATIENT_ENVIRONMENT,
        "PYSPARK_PYTHON": python_for_spark(),
        "OTTLA_BOOTSTRAP": broker.bootstrap,
        "OTTLA_SPARK_CRASH": str(crash_plan),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPARK_HOME", raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    without_checksums(session)
    yield session
    session.stop()


@pytest.fixture
def read(spark: Any, broker: Broker) -> Callable[..., Any]:
    """A batch read with these options."""

    def read(**options: str) -> Any:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.options(**options).load()

    return read


@pytest.fixture
def stream(broker: Broker) -> Iterator[Any]:
    """Makes stream readers that end with the test."""
    from ottla.spark.source import stream_reader

    opened: list[Any] = []

    def make(**options: str) -> Any:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "startingOffsets": "earliest",
            "partition.metadata.cache.ttl.ms": "0",
            **options,
        }
        reader = stream_reader(given, COLUMNS)
        opened.append(reader)
        return reader

    yield make
    for reader in opened:
        reader.stop()
