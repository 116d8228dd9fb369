"""Commands as people type them, in a directory, for a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# A command may start Spark on a machine that is busy with everything else.
SECONDS_MAX = 600.0
# For a project's ottla.yml. A short life: what a JIT spends on it never comes back.
QUICK_JAVA = """spark:
  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
SCRIPTS = Path(sysconfig.get_path("scripts"))


class Shell:
    """`scripts` is where the commands are: those of this environment, or of another."""

    def __init__(self, directory: Path, bootstrap: str, *, scripts: Path = SCRIPTS) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.scripts = scripts
        inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        self.environment = {**inherited, "OTTLA_BOOTSTRAP": bootstrap}

    def __call__(self, *arguments: str, typed: str = "", fails: bool = False) -> str:
        """`ottla` with these arguments: all that it says."""
        return self.run(str(self.scripts / "ottla"), *arguments, typed=typed, fails=fails)

    def run(self, *command: str, typed: str = "", fails: bool = False) -> str:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            input=typed,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{command} ended with {done.returncode}: {said}"
        return said

    def produce(self, topic: str, *values: str) -> None:
        self("produce", topic, typed="".join(f"{value}\n" for value in values))

    def status(self, project: str) -> Any:
        return json.loads(self("pipeline", "status", project, "--output", "json"))

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """`ottla` in the background; what it says is in `run.log`, and it is asked to end."""
        environment = dict(self.environment)
        del environment["OTTLA_BOOTSTRAP"]  # the project knows its brokers
        with (self.directory / "run.log").open("w") as log:
            process = subprocess.Popen(
                [self.scripts / "ottla", *arguments],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(SECONDS_MAX)
            finally:
                process.kill()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            log = (self.directory / "run.log").read_text()
            assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}\n{log}"
            time.sleep(0.2)
