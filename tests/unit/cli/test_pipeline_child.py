"""A command that is ended takes the process with it that it waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import SECONDS_MAX

# The child says that it is there, and then waits for the end of its input, as an inspection does.
CHILD = """
import os, pathlib, sys
out = open(sys.argv[1], "w")
out.write(f"{os.getpid()}\\n"); out.flush()
os.read(0, 1)
"""
COMMAND = """
import os, pathlib, sys
from ottla.cli.pipeline_child import run_child
child = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
run_child(child, cwd=pathlib.Path(), environment=os.environ, is_quiet=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_child_does_not_outlive_its_command(tmp_path: Path, number: signal.Signals) -> None:
    """The child holds a pipe open as long as it lives: the end of that is its end."""
    fifo = tmp_path / "child"
    os.mkfifo(fifo)
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, CHILD, str(fifo)], stderr=subprocess.DEVNULL
    ) as command:
        with fifo.open() as lives:
            assert int(lives.readline()) != command.pid
            command.send_signal(number)
            assert lives.read() == "", "the child is still there"
        code = command.wait(SECONDS_MAX)
    assert code in {signal.SIGTERM: (143,), signal.SIGKILL: (-9,), signal.SIGINT: (-2, 130)}[number]
