"""`ottla pipeline` without Spark: what commands do to a project's files, ask of brokers, and say.

Releases of sinks and the process that looks at a project are played; that these work is the
business of tests/spark.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import main, pipeline
from ottla.client.errors import NoBrokerError
from ottla.spark import doctor
from ottla.spark.pipeline import reset as resets
from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.notes import QueryNote
from ottla.spark.pipeline.status import FAILING, RUNNING, FlowStatus, Status

SPEC = "name: {name}\nstorage: storage\nlibraries:\n  - glob:\n      include: t/**\n"
SETTINGS = "bootstrap_servers: here:9092\nclient:\n  client.id: me\n"

Released = list[tuple[str, dict[str, str], list[str]]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)
    return make(tmp_path / "shop")


def make(root: Path, name: str = "shop") -> Path:
    root.mkdir()
    (root / "spark-pipeline.yml").write_text(SPEC.format(name=name))
    (root / "ottla.yml").write_text(SETTINGS)
    return root


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Released:
    """What was asked for; all sinks but `nobodys` had an owner."""
    calls: Released = []

    def play(servers: str, client: Mapping[str, str], sinks: list[str]) -> list[str]:
        calls.append((servers, dict(client), sinks))
        return [sink for sink in sinks if sink != "nobodys"]

    monkeypatch.setattr(resets, "release_sinks", play)
    return calls


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / "storage" / "_ottla" / name).mkdir(parents=True)


# ------------------------------------------------------------------------------------------ reset
def test_a_sink_is_released_without_a_project(
    tmp_path: Path,
    released: Released,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main.run(["pipeline", "reset", "--sink", "clean"]) == 1
    said = capsys.readouterr().err
    assert "no spark-pipeline.yml" in said
    assert "--bootstrap-server" in said
    (tmp_path / "client.properties").write_text("security.protocol=SSL\n")
    config = ["--command-config", "client.properties"]
    assert main.run(["pipeline", "reset", "--sink", "clean", "-b", "there:9092", *config]) == 0
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "elsewhere:9092")
    assert main.run(["pipeline", "reset", "--sink", "nobodys"]) == 0
    assert released == [
        ("there:9092", {"security.protocol": "SSL"}, ["clean"]),
        ("elsewhere:9092", {}, ["nobodys"]),
    ]
    assert capsys.readouterr().err.splitlines() == ["released clean", "nobodys had no owner"]


def test_a_sink_is_released_where_the_project_says(project: Path, released: Released) -> None:
    assert main.run(["pipeline", "reset", "shop", "--sink", "clean"]) == 0
    assert main.run(["pipeline", "reset", "shop", "--sink", "clean", "-b", "there:1"]) == 0
    assert [servers for servers, _, _ in released] == ["here:9092", "there:1"]
    assert released[0][1] == {"client.id": "me"}


def test_a_reset_removes_progress_and_tables_and_releases_the_sinks_that_there_were(
    project: Path, released: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(project, "checkpoints/orders", "checkpoints/out", "checkpoints/far", "tables/orders")
    control = Control(project / ".ottla")
    control.queries.add("orders", QueryNote(("orders",)))
    control.queries.add("out", QueryNote(("out",), "my-own-name"))
    control.queries.add("far", QueryNote(("far",), "shop.far", "far:9092"))
    assert main.run(["pipeline", "reset", "shop", "--to", "earliest", "--yes"]) == 0
    assert sorted((servers, sinks) for servers, _, sinks in released) == [
        ("far:9092", ["shop.far"]),
        ("here:9092", ["my-own-name"]),
    ]
    assert not list((project / "storage" / "_ottla").glob("*/*"))
    assert control.starts_at() == "earliest"
    assert control.queries.read() == {}
    said = capsys.readouterr().err.splitlines()
    assert "removed checkpoint orders" in said
    assert "released sink my-own-name" in said
    assert said[-1] == "the next run starts at earliest"


def test_a_reset_may_keep_the_tables(project: Path, released: Released) -> None:
    fill(project, "checkpoints/orders", "tables/orders")
    assert main.run(["pipeline", "reset", "shop", "--to", "2026-01-31T12:00", "--keep-tables"]) == 0
    assert [one.name for one in (project / "storage" / "_ottla").glob("*/*")] == ["orders"]
    assert Control(project / ".ottla").starts_at().isdigit()
    # Nobody has noted which queries have a sink: each may have one.
    assert released == [("here:9092", {"client.id": "me"}, ["shop.orders"])]


def test_a_reset_removes_the_groups_that_queries_made_for_themselves(
    project: Path,
    released: Released,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_of(project, "orders", "here:1", "spark-ottla-0a1b2c3d4e5f", "7/0a1b2c3d4e5f")
    log_of(project, "named", "here:1", "billing-daily", "7/ffffffffffff")
    log_of(project, "far", "goes:1", "spark-ottla-eeeeeeeeeeee", "7/eeeeeeeeeeee")
    log_of(project, "farther", "goes:1", "spark-ottla-ffffffffffff", "7/ffffffffffff")
    asked: Released = []

    def play(
        servers: str, client: Mapping[str, str], groups: list[str]
    ) -> Iterator[tuple[str, bool]]:
        asked.append((servers, dict(client), groups))
        yield groups[0], True
        if servers == "goes:1":
            raise NoBrokerError("nobody is there")

    monkeypatch.setattr(resets, "delete_groups", play)
    assert main.run(["pipeline", "reset", "shop", "--to", "earliest", "--yes"]) == 0
    assert sorted(asked) == [
        ("goes:1", {"client.id": "me"}, ["spark-ottla-eeeeeeeeeeee", "spark-ottla-ffffffffffff"]),
        ("here:1", {"client.id": "me"}, ["spark-ottla-0a1b2c3d4e5f"]),
    ]
    said = capsys.readouterr().err.splitlines()
    assert "removed group spark-ottla-0a1b2c3d4e5f" in said
    assert "removed group spark-ottla-eeeeeeeeeeee" in said
    assert "not removed: group spark-ottla-ffffffffffff: nobody is there" in said
    assert not list((project / "storage" / "_ottla").glob("*/*"))


def log_of(project: Path, name: str, servers: str, group: str, query: str) -> None:
    """Two batches of a query; the newest counts."""
    fill(project, f"checkpoints/{name}/offsets")
    notes = {"ids": {}, "group": group, "query": query, "servers": servers}
    for batch, text in ((9, {}), (10, {"orders": {"0": 5}, "$ottla": notes})):
        place = project / "storage" / "_ottla" / "checkpoints" / name / "offsets" / str(batch)
        place.write_text(f"v1\n{{}}\n{json.dumps(text)}\n")


def test_what_cannot_be_reset_is_said(
    project: Path, released: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["pipeline", "reset", "shop"]) == 2
    assert "--to or --sink is needed" in capsys.readouterr().err
    # Empty is what a script says whose variable is not set; a query that begins has a new group.
    for where, wrong in (("", "is empty"), (" ", "is empty"), ("group", "a group of its own")):
        assert main.run(["pipeline", "reset", "shop", "--to", where]) == 1
        assert wrong in capsys.readouterr().err
    assert main.run(["pipeline", "reset", "shop", "--to", "yesterday"]) == 1
    assert "--to yesterday: neither earliest, latest, a time" in capsys.readouterr().err
    with Control(project / ".ottla").held():
        assert main.run(["pipeline", "reset", "shop", "--to", "latest"]) == 1
    assert "is running: `ottla pipeline stop` first" in capsys.readouterr().err
    assert main.run(["pipeline", "reset", "shop", "--to", "latest", "--sink", "clean"]) == 2
    assert "--to and --sink are two things" in capsys.readouterr().err
    assert released == []


def test_brokers_that_are_away_are_named_at_once(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is removed then; the sink's own patience is of minutes."""
    log_of(project, "orders", "127.0.0.1:1", "spark-ottla-0a1b2c3d4e5f", "7/0a1b2c3d4e5f")
    where = ["--bootstrap-server", "127.0.0.1:1"]
    for wanted in (["--sink", "clean"], ["--to", "earliest"]):
        assert main.run(["pipeline", "reset", "shop", *wanted, *where]) == 1
        assert "nothing answers at 127.0.0.1:1" in capsys.readouterr().err
    assert list((project / "storage" / "_ottla").glob("*/*"))
    Control(project / ".ottla").queries.add("orders", QueryNote(("orders",)))
    assert main.run(["pipeline", "reset", "shop", "--to", "earliest"]) == 0
    left = "not removed: group spark-ottla-0a1b2c3d4e5f: nothing answers at 127.0.0.1:1"
    assert left in capsys.readouterr().err


