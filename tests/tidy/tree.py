"""The files of the repository as the tidy tests look at them: what is tracked or about to be."""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = REPOSITORY / "src" / "ottla"
BINARY_SUFFIXES = {".png", ".svg", ".gz", ".bin", ".log", ".index", ".timeindex", ".snapshot"}


@functools.cache
def files() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (REPOSITORY / name for name in sorted(listed.split("\0")) if name)
    return tuple(path for path in paths if path.is_file())


def text_files() -> list[Path]:
    return [path for path in files() if path.suffix not in BINARY_SUFFIXES]


def python_files(below: Path = REPOSITORY) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and path.is_relative_to(below)]


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
