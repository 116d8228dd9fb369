"""For tests of a project: a broker inside the test, the pipeline run once, what came out of it.

A pytest plugin that `ottla pipeline test` loads; the fixture is `pipeline`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from ottla.client import Producer
from ottla.spark.client_reader import ClientRangeReader
from ottla.spark.client_view import ClientView
from ottla.spark.option_values import EARLIEST, LATEST
from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.project import SETTINGS_NAME, SPEC_NAMES, Project, find_project
from ottla.spark.ranges import OffsetRange
from ottla.spark.source_options import BATCH, COLUMNS, parse_source_options
from ottla.spark.stream_plan import partitions_of
from ottla.testing.broker import Broker


class PipelineRun:
    """A copy of a project on a broker of its own."""

    def __init__(self, project: Project, bootstrap: str) -> None:
        self.project = project
        self.bootstrap = bootstrap

    def produce(
        self, topic: str, values: Sequence[str | bytes | None], *, keys: Sequence[str] = ()
    ) -> None:
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for number, value in enumerate(values):
                key = keys[number].encode() if keys else None
                producer.send(topic, _bytes(value), key=key)
            producer.flush()

    def run(self) -> None:
        """Everything that is there, once."""
        command = [sys.executable, "-m", "ottla.spark.pipeline.engine", str(self.project.root)]
        # A test that is ended takes its engine with it.
        own = {"OTTLA_BOOTSTRAP": self.bootstrap, "OTTLA_SUPERVISOR": str(os.getpid())}
        environment = {**os.environ, **own}
        done = subprocess.run(
            [*command, "--once"],
            cwd=self.project.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = Control(self.project.state).engine.read()
            raise AssertionError(said.error if said and said.error else done.stderr[-2000:])

    def records(self, topic: str) -> list[dict[str, Any]]:
        """What a reader of committed records sees."""
        return list(read_topic(self.bootstrap, topic))

    def values(self, topic: str) -> list[str | None]:
        """As text, as far as they are; None for records without a value."""
        return [_text(record["value"]) for record in self.records(topic)]

    def table(self, name: str) -> list[dict[str, Any]]:
        path = Path(self.project.table_path(name))
        files = [str(one) for one in path.rglob("*.parquet")]
        if not files:
            return []
        rows = ds.dataset(files, partitioning="hive", partition_base_dir=str(path))
        return list(rows.to_table().to_pylist())


def read_topic(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    options = parse_source_options(given, BATCH)
    view = ClientView(options.client)
    reader = ClientRangeReader(options)
    try:
        topics = view.topics(options.subscription)
        places = partitions_of(topics)
        first = view.offsets(dict.fromkeys(places, EARLIEST))
        ends = view.offsets(dict.fromkeys(places, LATEST))
        for place in places:
            wanted = OffsetRange(*place, first[place], ends[place], topics[place[0]].topic_id)
            for batch in reader.read(wanted, COLUMNS):
                yield from batch.to_pylist()
    finally:
        reader.close()
        view.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def copy_project(source: Path, directory: Path) -> Project:
    """With a storage of its own, and no word of which brokers."""
    root = directory / "project"
    ignored = shutil.ignore_patterns(".ottla", "storage", "tests")
    shutil.copytree(source, root, ignore=ignored)
    spec = next(root / name for name in SPEC_NAMES if (root / name).exists())
    lines = spec.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("storage:")]
    spec.write_text("\n".join([*kept, f"storage: file://{directory / 'storage'}", ""]))
    settings = root / SETTINGS_NAME
    if settings.exists():
        lines = settings.read_text().splitlines()
        settings.write_text("\n".join(x for x in lines if not x.startswith("bootstrap_servers:")))
    return find_project(root)


@pytest.fixture
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PipelineRun]:
    source = find_project(Path(request.config.rootpath))
    with Broker({"num.partitions": 1}) as broker:
        yield PipelineRun(copy_project(source.root, tmp_path), broker.bootstrap)
