"""Goal: the reference page says what the code does, and no setting that is read is called idle.
Method: the checked-in page against the one that the definitions make now; the names of settings in
the sources against the definitions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from ottla.coordinator.group_config import GroupConfig
from ottla.metadata.configs.definitions import BROKER, TOPIC
from ottla.metadata.configs.document import reference_page

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "configuration.md"
READERS = ("broker", "handlers", "log", "metadata", "net", "replication", "runtime")


def test_the_page_is_up_to_date() -> None:
    """If not: `python -m ottla.metadata.configs.document > docs/reference/configuration.md`."""
    assert PAGE.read_text(encoding="utf-8") == reference_page()


def test_every_name_is_on_it() -> None:
    page = reference_page()
    for name in (*BROKER.by_name, *TOPIC.by_name):
        assert f"`{name}`" in page


def names_in_the_sources() -> Iterator[str]:
    for room in READERS:
        for path in (ROOT / "src" / "ottla" / room).rglob("*.py"):
            if path.parent.name != "configs":
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        yield node.value
    for field in fields(GroupConfig):
        yield field.name.replace("_", ".")


def test_what_is_read_is_not_called_without_effect() -> None:
    named = set(names_in_the_sources())
    assert {"replica.lag.time.max.ms", "offsets.retention.minutes"} <= named
    idle = {
        definition.name
        for definition in (*BROKER.by_name.values(), *TOPIC.by_name.values())
        if not definition.has_effect
    }
    assert sorted(named & idle) == []