# ------------------------------------------------------------------------------ dry-run, preview
Answers = list[list[str]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """The process that looks at a project, played: what it was asked, and a fixed answer."""
    asked: Answers = []
    monkeypatch.setattr("ottla.spark.java.java_environment", dict)

    def play(
        command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], is_quiet: bool
    ) -> subprocess.CompletedProcess[str]:
        place = command.index("ottla.spark.pipeline.inspection") + 2
        asked.append(list(command[place + 1 :]))
        answer: dict[str, Any] = {"error": "orders: no such column"}
        columns = [{"name": "id", "type": "string"}, {"name": "amount", "type": "double"}]
        if not asked[-1]:
            dataset = {"name": "orders", "kind": "table", "format": "parquet", "flows": ["orders"]}
            answer = {"datasets": [{**dataset, "columns": columns}]}
        elif asked[-1][1] == "orders":
            answer = {"columns": columns, "rows": [{"id": "a", "amount": 2.5}]}
        Path(command[place]).write_text(json.dumps(answer))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(pipeline, "run_child", play)
    return asked


def test_a_dry_run_shows_the_datasets(
    project: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["pipeline", "dry-run", "shop"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["DATASET", "KIND", "FORMAT", "FLOWS", "COLUMNS"]
    assert lines[1].split() == ["orders", "table", "parquet", "orders", "id,", "amount"]
    assert main.run(["pipeline", "dry-run", "shop", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["datasets"][0]["name"] == "orders"


def test_a_preview_shows_rows_or_what_is_wrong(
    project: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["pipeline", "preview", "orders", "shop", "--rows", "5"]) == 0
    assert answers[-1] == ["--preview", "orders", "--rows", "5"]
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["id", "amount"],
        ["a", "2.5"],
    ]
    assert main.run(["pipeline", "preview", "orders", "shop", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"id": "a", "amount": 2.5}]
    assert main.run(["pipeline", "preview", "pays", "shop"]) == 1
    assert "orders: no such column" in capsys.readouterr().err


# ------------------------------------------------------------------------------ list, test, doctor
def test_a_list_has_the_projects_below_with_their_states(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(project.parent / "other", "other")
    control = Control(project / ".ottla")
    flows = {"clean": FlowStatus("clean", batch=3)}
    control.directory.mkdir()
    control.engine.write(Status("shop", RUNNING, pid=7, flows=flows), now=True)
    control.runner.write(Status("shop", RUNNING, pid=7), now=True)
    with control.held():
        assert main.run(["pipeline", "list", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(one["pipeline"], one["state"]) for one in found} == {
        ("shop", "running"),
        ("other", "stopped"),
    }


def test_the_tests_of_a_project_get_further_arguments(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["pipeline", "test", "shop"]) == 1
    assert "has no directory tests" in capsys.readouterr().err
    (project / "tests").mkdir()
    ran: list[list[str]] = []

    def play(command: list[str], **named: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, len(ran) - 1, "", "")

    monkeypatch.setattr(pipeline, "run_child", play)
    assert main.run(["pipeline", "test", "shop", "-k", "dead"]) == 0
    assert ran[0][-3:] == [str(project / "tests"), "-k", "dead"]
    assert main.run(["pipeline", "test", "shop"]) == 1
    assert "the tests of shop failed" in capsys.readouterr().err


def test_the_doctor_says_what_is_wrong_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = doctor.Finding("Python", "3.11")
    bad = doctor.Finding("Java", "none", "pip install 'ottla[java]'")
    monkeypatch.setattr(doctor, "examine", lambda bootstrap: [good, bad])
    assert main.run(["pipeline", "doctor"]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "ok  Python: 3.11",
        "BAD Java: none",
        "    pip install 'ottla[java]'",
    ]
    assert "1 of 2 things are not as they must be" in captured.err
    monkeypatch.setattr(doctor, "examine", lambda bootstrap: [good])
    assert main.run(["pipeline", "doctor", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["good"] is True


def test_a_directory_that_is_not_there_has_no_list(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["pipeline", "list", str(project / "nowhere")]) == 1
    assert "nowhere is no directory" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_broken_project_is_named_and_the_others_are_listed(
    project: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    broken = project.parent / "broken"
    broken.mkdir()
    (broken / "spark-pipeline.yml").write_text("name: [")
    assert main.run(["pipeline", "list", str(project.parent), "--output", output]) == 1
    said = capsys.readouterr()
    assert str(project) in said.out
    assert str(broken) not in said.out
    assert f"{broken}/spark-pipeline.yml is no YAML" in said.err


def test_a_project_cannot_be_run_while_it_is_reset(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(project, "checkpoints/clean")
    seen: list[bool] = []

    def play(servers: str, client: Mapping[str, str], sinks: list[str]) -> list[str]:
        seen.append(Control(project / ".ottla").is_held())
        return sinks

    monkeypatch.setattr(resets, "release_sinks", play)
    assert main.run(["pipeline", "reset", "shop", "--to", "earliest", "--yes"]) == 0
    assert seen == [True]
    assert not Control(project / ".ottla").is_held()


def test_resume_of_a_pipeline_that_fails_says_so(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "WAIT_SECONDS_MAX", 2.0)
    control = Control(project / ".ottla")
    control.runner.write(Status("shop", FAILING, error="no broker"), now=True)
    with control.held():
        assert main.run(["pipeline", "resume", "shop"]) == 1
    assert "shop is failing: no broker" in capsys.readouterr().err


def test_a_pause_that_is_taken_back_does_not_wait(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    control = Control(project / ".ottla")
    control.runner.write(Status("shop", RUNNING, pid=7), now=True)
    control.engine.write(Status("shop", RUNNING, pid=7), now=True)
    monkeypatch.setattr(time, "sleep", lambda seconds: control.want(RUNNING))
    monkeypatch.setattr(pipeline, "WAIT_SECONDS_MAX", 2.0)
    with control.held():
        assert main.run(["pipeline", "pause", "shop"]) == 0
    assert "shop is running" in capsys.readouterr().err
