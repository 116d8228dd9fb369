"""What Spark tells of its batches, and what becomes of it."""

from __future__ import annotations

import json

from ottla.spark.listener import BriefEvents, GroupListener
from ottla.spark.offsets import Position
from tests.unit.spark.memory_view import MemoryView

RUN = "6d1b0b0a-0000-4000-8000-000000000001"


class Report:
    """In the JVM: all that may be asked of it is its JSON, whatever it holds."""

    def __init__(self, position: Position) -> None:
        source = {
            "description": "ottla",
            "startOffset": None,
            "endOffset": position.as_spark(),
            "latestOffset": None,
            "numInputRows": 3,
            "inputRowsPerSecond": 1.0,
            "processedRowsPerSecond": 1.0,
        }
        self._text = json.dumps(
            {
                "id": RUN,
                "runId": RUN,
                "name": None,
                "timestamp": "2026-01-31T12:00:00.000Z",
                "batchId": 4,
                "batchDuration": 7,
                "stateOperators": [],
                "sources": [source],
                "sink": {"description": "noop", "numOutputRows": -1},
            }
        )

    def progress(self) -> Report:
        return self

    def json(self) -> str:
        return self._text


class Groups(GroupListener):
    def __init__(self, view: MemoryView) -> None:
        super().__init__({})
        self._views["somewhere:9092"] = view  # type: ignore[assignment]


def test_a_batch_costs_one_question_to_the_jvm() -> None:
    """On a busy machine each waits its turn, and pyspark asks for every figure by itself."""
    view = MemoryView()
    position = Position({("t", 0): 5}, {"t": "id"}, {}, "g", "1/a", "somewhere:9092")
    BriefEvents(Groups(view)).onQueryProgress(Report(position))
    assert view.groups["g"]["t", 0].offset == 5
