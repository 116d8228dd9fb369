"""`ottla cluster status` as people and scripts see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli import cluster_status
from ottla.cli.cluster_files import BrokerState, ClusterState
from ottla.cli.failure import Failure
from ottla.cli.output import OutputFormat

STATE = ClusterState(
    pid=99,
    brokers=[
        BrokerState(1, "h:9092", 100, "/d/broker-1", "running"),
        BrokerState(2, "h:9093", None, "/d/broker-2", "stopped"),
    ],
    zookeeper=["z:2181"],
    zookeeper_pids=[],
)


class Enough(Exception):
    """Two looks are enough."""


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_status, "ask_state", lambda directory: STATE)
    monkeypatch.setattr(cluster_status, "count_leads", lambda addresses: {1: 6})


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    cluster_status.show(Path(), OutputFormat.text)
    assert capsys.readouterr().out.splitlines() == [
        "BROKER  ADDRESS  STATE    LEADS  PID  DATA",
        "     1  h:9092   running      6  100  /d/broker-1",
        "     2  h:9093   stopped      0    -  /d/broker-2",
        "ZooKeeper at z:2181",
    ]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    cluster_status.show(Path(), OutputFormat.json)
    status = json.loads(capsys.readouterr().out)
    assert status["zookeeper"] == ["z:2181"]
    assert status["brokers"][0] == {
        "id": 1,
        "address": "h:9092",
        "pid": 100,
        "data_dir": "/d/broker-1",
        "leads": 6,
        "state": "running",
    }


@pytest.mark.parametrize(
    ("output", "line"),
    [(OutputFormat.text, "broker 1 running leads 6"), (OutputFormat.json, '{"brokers": [{"id": 1')],
)
def test_watching_without_a_terminal_prints_lines(
    output: OutputFormat,
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            raise Enough

    with pytest.raises(Enough):
        cluster_status.watch(Path(), output, pause)
    lines = capsys.readouterr().out.splitlines()
    assert len([one for one in lines if one.startswith(line)]) == 2


def test_what_nobody_answers_is_unknown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_status, "count_leads", lambda addresses: None)
    cluster_status.show(Path(), OutputFormat.text)
    assert "running      -" in capsys.readouterr().out


def test_nobody_is_asked_where_nobody_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def refuse(*arguments: object) -> None:
        raise Failure("nothing answers")

    monkeypatch.setattr(cluster_status, "connect", refuse)
    assert cluster_status.count_leads([]) is None
    assert cluster_status.count_leads(["h:1"]) is None
