"""What a test of a project sees of a pipeline: all that is there, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.spark.pipeline.project import find_project
from ottla.testing.pipeline import PipelineRun


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineRun:
    (tmp_path / "spark-pipeline.yml").write_text("name: orders\nstorage: store\n")
    return PipelineRun(find_project(tmp_path), "nobody:9092")


def test_dead_letters_may_be_no_text_and_nothing_at_all(
    pipeline: PipelineRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, Any]] = [{"value": b"no JSON"}, {"value": None}, {"value": b"\xff!"}]
    monkeypatch.setattr(pipeline, "records", lambda topic: found)
    assert pipeline.values("dead") == ["no JSON", None, "\ufffd!"]


def test_columns_that_are_directories_are_columns(pipeline: PipelineRun) -> None:
    """A table with partition_cols: Spark keeps them in the paths alone."""
    for day, number in (("2026-01-30", 1), ("2026-01-31", 2)):
        place = Path(pipeline.project.table_path("daily")) / f"day={day}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"n": [number]}), place / "part-0.parquet")
    rows = sorted(pipeline.table("daily"), key=lambda row: row["n"])
    assert [(str(row["day"]), row["n"]) for row in rows] == [("2026-01-30", 1), ("2026-01-31", 2)]
