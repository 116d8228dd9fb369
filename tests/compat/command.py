"""The `ottla` command for the compat tests: inside this process, or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from ottla.cli import main
from tests.compat.confluent import new_name

OTTLA = [sys.executable, "-m", "ottla.cli.main"]


@dataclass
class Done:
    code: int
    out: bytes
    err: str

    def document(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


class Ottla:
    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "OTTLA_BOOTSTRAP": bootstrap}

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr("os.environ", self.environment)
            code = main.run(list(arguments))
            out.flush()
        return Done(code, out.buffer.getvalue(), err.getvalue())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*OTTLA, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def topics(self) -> list[Any]:
        return list(self("topic", "list", "-o", "json").document())

    def new_topic(self, partitions: int = 1, *options: str) -> str:
        topic = new_name("cli")
        done = self("topic", "create", topic, "--partitions", str(partitions), *options)
        assert (done.code, done.out.decode()) == (0, f"created {topic}\n"), done.err
        return topic
