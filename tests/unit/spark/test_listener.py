"""What Spark tells of its batches, and what becomes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

from ottla.base.ids import TopicPartition
from ottla.client.errors import ClosedError
from ottla.spark.cluster_view import Committed
from ottla.spark.group_offsets import GroupOffsets
from ottla.spark.listener import BriefEvents, GroupListener
from ottla.spark.offsets import Position
from tests.unit.spark.memory_view import MemoryView

RUN = "6d1b0b0a-0000-4000-8000-000000000001"


class Report:
    """In the JVM: all that may be asked of it is its JSON, whatever it holds."""

    def __init__(self, *positions: Position) -> None:
        sources = [
            {
                "description": "ottla",
                "startOffset": None,
                "endOffset": position.as_spark(),
                "latestOffset": None,
                "numInputRows": 3,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": 1.0,
            }
            for position in positions
        ]
        self._text = json.dumps(
            {
                "id": RUN,
                "runId": RUN,
                "name": None,
                "timestamp": "2026-01-31T12:00:00.000Z",
                "batchId": 4,
                "batchDuration": 7,
                "stateOperators": [],
                "sources": sources,
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


def test_two_sources_of_a_query_may_have_one_group() -> None:
    view = MemoryView()
    one = Position({("t", 0): 5}, {"t": "id"}, {}, "g", "1/a", "somewhere:9092")
    other = Position({("u", 0): 7}, {"u": "id"}, {}, "g", "1/b", "somewhere:9092")
    BriefEvents(Groups(view)).onQueryProgress(Report(one, other))
    assert {place: found.offset for place, found in view.groups["g"].items()} == {
        ("t", 0): 5,
        ("u", 0): 7,
    }


def test_a_query_that_begins_anew_in_the_group_of_an_older_one_signs_for_itself() -> None:
    """The session remembers the older one, under whose name the younger would be refused; and what
    that one has committed is no reason to leave anything out."""
    view = MemoryView()
    events = BriefEvents(Groups(view))
    old = Position({("t", 0): 5}, {"t": "id"}, {}, "g", "1/a", "somewhere:9092")
    events.onQueryProgress(Report(old))
    young = Position({("t", 0): 3}, {"t": "id"}, {}, "g", "2/b", "somewhere:9092")
    source = GroupOffsets(view, "g", "2/b", look_around=True)
    source.keep(young)
    young.next_offsets["t", 0] = 5
    events.onQueryProgress(Report(young))
    assert view.groups["g"]["t", 0] == Committed(5, "ottla-spark/2/b")
    young.next_offsets["t", 0] = 8
    assert source.keep(young), "refused"


class Waiting(MemoryView):
    """Of brokers that are away: a commit waits until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.is_closed = threading.Event(), threading.Event()

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        self.waits.set()
        self.is_closed.wait()
        raise ClosedError("the client was closed meanwhile")

    def close(self) -> None:
        self.is_closed.set()


def test_a_listener_that_waits_for_brokers_can_be_told_to_give_up() -> None:
    """Else the end of a session would wait for them as well."""
    view = Waiting()
    groups = Groups(view)
    position = Position({("t", 0): 5}, {"t": "id"}, {}, "g", "1/a", "somewhere:9092")
    report = threading.Thread(
        target=BriefEvents(groups).onQueryProgress, args=(Report(position),), daemon=True
    )
    report.start()
    view.waits.wait()
    groups.give_up()
    report.join()
    view.waits.clear()
    BriefEvents(groups).onQueryProgress(Report(position))
    assert not view.waits.is_set()
