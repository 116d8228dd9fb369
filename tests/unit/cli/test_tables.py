"""Goal: tables are aligned and clean off a terminal, whatever their width; sizes read well.
Method: the exact text.
"""

from __future__ import annotations

import pytest

from ottla.cli.output import Size, plural
from ottla.cli.tables import print_table


def test_figures_to_the_right_words_to_the_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(
        ["NAME", "COUNT", "SIZE"],
        [("a", 5, Size(10)), ("long name", 12_345, Size(2048)), ("[bold]x[/bold]", None, None)],
    )
    assert capsys.readouterr().out == (
        "NAME            COUNT     SIZE\n"
        "a                   5     10 B\n"
        "long name       12345  2.0 KiB\n"
        "[bold]x[/bold]      -        -\n"
    )


def test_a_cell_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "VALUE"], [("a\nb", "\x1b[2Jß")])
    assert capsys.readouterr().out == "NAME  VALUE\na\\nb  \\x1b[2Jß\n"


def test_a_pipe_has_no_edge(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "VALUE"], [("n" * 200, "v" * 300)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["NAME" + " " * 198 + "VALUE", "n" * 200 + "  " + "v" * 300]


def test_a_table_without_rows_is_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "VALUE"], [])
    assert capsys.readouterr().out == "NAME  VALUE\n"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (3 * 1024**6, "3072.0 PiB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert str(Size(size_bytes)) == text


def test_plural() -> None:
    assert [plural(count, "record") for count in (0, 1, 2)] == [
        "0 records",
        "1 record",
        "2 records",
    ]
