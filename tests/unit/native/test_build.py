"""Goal: who has a compiler gets the twins, who has none is told so and misses nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ottla.native import MODULE, build
from tests.patience import SECONDS_MAX


@pytest.fixture(autouse=True)
def _twins_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tests run with."""
    monkeypatch.delenv("OTTLA_PURE", raising=False)


def told(program: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        timeout=SECONDS_MAX,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_they_can_be_left_out() -> None:
    seen = told(
        "from ottla import native\n"
        "from ottla.records.crc32c import crc32c\n"
        "print(native.compiled, crc32c(memoryview(b'123456789')))",
        OTTLA_PURE="1",
    )
    assert seen.split() == ["None", str(0xE3069283)]


def test_one_of_another_machine_is_left_out_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / build.file_name()).write_bytes(b"of another machine")
    seen = told(
        "import sys, warnings\n"
        "import ottla.native as native\n"
        f"native.__path__ = [{str(tmp_path)!r}]\n"
        f"sys.modules.pop({MODULE!r}, None)\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print(native._load(), [str(warning.message) for warning in caught])"
    )
    assert seen.startswith("None") and "it can not be loaded" in seen


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("OTTLA_PURE", "1", "OTTLA_PURE is set"),
        ("CC", "no-such-compiler", "there is no C compiler"),
    ],
)
def test_why_nothing_is_compiled(
    variable: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert build.missing() == reason


def test_without_the_headers_of_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setattr(build, "compiler", lambda: "cc")
    assert build.missing() == "the headers of Python are not installed"


def test_on_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert build.missing() == "not for cpython on riscv64"


def test_what_was_compiled_before_does_not_stay_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else it would be of other sources than those beside it."""
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    monkeypatch.setenv("OTTLA_PURE", "1")
    (tmp_path / build.file_name()).touch()
    build.main()
    assert not (tmp_path / build.file_name()).exists()
    assert "nothing compiled, OTTLA_PURE is set" in capsys.readouterr().out


def test_a_compiler_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "compiler", lambda: "false")
    with pytest.raises(subprocess.CalledProcessError):
        build.build(tmp_path)
    assert not list(tmp_path.iterdir())
