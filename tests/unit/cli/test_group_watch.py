"""Goal: watching tells every look, survives a broker that is away, and ends when it should.
Method: prepared looks, no waiting.
"""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from ottla.cli import group_watch
from ottla.cli.failure import Failure
from ottla.cli.group_lag import Snapshot
from ottla.cli.group_watch import LagWatch
from ottla.cli.output import OutputFormat

FIRST = ("orders", 0)


def a_look(timestamp_ms: int, committed: int, latest: int) -> Snapshot:
    return Snapshot(timestamp_ms, {"shop": {FIRST: committed}}, {FIRST: latest})


def watch(
    *looks: Snapshot | str,
    output: OutputFormat = OutputFormat.text,
    by_partition: bool = False,
) -> list[float]:
    """The pauses in between; a text in place of a look is a failure."""
    waiting = list(looks)
    pauses: list[float] = []

    def take() -> Snapshot:
        look = waiting.pop(0)
        if isinstance(look, str):
            raise Failure(look)
        return look

    LagWatch(
        take,
        interval_s=2.0,
        count=len(looks),
        by_partition=by_partition,
        output=output,
        sleep=pauses.append,
    ).run()
    return pauses


def test_lines_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    pauses = watch(a_look(1_700_000_000_000, 3, 10), a_look(1_700_000_002_000, 7, 11))
    assert capsys.readouterr().out.splitlines() == [
        "2023-11-14T22:13:20.000Z shop orders lag 7",
        "2023-11-14T22:13:22.000Z shop orders lag 4 (-3), read 2.0/s, written 0.5/s",
    ]
    assert pauses == [2.0]


def test_names_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    watch(Snapshot(1_700_000_000_000, {"a\n\x1b[2J": {FIRST: 3}}, {FIRST: 10}))
    line = capsys.readouterr().out
    assert line == "2023-11-14T22:13:20.000Z a\\n\\x1b[2J orders lag 7\n"


def test_lines_of_partitions_and_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = Snapshot(1_000, {"shop": {FIRST: 3}}, {})
    watch(unknown, Snapshot(2_000, {}, {}), by_partition=True)
    assert capsys.readouterr().out.splitlines() == [
        "1970-01-01T00:00:01.000Z shop orders-0 lag -",
        "1970-01-01T00:00:02.000Z nothing committed",
    ]


def test_a_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    watch(a_look(1_000, 3, 10), a_look(3_000, 7, 11), output=OutputFormat.json)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["timestamp"], first["rows"][0]["change"]) == (1_000, None)
    assert second["rows"] == [
        {
            "group": "shop",
            "topic": "orders",
            "partitions": 1,
            "lag": 4,
            "lag_max": 4,
            "change": -3,
            "read_per_second": 2.0,
            "written_per_second": 0.5,
        }
    ]


def test_a_broker_that_is_away_for_a_while_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    watch(a_look(1_000, 3, 10), "nothing answers", a_look(5_000, 7, 10))
    captured = capsys.readouterr()
    assert captured.err == "ottla: nothing answers\n"
    assert captured.out.splitlines()[1].endswith("(-4), read 1.0/s, written 0.0/s")


def test_a_first_look_that_fails_is_the_end() -> None:
    with pytest.raises(Failure, match="group shp does not exist"):
        watch("group shp does not exist", a_look(1_000, 3, 10))


def test_a_table_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(group_watch, "console", lambda: Console(width=90))
    watch(a_look(1_000, 3, 10), a_look(3_000, 7, 11))
    text = capsys.readouterr().out
    assert text.count("GROUP") > 1, "it is painted anew"
    assert "every 2 s, Ctrl-C ends" in text
    assert "-3" in text
