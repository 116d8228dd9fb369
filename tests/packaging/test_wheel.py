"""Goal: the wheel holds the whole product and nothing else, is for any machine, and works where
only it is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.patience import SECONDS_MAX

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = REPOSITORY / "src"


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    environment = dict(os.environ, PYTHONPATH=str(path or ""))
    done = subprocess.run(
        [sys.executable, "-P", *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run("-m", "hatchling", "build", "--target", "wheel", "-d", str(directory), cwd=REPOSITORY)
    (made,) = directory.iterdir()
    return made


def test_it_is_for_any_machine_and_holds_the_sources(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    # What was compiled is for this machine only; the sources of it are for all.
    files = (path for path in SOURCES.rglob("*") if path.is_file() and path.suffix != ".so")
    wanted = {str(path.relative_to(SOURCES)) for path in files if "__pycache__" not in path.parts}
    assert held == wanted


def test_it_works_where_only_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    options = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    run("-m", "pip", "install", *options, "--target", str(target), str(wheel), cwd=tmp_path)
    program = (
        "import ottla.testing as testing\n"
        "with testing.Broker() as broker:\n"
        "    print(testing.__file__, broker.port > 0)\n"
    )
    told = run("-c", program, cwd=tmp_path, path=target)
    assert told.split() == [str(target / "ottla" / "testing" / "__init__.py"), "True"]
    assert "Usage" in run("-m", "ottla.cli.main", "--help", cwd=tmp_path, path=target)
