"""Goal: the quick way into `ottla serve` reads exactly what the full command line reads.
Method: what each makes of the same arguments; a broker that only notes what it was called with.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ConfigError
from ottla.cli import main, serve
from ottla.cli.serve import ServeOptions, read_plainly

Call = tuple[str | None, list[str], str | None, str | None]

words = st.sampled_from(
    [
        "server.properties",
        "--override",
        "a=1",
        "b=2=3",
        "--data",
        "dir",
        "--listen",
        "host:1",
        "--override=c=4",
        "--data=other",
        "--listen=[::1]:9092",
        "--help",
        "--nothing",
        "-x",
    ]
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Puts a module in the place of the broker that notes how it was called."""
    noted: list[Call] = []
    module = ModuleType("ottla.broker.serve")

    def run(*arguments: object) -> int:
        noted.append(arguments)  # type: ignore[arg-type]
        return 0

    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ottla.broker.serve", module)
    return noted


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("", ServeOptions()),
        ("my.properties", ServeOptions("my.properties")),
        ("--data d --listen h:1", ServeOptions(data_dir="d", listen="h:1")),
        ("--override a=1 f --override b=-2", ServeOptions("f", ["a=1", "b=-2"])),
        ("--override=a=1=2 --data=d", ServeOptions(None, ["a=1=2"], "d")),
    ],
)
def test_plain_arguments(arguments: str, options: ServeOptions) -> None:
    assert read_plainly(arguments.split()) == options


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "-h",
        "one two",
        "--data",
        "--data --listen x",
        "--override a",
        "--override =a",
        "--nothing",
        "--data=",
    ],
)
def test_what_needs_explaining_is_left_to_the_full_command_line(arguments: str) -> None:
    assert read_plainly(arguments.split()) is None


@given(st.lists(words, max_size=6))
def test_both_ways_understand_the_same(arguments: list[str]) -> None:
    quickly = read_plainly(arguments)
    if quickly is None:
        return
    noted: list[ServeOptions] = []

    def note(options: ServeOptions) -> int:
        noted.append(options)
        return 0

    module = importlib.import_module("ottla.cli.serve_command")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.serving, "run", note)
        assert main.run_command(["serve", *arguments]) == 0
    assert noted == [quickly]


def test_the_broker_is_called(calls: list[Call]) -> None:
    arguments = ["serve", "f", "--override", "a=1", "--data", "d", "--listen", "h:1"]
    assert main.run(arguments) == 0
    assert calls == [("f", ["a=1"], "d", "h:1")]


def test_a_refused_setting_is_one_line(
    calls: list[Call], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> int:
        raise ConfigError("log.dirs is empty")

    monkeypatch.setattr(sys.modules["ottla.broker.serve"], "run", refuse)
    assert serve.run(ServeOptions()) == 1
    assert capsys.readouterr().err == "ottla: log.dirs is empty\n"


def test_the_quick_way_loads_no_option_parser_and_no_client() -> None:
    script = (
        "import sys, types; m = types.ModuleType('ottla.broker.serve');"
        "m.run = lambda *a: print(*sorted(x for x in sys.modules if '.' not in x)) or 0;"
        "sys.modules['ottla.broker.serve'] = m; sys.argv = ['ottla', 'serve', '--data', 'd'];"
        "from ottla.cli.main import app; app()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "ottla" in loaded
    assert not {"typer", "click", "rich", "confluent_kafka", "kio", "numpy"} & set(loaded)
