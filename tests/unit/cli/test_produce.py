"""Goal: every line of every source is sent in order, a bad line stops with its place, and the
report tells the truth.
Method: a sender that keeps what it gets.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pytest

from ottla.cli import produce
from ottla.cli.failure import Failure
from ottla.cli.model import RecordToSend
from ottla.cli.output import OutputFormat
from ottla.cli.record_lines import LineRules, line_reader


class KeptSender:
    def __init__(self) -> None:
        self.topic = "orders"
        self.sent = 0
        self.failed = 0
        self.first_failure: str | None = None
        self.delivered_by_partition: Counter[int] = Counter()
        self.records: list[RecordToSend] = []
        self.waited_s = 0.0
        self.flushes = 3

    def send(self, record: RecordToSend) -> None:
        self.sent += 1
        self.records.append(record)
        self.delivered_by_partition[record.partition or 0] += 1

    def wait(self, seconds: float) -> None:
        self.waited_s += seconds

    def flush_step(self) -> int:
        self.flushes -= 1
        return self.flushes

    def delivered(self) -> int:
        return self.delivered_by_partition.total()


def producing(sender: KeptSender, rules: LineRules | None = None) -> produce.Producing:
    return produce.Producing(sender, line_reader(rules or LineRules()), None)  # type: ignore[arg-type]


def test_lines_of_files_in_order(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"1\n2\n")
    second.write_bytes(b"3\n\xff\n\nlast")
    sender = KeptSender()
    producing(sender).send_all([first, second])
    assert [record.value for record in sender.records] == [b"1", b"2", b"3", b"\xff", b"", b"last"]


def test_lines_of_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n")))
    sender = KeptSender()
    producing(sender).send_all([])
    assert [record.value for record in sender.records] == [b"1", b"2"]


def test_a_bad_line_is_named_and_what_came_before_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"value": 1}\n{"value": \n{"value": 3}\n')
    sender = KeptSender()
    with pytest.raises(Failure, match=r"lines, line 2: no JSON"):
        producing(sender, LineRules(as_json=True)).send_all([path])
    assert [record.value for record in sender.records] == [b"1"]


def test_a_file_that_is_not_there_stops_before_anything_is_sent(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"1\n")
    sender = KeptSender()
    with pytest.raises(Failure, match="missing cannot be read: No such file"):
        producing(sender).send_all([there, tmp_path / "missing"])
    assert sender.records == []


def test_finishing_waits_for_every_delivery() -> None:
    sender = KeptSender()
    producing(sender).finish()
    assert sender.flushes == 0


def test_the_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    sender = KeptSender()
    sender.delivered_by_partition.update({1: 2, 0: 1})
    produce.report(sender, OutputFormat.text)  # type: ignore[arg-type]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "produced 3 records to orders (partitions: 1 in 0, 2 in 1)\n"


def test_the_report_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    sender = KeptSender()
    sender.delivered_by_partition.update({1: 2})
    produce.report(sender, OutputFormat.json)  # type: ignore[arg-type]
    assert json.loads(capsys.readouterr().out) == {
        "topic": "orders",
        "delivered": 2,
        "failed": 0,
        "first_failure": None,
        "partitions": [{"partition": 1, "delivered": 2}],
    }


def test_a_failed_delivery_fails_the_command() -> None:
    sender = KeptSender()
    sender.sent, sender.failed, sender.first_failure = 5, 2, "too large"
    with pytest.raises(Failure) as told:
        produce.report(sender, OutputFormat.text)  # type: ignore[arg-type]
    assert str(told.value) == "2 of 5 records not delivered; the first because: too large"
