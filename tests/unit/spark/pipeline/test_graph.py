"""The files of a project as its definitions: what is wrong in one is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.errors import OptionError
from ottla.spark.pipeline.graph import load_graph
from ottla.spark.pipeline.project import ProjectError, find_project

SPEC = "name: shop\nstorage: s\nlibraries:\n  - glob:\n      include: t/**\n"


def load(root: Path, text: str) -> None:
    (root / "spark-pipeline.yml").write_text(SPEC)
    (root / "t").mkdir()
    (root / "t" / "orders.py").write_text(text)
    load_graph(find_project(root), None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\nprices = {}\nprices['coat']\n", r"t/orders\.py, line 3: KeyError: 'coat'"),
        ("import nowhere_at_all\n", r"t/orders\.py, line 1: ModuleNotFoundError: No module"),
        ("x = 1\ndef f(:\n", r"t/orders\.py, line 2: SyntaxError: invalid syntax"),
        ("import json\njson.loads('{')\n", r"t/orders\.py, line 2: JSONDecodeError: "),
    ],
)
def test_an_error_in_a_definition_is_told_with_its_place(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ProjectError, match=says):
        load(tmp_path, text)


def test_what_is_told_already_is_told_as_it_is(tmp_path: Path) -> None:
    text = "from ottla.spark.errors import OptionError\nraise OptionError('where to?')\n"
    with pytest.raises(OptionError, match=r"^where to\?$"):
        load(tmp_path, text)
