"""An engine that cannot even begin: its reason stands where the runner looks for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipeline import engine
from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.status import FAILING, Status


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    """Of a project whose engine before this one had a failure of its own."""
    (tmp_path / "spark-pipeline.yml").write_text("name: orders\nstorage: store\n")
    monkeypatch.setattr(sys, "argv", ["engine", str(tmp_path)])
    found = Control(tmp_path / ".ottla")
    found.engine.write(Status("orders", FAILING, error="no broker"), now=True)
    return found


def said(control: Control) -> tuple[str, str]:
    found = control.engine.read()
    assert found is not None
    return found.state, found.error


def test_a_specification_that_was_broken_meanwhile_is_named(
    control: Control, tmp_path: Path
) -> None:
    (tmp_path / "spark-pipeline.yml").write_text("name: [")
    assert engine.main() == 1
    state, error = said(control)
    assert state == FAILING
    assert "spark-pipeline.yml is no YAML" in error


def test_a_session_that_does_not_open_has_its_reason(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(project: Any) -> Any:
        raise RuntimeError("Could not parse Master URL: 'locall[2]'")

    monkeypatch.setattr(engine, "open_session", refuse)
    assert engine.main() == 1
    assert said(control) == (FAILING, "Could not parse Master URL: 'locall[2]'")


def test_the_reason_is_the_last_of_our_own_lines_whoever_of_us_raised_it() -> None:
    """A broker that is away is told by the client, behind two tracebacks that nobody wants."""
    reason = "listing topics: not in time; at last: 127.0.0.1:9092 cannot be reached"
    wrapped = RuntimeError(
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when ... latestOffset: "
        "Traceback (most recent call last):\n"
        '  File "core.py", line 299, in retry\n'
        "ottla.client.errors.NoBrokerError: too early to try 127.0.0.1:9092 again\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        f"ottla.client.errors.TimedOutError: {reason}\n\n"
        "\nJVM stacktrace:\norg.apache.spark"
    )
    assert engine.reason_of(wrapped) == reason
