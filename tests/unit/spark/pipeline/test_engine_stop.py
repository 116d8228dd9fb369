"""How an engine ends its queries: behind the batches that are under way, and in any case."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from ottla.spark.pipeline.engine import Engine
from ottla.spark.pipeline.project import find_project
from ottla.spark.pipeline.status import StatusFile


class Query:
    """A batch every `batch_looks` times that somebody looks, with no rest between them."""

    def __init__(self, batch_looks: int) -> None:
        self._batch_looks = batch_looks
        self.looks = 0
        self.is_stopped = False

    @property
    def isActive(self) -> bool:
        return not self.is_stopped

    @property
    def status(self) -> dict[str, Any]:
        self.looks += 1
        return {"isTriggerActive": True}

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        done = self.looks // self._batch_looks
        return {"batchId": done - 1} if done else None

    def stop(self) -> None:
        self.is_stopped = True


class Bus:
    """Of a session that has more reports than its listeners can take."""

    def __getattr__(self, name: str) -> Any:
        return self if name == "_jsc" else lambda *given: self

    def waitUntilEmpty(self, timeout_ms: int) -> None:
        raise Py4JError("The event queue is not empty")


class Session:
    sparkContext = Bus()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    (tmp_path / "spark-pipeline.yml").write_text("name: orders\nstorage: store\n")
    monkeypatch.setattr("ottla.spark.pipeline.engine.time.sleep", lambda seconds: None)
    return Engine(find_project(tmp_path), Session(), StatusFile(tmp_path / "engine.json"))


def test_a_query_that_never_rests_is_stopped_behind_its_batch(engine: Engine) -> None:
    """While it catches up the next batch begins at once, and nobody sees it at rest."""
    query = Query(batch_looks=5)
    engine._queries["clean"] = query
    engine._stop_queries()
    assert query.is_stopped
    assert query.looks == 5


def test_reports_that_are_late_are_no_failure(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """It would stand in the place of what has really happened."""
    with caplog.at_level(logging.WARNING):
        engine._stop_queries()
    assert "reports of the last batches" in caplog.text
