"""Goal: whoever imports the client gets what it needs, and not the weight of what it does not.
Method: a fresh interpreter, and the names of the modules in it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import SECONDS_MAX

HEAVY = {
    "asyncio",
    "concurrent.futures",
    "difflib",
    "kio.schema",
    "multiprocessing",
    "numpy",
    "pyarrow",
    "ssl",
    "uvloop",
}
"""Used on demand: by `ottla.client.aio`, tables, TLS, the first message of a kind, mistakes."""


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        ("import ottla.client", 50),
        ("from ottla.client import Admin, Consumer, Producer, process", 250),
    ],
)
def test_an_import_loads_nothing_heavy(statement: str, most: int) -> None:
    script = (
        f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    loaded = set(run.stdout.split())
    assert "ottla.client" in loaded
    assert not HEAVY & loaded
    assert len(loaded) < most, sorted(loaded)
