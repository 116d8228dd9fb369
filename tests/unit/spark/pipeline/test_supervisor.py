"""The runner: starts an engine, starts it again when it fails, obeys what is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla.spark.pipeline import supervisor as module
from ottla.spark.pipeline.backoff import Backoff
from ottla.spark.pipeline.control import AlreadyRunning, Control
from ottla.spark.pipeline.project import Project, find_project
from ottla.spark.pipeline.status import FlowStatus, Status
from ottla.spark.pipeline.supervisor import Supervisor


@dataclass
class FakeEngine:
    pid: int
    code: int | None = None
    asked: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.asked.append("terminate")

    def kill(self) -> None:
        self.asked.append("kill")


class World:
    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool = False) -> None:
        (tmp_path / "spark-pipeline.yml").write_text("name: orders\nstorage: store\n")
        self.project: Project = find_project(tmp_path)
        self.control = Control(self.project.state)
        self.engines: list[FakeEngine] = []
        self.told: list[str] = []
        self.now_ms = 1_000_000
        monkeypatch.setattr(module, "now_ms", lambda: self.now_ms)
        self.supervisor = Supervisor(
            self.project, self.control, once=once, launch=self.launch, tell=self.told.append
        )

    def launch(self) -> FakeEngine:
        self.engines.append(FakeEngine(len(self.engines) + 100))
        return self.engines[-1]

    def step(self, passed_ms: int = 0) -> bool:
        self.now_ms += passed_ms
        return self.supervisor.step()

    @property
    def state(self) -> str:
        found = self.control.runner.read()
        assert found is not None
        return found.state


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_the_log_of_an_engine_that_runs_for_weeks_stays_small(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOG_BYTES_MAX", 100)
    world.step()
    log = world.control.engine_log
    assert not log.exists()
    # As an engine has it, and Spark's JVM: open all the time, and written to at its end.
    with log.open("ab", buffering=0) as written:
        for round_ in range(4):
            written.write(b"%d" % round_ * 60)
            assert world.step()
    old = log.with_suffix(".log.1")
    assert (old.read_bytes(), log.read_bytes()) == (b"2" * 60 + b"3" * 60, b"")


def test_an_engine_that_fails_is_started_again_later_each_time(world: World) -> None:
    assert world.step()
    assert world.state == "running"
    for failure, delay_ms in enumerate([1000, 2000, 4000], 1):
        world.control.engine.write(Status("orders", error="no broker"), now=True)
        world.engines[-1].code = 1
        assert world.step()
        assert world.state == "failing"
        assert world.told[-2] == "failed: no broker"
        assert f"in {delay_ms // 1000} s (failure {failure})" in world.told[-1]
        assert world.step(delay_ms - 1)
        assert len(world.engines) == failure
        world.step(1)
        assert len(world.engines) == failure + 1
    assert world.supervisor.status.restarts == 3


def test_a_killed_engine_is_named_as_such(world: World) -> None:
    world.step()
    world.engines[0].code = -9
    world.step()
    assert world.supervisor.status.error == "the engine was killed by SIGKILL"


def test_pause_resume_and_stop(world: World) -> None:
    world.step()
    world.control.want("paused")
    world.step()
    assert world.engines[0].asked == ["terminate"]
    world.engines[0].code = 0
    world.step()
    world.step()
    assert world.state == "paused"
    world.control.want("running")
    world.step()
    assert world.state == "running"
    world.control.want("stopped")
    world.step()
    world.engines[1].code = 0
    world.step()
    assert not world.step()
    assert world.state == "stopped"


@pytest.mark.parametrize("code", [0, -9])
def test_resume_before_a_pause_is_through_is_no_failure(world: World, code: int) -> None:
    world.step()
    world.control.want("paused")
    world.step()
    world.control.want("running")
    world.step()
    world.engines[0].code = code
    world.step()
    world.step()
    assert (world.state, len(world.engines)) == ("running", 2)
    assert (world.supervisor.status.error, world.told) == ("", [])


def test_once_that_was_interrupted_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine was told to stop: what it has left is still there."""
    world = World(tmp_path, monkeypatch, once=True)
    world.step()
    world.control.want("paused")
    world.step()
    world.control.want("running")
    world.engines[0].code = 0
    assert world.step()
    assert world.step()
    assert (world.state, len(world.engines)) == ("running", 2)


def test_an_engine_that_does_not_stop_is_killed(world: World) -> None:
    world.step()
    world.control.want("stopped")
    world.step()
    world.step(89_000)
    assert world.engines[0].asked == ["terminate"]
    world.step(2_000)
    assert world.engines[0].asked == ["terminate", "kill"]


def test_once_is_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, once=True)
    world.step()
    world.engines[0].code = 0
    assert not world.step()
    assert world.state == "done"


def test_once_that_fails_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, once=True)
    world.step()
    world.engines[0].code = 1
    assert not world.step()
    assert world.state == "failing"
    assert len(world.engines) == 1


def test_an_engine_that_ends_by_itself_has_failed(world: World) -> None:
    world.step()
    world.engines[0].code = 0
    assert world.step()
    assert world.state == "failing"


def test_a_long_good_run_makes_the_next_failure_a_first_one() -> None:
    backoff = Backoff()
    assert [backoff.on_failure(10) for _ in range(8)][-1] == 60_000
    assert backoff.on_failure(300_000) == 1_000


def test_there_is_one_runner_for_each_project(world: World) -> None:
    other = Control(world.project.state)
    assert not other.is_held()
    with world.control.held():
        assert other.is_held()
        with pytest.raises(AlreadyRunning, match="running already"), other.held():
            pass
    assert not other.is_held()


def test_a_status_is_the_word_of_both(world: World) -> None:
    world.step()
    flows = {"a": FlowStatus("t", batch=3)}
    engine = Status("orders", "starting", pid=100, flows=flows)
    world.control.engine.write(engine, now=True)
    with Control(world.project.state).held():
        found = world.control.status("orders")
        assert (found.state, found.flows["a"].batch) == ("starting", 3)
    assert world.control.status("orders").state == "stopped"


@pytest.mark.parametrize("said", ["running", "done"])
def test_a_run_that_failed_without_a_word_is_not_what_the_engine_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    world = World(tmp_path, monkeypatch, once=True)
    world.control.engine.write(Status("orders", said, pid=100), now=True)
    world.step()
    world.engines[0].code = -9
    world.step()
    found = world.control.status("orders")
    assert (found.state, found.error) == ("failing", "the engine was killed by SIGKILL")


def test_a_failing_pipeline_that_was_stopped_is_stopped(world: World) -> None:
    world.step()
    world.control.engine.write(Status("orders", "failing", pid=100, error="no broker"), now=True)
    world.engines[0].code = 1
    world.step()
    world.control.want("stopped")
    assert not world.step()
    found = world.control.status("orders")
    assert (found.state, found.error) == ("stopped", "no broker")
