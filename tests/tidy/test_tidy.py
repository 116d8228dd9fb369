"""Rules that no linter knows, checked on the tree itself; a failure names file and rule."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import __version__
from ottla.handlers.registry import SERVED
from tests.tidy.tree import (
    REPOSITORY,
    SOURCES,
    files,
    module_of,
    name_of,
    python_files,
    text_files,
    text_of,
    tree_of,
)
from tools import api_coverage

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

# Words that say nothing about what a thing is for.
BANNED_WORDS = {"helper", "helpers", "misc", "stuff", "tmp", "util", "utils"}
GIVEN_NAMES = {"tmp_path", "tmp_path_factory"}  # pytest's own

# Reminders belong into an issue.
REMINDERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
UNFINISHED = re.compile(r"NotImplementedError|mark\.(skip|xfail)|pytest\.(skip|xfail)")

# Paths and hosts of one machine or one network would make the tree work there only.
MACHINE_PATHS = re.compile(r"(?<![\w.~}/-])/(root|work|Users|home/\w+)/")
REGISTRY_HOSTS = re.compile(
    r"pypi\.org|pythonhosted|repo1?\.maven|artifactory|nexus\.|registry\.npm", re.IGNORECASE
)

# Found by an entry point or by name, or meant for other people's files, not for an import here.
ENTRY_POINTS = {
    "ottla.__main__",
    "ottla.cli.main",
    "ottla.spark.expectations",
    "ottla.spark.topics",
    "ottla.testing.pytest_plugin",
}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def defined_names(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def lines_of_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without its parameters: those of a command are a list of options, one a line."""
    return (function.end_lineno or 0) - function.body[0].lineno + 1


def words_of(name: str) -> set[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return set(spaced.lower().split("_"))


def found(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{name_of(path)}:{number}: {line.strip()[:80]}"
        for path in paths
        if path != Path(__file__)  # which spells out what it forbids
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


# ------------------------------------------------------------------------------------------- size
def test_files_are_short() -> None:
    lengths = {name_of(path): text_of(path).count("\n") for path in python_files()}
    assert {name: size for name, size in lengths.items() if size > FILE_LINES_MAX} == {}


def test_functions_are_short() -> None:
    long = [
        f"{name_of(path)}: {function.name}"
        for path in python_files()
        for function in functions(path)
        if lines_of_body(function) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_lines_of_scripts_are_short() -> None:
    """Of Python files ruff says so."""
    scripts = [path for path in text_files() if path.suffix == ".sh"]
    assert found(re.compile(rf"^.{{{COLUMNS_MAX + 1},}}"), scripts) == []


# ------------------------------------------------------------------------------------------ names
def test_names_say_what_a_thing_is_for() -> None:
    vague = [
        f"{name_of(path)}: {name}"
        for path in python_files()
        for name in {path.stem, path.parent.name, *defined_names(path)}
        if name not in GIVEN_NAMES and words_of(name) & BANNED_WORDS
    ]
    assert vague == []


def test_nothing_is_left_for_later() -> None:
    assert found(REMINDERS, text_files()) == []
    assert found(UNFINISHED, python_files()) == []


def test_the_tree_knows_no_machine() -> None:
    assert found(MACHINE_PATHS, text_files()) == []
    assert found(REGISTRY_HOSTS, text_files()) == []


# ---------------------------------------------------------------------------------------- modules
def test_every_module_says_what_it_owns() -> None:
    silent = [
        name_of(path)
        for path in python_files(SOURCES)
        if text_of(path).strip() and not ast.get_docstring(tree_of(path))
    ]
    assert silent == []


def imported_modules() -> set[str]:
    """Every module that anything here imports, at the top or inside a function."""
    names: set[str] = set()
    for path in python_files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def named_in_texts() -> set[str]:
    """Modules that are imported by name, written out in a string."""
    return {
        node.value
        for path in python_files(SOURCES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"ottla(\.\w+)+", node.value)
    }


def test_every_module_is_used() -> None:
    by_registry = {f"ottla.handlers.{module}" for module, _, _ in SERVED.values()}
    used = imported_modules() | named_in_texts() | by_registry | ENTRY_POINTS
    modules = {module_of(path) for path in python_files(SOURCES) if path.name != "__init__.py"}
    assert sorted(modules - used) == []


# ----------------------------------------------------------------------------------------- tables
def test_handlers_and_registry_agree() -> None:
    modules = {path.stem for path in (SOURCES / "handlers").glob("api_*.py")}
    assert modules == {module for module, _, _ in SERVED.values()}
    for api_key, (module, low, high) in SERVED.items():
        assert re.fullmatch(rf"api_{api_key:02d}_[a-z_]+", module)
        handler = importlib.import_module(f"ottla.handlers.{module}")
        assert handler.API_KEY == api_key
        assert handler.VERSIONS == (low, high)
        assert callable(handler.handle)


def test_the_coverage_table_is_up_to_date() -> None:
    assert text_of(api_coverage.PAGE) == api_coverage.page(), "run make coverage-table"


def test_every_limit_has_its_reason() -> None:
    lines = text_of(SOURCES / "base" / "limits.py").splitlines()
    unexplained = []
    for number, line in enumerate(lines):
        if not re.match(r"[A-Z][A-Z0-9_]+\b.*=", line):
            continue
        above = number - 1
        while above >= 0 and re.match(r"[A-Z][A-Z0-9_]+\b.*=", lines[above]):
            above -= 1  # one comment may stand for the lines of one paragraph
        if not lines[above].startswith("#"):
            unexplained.append(line)
    assert unexplained == []


# -------------------------------------------------------------------------------------- documents
@pytest.mark.parametrize("path", [path for path in files() if path.suffix == ".md"], ids=name_of)
def test_a_document_has_one_title(path: Path) -> None:
    outside_code = re.sub(r"^```.*?^```", "", text_of(path), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^# .+", outside_code, flags=re.MULTILINE)
    assert len(titles) == 1
    assert outside_code.startswith(titles[0])


def test_the_version_is_told_everywhere() -> None:
    project = tomllib.loads(text_of(REPOSITORY / "pyproject.toml"))["project"]
    assert project["version"] == __version__
    assert f"\n## {__version__}" in text_of(REPOSITORY / "CHANGELOG.md")


def test_locks_hold_versions_and_hashes_only() -> None:
    locks = list((REPOSITORY / "requirements").glob("*lock.txt"))
    assert len(locks) == 3
    for lock in locks:
        for line in text_of(lock).splitlines():
            pinned = re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[\w.!+]+( ; [^\\]+)? \\", line)
            digest = re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line)
            comment = line.strip().startswith("#") or not line
            assert pinned or digest or comment, f"{lock.name}: {line}"
        assert "://" not in text_of(lock)


def test_make_chaos_has_every_test_of_chaos() -> None:
    parts = re.findall(
        r"^CHAOS_\w+ := ((?:.*\\\n)*.*)", text_of(REPOSITORY / "Makefile"), re.MULTILINE
    )
    said = " ".join(parts).replace("\\\n", " ")
    named = subprocess.run(
        ["bash", "-c", f"printf '%s\n' {said}"], capture_output=True, text=True, check=True
    ).stdout.split()
    tests = [*files_in("tests/chaos", "test_*.py"), *files_in("tests/chaos/spark", "[!_]*.py")]
    tests = [path for path in tests if "\ndef test_" in text_of(REPOSITORY / path)]
    assert [path for path in tests if path not in named] == []
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


def files_in(directory: str, pattern: str) -> list[str]:
    return sorted(f"{directory}/{path.name}" for path in (REPOSITORY / directory).glob(pattern))
