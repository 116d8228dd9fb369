"""Compiles the C sources of this directory for the Python that runs this, into it.

    python -m ottla.native.build

Without a C compiler, or the headers of Python, it says so and succeeds: there is a Python twin of
everything (OTTLA_PURE=1 asks for nothing but that). With both, a failure is one.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")
# Every function that Python calls has a `self`.
FLAGS_FOR_PYTHON = ("-Wno-unused-parameter", "-Wno-missing-field-initializers")
MACHINES = ("x86_64", "AMD64")


def file_name() -> str:
    return f"_compiled{sysconfig.get_config_var('EXT_SUFFIX')}"


def missing() -> str | None:
    """Why nothing can be compiled here."""
    if os.environ.get("OTTLA_PURE"):
        return "OTTLA_PURE is set"
    if platform.machine() not in MACHINES or sys.implementation.name != "cpython":
        return f"not for {sys.implementation.name} on {platform.machine()}"
    if compiler() is None:
        return "there is no C compiler"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return "the headers of Python are not installed"
    return None


def compiler() -> str | None:
    named = os.environ.get("CC")
    candidates = [named] if named else ["cc", "gcc", "clang"]
    return next((found for found in map(shutil.which, candidates) if found), None)


def build(directory: Path, *extra_flags: str) -> Path:
    """Made beside its place and moved there: whoever runs the one before keeps it."""
    found = compiler()
    assert found is not None, "missing() was asked before"
    target = directory / file_name()
    with tempfile.TemporaryDirectory(dir=directory) as made_in:
        made = Path(made_in) / target.name
        include = sysconfig.get_paths()["include"]
        sources = sorted(map(str, SOURCES.glob("*.c")))
        command = [found, *FLAGS, *FLAGS_FOR_PYTHON, *extra_flags, f"-I{include}", *sources]
        subprocess.run([*command, "-o", str(made)], check=True)  # noqa: S603 (our own command)
        made.replace(target)
    return target


def main() -> None:
    reason = missing()
    if reason is not None:
        (SOURCES / file_name()).unlink(missing_ok=True)
        print(f"native: nothing compiled, {reason}; Python does it all, slower")
        return
    build(SOURCES)
    print(f"native: compiled by {compiler()}")


if __name__ == "__main__":
    main()
