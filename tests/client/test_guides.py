"""The Python in the guides runs as it stands, one block after the other, against a broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.nodes import REPOSITORY, Node

GUIDES = REPOSITORY / "docs" / "guide"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", ["columns.md", "consuming.md"])
def test_the_python_of_a_guide_runs(name: str, ottla_node: Node) -> None:
    path: Path = GUIDES / name
    blocks = BLOCK.findall(path.read_text())
    assert blocks
    names: dict[str, object] = {}
    for number, block in enumerate(blocks):
        source = block.replace("localhost:9092", ottla_node.bootstrap)
        exec(compile(source, f"{name}, block {number + 1}", "exec"), names)
