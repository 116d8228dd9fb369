"""A project's two files: taken as they are, or refused with the field's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipeline.project import ProjectError, find_project
from ottla.spark.pipeline.scaffold import make_project

SPEC = "name: orders\nstorage: file:///data/orders\nlibraries:\n  - glob:\n      include: t/**\n"


def write(root: Path, spec: str = SPEC, settings: str | None = None) -> Path:
    (root / "spark-pipeline.yml").write_text(spec)
    if settings is not None:
        (root / "ottla.yml").write_text(settings)
    return root


def test_a_specification_as_spark_writes_it(tmp_path: Path) -> None:
    project = find_project(write(tmp_path))
    assert (project.name, project.storage) == ("orders", "/data/orders")
    assert project.is_local
    assert project.place("checkpoints", "a") == "/data/orders/_ottla/checkpoints/a"
    assert (project.settings.trigger_ms, project.settings.delivery) == (1000, "exactly_once")


def test_it_is_found_from_below(tmp_path: Path) -> None:
    below = write(tmp_path) / "t" / "deep"
    below.mkdir(parents=True)
    assert find_project(below).root == tmp_path.resolve()
    assert find_project(tmp_path / "spark-pipeline.yml").name == "orders"


def test_its_files_are_found_by_their_patterns(tmp_path: Path) -> None:
    write(tmp_path)
    for name in ("t/b.py", "t/a.sql", "t/deep/c.py", "t/__pycache__/d.py", "other/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [path.name for path in find_project(tmp_path).files()]
    assert found == ["a.sql", "b.py", "c.py"]


def test_settings_beside_it(tmp_path: Path) -> None:
    text = (
        "trigger: available-now\ndelivery: at-least-once\nspark:\n  spark.a: true\n  spark.b: 2\n"
    )
    settings = find_project(write(tmp_path, settings=text)).settings
    assert settings.trigger_ms is None
    assert settings.delivery == "at_least_once"
    assert settings.spark == {"spark.a": "true", "spark.b": "2"}


def test_storage_elsewhere_and_within_the_project(tmp_path: Path) -> None:
    remote = find_project(write(tmp_path, "name: a\nstorage: s3a://bucket/a\n"))
    assert not remote.is_local
    assert remote.place("x") == "s3a://bucket/a/_ottla/x"
    local = find_project(write(tmp_path, "name: a\nstorage: store\n"))
    assert local.storage == str(tmp_path.resolve() / "store")


@pytest.mark.parametrize(
    ("spec", "settings", "says"),
    [
        ("storage: x\n", None, "the field name is missing"),
        ("name: x\n", None, "the field storage is missing"),
        ("name: x\nstorage: y\nstorge: z\n", None, "'storge'; did you mean storage"),
        ("name: x\nstorage: y\nlibraries: [a]\n", None, "libraries must be a list"),
        ("name: x\nstorage: y\nconfiguration: 3\n", None, "configuration must be a mapping"),
        ("- a\n", None, "must be a mapping"),
        ("name: [\n", None, "is no YAML"),
        (SPEC, "triger: 1s\n", "'triger'; did you mean trigger"),
        (SPEC, "trigger: soon\n", "option trigger: 'soon'"),
        (SPEC, "metrics: nonsense\n", "option metrics: 'nonsense' is no host:port"),
        (SPEC, "metrics: here:99999\n", "option metrics: 'here:99999' is no host:port"),
        (SPEC, "delivery: perhaps\n", "option delivery"),
        (SPEC, "views_every: now\n", "option views_every"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, spec: str, settings: str | None, says: str) -> None:
    with pytest.raises(ProjectError, match=says):
        find_project(write(tmp_path, spec, settings))


def test_where_there_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="ottla pipeline init"):
        find_project(tmp_path)
    with pytest.raises(ProjectError, match="is no directory"):
        find_project(tmp_path / "nowhere")


def test_a_new_project_can_be_read(tmp_path: Path) -> None:
    make_project(tmp_path, "orders", "broker-1:9092,10.0.0.2:9093")
    project = find_project(tmp_path / "orders")
    assert [path.name for path in project.files()] == ["events.py", "totals.sql"]
    assert project.settings.dead_letters == "orders.dead-letters"
    assert project.settings.bootstrap_servers == "broker-1:9092,10.0.0.2:9093"
    with pytest.raises(ProjectError, match="exists already"):
        make_project(tmp_path, "orders", "broker-1:9092")
    with pytest.raises(ProjectError, match="is no name"):
        make_project(tmp_path, "a/b", "broker-1:9092")


@pytest.mark.parametrize("bootstrap", ["[::1]:9092", "SASL_PLAINTEXT://b:1", "b:1 # no"])
def test_brokers_of_a_new_project_are_taken_to_the_letter(tmp_path: Path, bootstrap: str) -> None:
    make_project(tmp_path, "orders", bootstrap)
    assert find_project(tmp_path / "orders").settings.bootstrap_servers == bootstrap
