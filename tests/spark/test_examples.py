"""The projects of `examples/`, by their own tests, in the session of this directory."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipeline.engine import STATUS_NAME, Engine
from ottla.spark.pipeline.project import Project
from ottla.spark.pipeline.session import environment
from ottla.spark.pipeline.status import StatusFile
from ottla.testing import Broker
from ottla.testing.pipeline import PipelineRun, copy_project

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class RunHere(PipelineRun):
    """`ottla pipeline test` starts a Spark for each run; here all runs share one."""

    def __init__(self, project: Project, bootstrap: str, spark: Any) -> None:
        super().__init__(project, bootstrap)
        self.spark = spark

    def run(self) -> None:
        status = StatusFile(self.project.state / STATUS_NAME)
        Engine(self.project, self.spark, status).run(once=True)


def own_tests(project: str) -> list[Any]:
    (path,) = (EXAMPLES / project / "tests").glob("test_*.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [test for name, test in vars(module).items() if name.startswith("test_")]


@pytest.mark.parametrize("project", ["orders", "sessions"])
def test_an_example_does_what_it_says(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    found = copy_project(EXAMPLES / project, tmp_path)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    for name, value in environment(found).items():
        monkeypatch.setenv(name, value)
    (test,) = own_tests(project)
    test(RunHere(found, broker.bootstrap, spark))
