"""What people are told of a pipeline is what its present engine says, not the one before."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from ottla.spark.pipeline.control import AlreadyRunning, Control
from ottla.spark.pipeline.status import (
    DONE,
    FAILING,
    PAUSED,
    RUNNING,
    STARTING,
    STOPPED,
    FlowStatus,
    Status,
)

NAME = "orders"
NOBODY = 2**22 + 1  # more than Linux gives to any process


@pytest.fixture
def control(tmp_path: Path) -> Control:
    found = Control(tmp_path)
    flows = {"clean": FlowStatus("clean", batch=7)}
    found.engine.write(Status(NAME, RUNNING, pid=11, flows=flows), now=True)
    return found


@pytest.mark.parametrize(
    ("state", "pid", "told", "flows"),
    [
        (RUNNING, 11, RUNNING, 1),
        (RUNNING, 12, STARTING, 0),
        (FAILING, 11, FAILING, 1),
        (PAUSED, 11, PAUSED, 1),
    ],
)
def test_a_new_engine_is_starting_until_it_speaks(
    control: Control, state: str, pid: int, told: str, flows: int
) -> None:
    control.runner.write(Status(NAME, state, pid=pid), now=True)
    with control.held():
        found = control.status(NAME)
    assert (found.state, len(found.flows)) == (told, flows)


def test_an_engine_that_fails_is_told_with_its_reason_before_it_has_ended(control: Control) -> None:
    """Spark takes seconds to end, and the runner hears of it then."""
    control.engine.write(Status(NAME, FAILING, pid=11, error="no such topic"), now=True)
    control.runner.write(Status(NAME, RUNNING, pid=11, error="of yesterday"), now=True)
    with control.held():
        found = control.status(NAME)
    assert (found.state, found.error) == (FAILING, "no such topic")


@pytest.mark.parametrize(("state", "told"), [(RUNNING, STOPPED), (DONE, DONE), (FAILING, FAILING)])
def test_without_a_runner_it_is_stopped_unless_it_ended_otherwise(
    control: Control, state: str, told: str
) -> None:
    control.engine.write(Status(NAME, state, pid=11), now=True)
    assert control.status(NAME).state == told


def test_there_is_one_runner(control: Control) -> None:
    with control.held():
        assert control.is_held()
        with pytest.raises(AlreadyRunning, match="is running already"), control.held():
            pass
    assert not control.is_held()


def test_what_is_wanted_stays_until_something_else_is(control: Control) -> None:
    assert control.wanted() == RUNNING
    control.want(PAUSED)
    assert Control(control.directory).wanted() == PAUSED


def test_who_only_looks_is_no_runner(tmp_path: Path) -> None:
    """Others look at the same moment, and a runner starts: the lock is shared for that moment."""
    control = Control(tmp_path)
    with control.held():
        assert control.is_held()
    with (tmp_path / "lock").open("a+") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not control.is_held()
        done = threading.Timer(0.03, lambda: fcntl.flock(looking, fcntl.LOCK_UN))
        done.start()
        with control.held():
            assert control.is_held()
        done.join()


def inherited(control: Control) -> int:
    """As a process has it that was started with it."""
    assert control.lock_held is not None
    return os.dup(control.lock_held.fileno())


def test_an_engine_that_outlives_its_runner_still_has_the_project(tmp_path: Path) -> None:
    """It finishes its batches: a reset, or a second engine, would take their files from them."""
    control = Control(tmp_path)
    with control.held():
        engine = inherited(control)
    try:
        assert control.is_held()
        with pytest.raises(AlreadyRunning, match="is running already"), control.held():
            pass
    finally:
        os.close(engine)
    with control.held():
        pass


def test_a_runner_waits_for_what_a_dead_one_has_left(tmp_path: Path) -> None:
    control = Control(tmp_path)
    told: list[str] = []
    with control.held():
        engine = inherited(control)
    (tmp_path / "lock").write_text(str(NOBODY))

    def tell(line: str) -> None:
        told.append(line)
        os.close(engine)

    with control.held(tell):
        assert len(told) == 1
        assert f"process {NOBODY}, is dead; waiting for its engine" in told[0]
