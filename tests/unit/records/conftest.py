"""Which of the twins looks at the records: Python's own code, or the compiled short cuts too."""

from __future__ import annotations

import pytest

from ottla.records import validation, walk


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a compiler."""
    monkeypatch.setattr(validation, "compiled", None)
    monkeypatch.setattr(walk, "compiled", None)


@pytest.fixture(params=["by Python", "as it is here"])
def by_both(request: pytest.FixtureRequest) -> None:
    if request.param == "by Python":
        request.getfixturevalue("by_python")
