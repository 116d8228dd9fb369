"""What an engine does when its queries have ended."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from ottla.spark.pipeline.engine import Engine
from ottla.spark.pipeline.project import find_project
from ottla.spark.pipeline.status import StatusFile


class Bus:
    """Of a session that has more reports than its listeners can take."""

    def __getattr__(self, name: str) -> Any:
        return self if name == "_jsc" else lambda *given: self

    def waitUntilEmpty(self, timeout_ms: int) -> None:
        raise Py4JError("The event queue is not empty")


class Session:
    sparkContext = Bus()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    (tmp_path / "spark-pipeline.yml").write_text("name: orders\nstorage: store\n")
    return Engine(find_project(tmp_path), Session(), StatusFile(tmp_path / "engine.json"))


def test_reports_that_are_late_are_no_failure(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """It would stand in the place of what has really happened."""
    with caplog.at_level(logging.WARNING):
        engine._stop_queries()
    assert "reports of the last batches" in caplog.text
