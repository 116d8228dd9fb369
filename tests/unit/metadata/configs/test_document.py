"""Goal: the reference page says what the code does.
Method: the checked-in page against the one that the definitions make now.
"""

from __future__ import annotations

from pathlib import Path

from ottla.metadata.configs.definitions import BROKER, TOPIC
from ottla.metadata.configs.document import reference_page

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    """If not: `python -m ottla.metadata.configs.document > docs/reference/configuration.md`."""
    assert PAGE.read_text(encoding="utf-8") == reference_page()


def test_every_name_is_on_it() -> None:
    page = reference_page()
    for name in (*BROKER.by_name, *TOPIC.by_name):
        assert f"`{name}`" in page
