"""The Python in the guides runs as it stands, one block after the other, against a broker."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ottla.client import Admin, Producer, process
from tests.client.reading import values
from tests.compat.nodes import REPOSITORY, Node

GUIDES = REPOSITORY / "docs" / "guide"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run(name: str, bootstrap: str) -> None:
    path: Path = GUIDES / name
    blocks = BLOCK.findall(path.read_text())
    assert blocks
    names: dict[str, object] = {}
    for number, block in enumerate(blocks):
        source = re.sub(r"(localhost|127\.0\.0\.1):9092", bootstrap, block)
        exec(compile(source, f"{name}, block {number + 1}", "exec"), names)


@pytest.mark.parametrize("name", ["columns.md", "consuming.md", "first-minute.md", "producing.md"])
def test_the_python_of_a_guide_runs(name: str, ottla_node: Node) -> None:
    run(name, ottla_node.bootstrap)


def test_the_loop_of_the_guide_to_transactions_copies_what_there_is(
    ottla_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands it runs for ever: here it ends with the last record. Other guides have other
    records in these topics."""
    bootstrap = ottla_node.bootstrap
    payments = [b"of alice %d" % number for number in range(3)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for payment in payments:
            producer.send("payments", payment, key=b"alice")
    # The topic of the bills is made by the first of them.
    until_then = partial(process, is_over=lambda: payments[-1] in bills(bootstrap))
    monkeypatch.setattr("ottla.client.process", until_then)
    run("transactions.md", bootstrap)
    assert [bill for bill in bills(bootstrap) if bill in payments] == payments


def test_the_tests_of_the_guide_to_testing_pass(tmp_path: Path) -> None:
    """Each block is a file of its own, as in somebody's project."""
    blocks = BLOCK.findall((GUIDES / "testing.md").read_text())
    for number, block in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stdout
    count = sum(block.count("def test_") for block in blocks)
    assert f"{count} passed" in ended.stdout


def bills(bootstrap: str) -> list[bytes | None]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        is_there = "bills" in {topic.name for topic in admin.list_topics()}
    return values(bootstrap, "bills", committed=True) if is_there else []
