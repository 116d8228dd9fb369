"""A broker process that is shown everything a broker must survive, under a memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.nodes import OttlaNode

ADDRESS_BYTES_MAX = 2 << 30


class LimitedNode(OttlaNode):
    """With 2 GiB of address space: a size that is believed ends the process at once."""

    def command(self) -> list[str]:
        return ["prlimit", f"--as={ADDRESS_BYTES_MAX}", *super().command()]

    def resident_bytes(self) -> int:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024


@pytest.fixture(scope="session")
def hostile_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedNode]:
    settings = {"max.connections": "600", "max.connection.creation.rate": "1000000"}
    node = LimitedNode(tmp_path_factory.mktemp("hostile"), settings)
    node.start()
    yield node
    node.close()
