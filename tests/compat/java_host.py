"""One JVM for all Java tests: Kafka's tools and the Java client (see java/ClientHost.java)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.compat.nodes import REPOSITORY, kafka_jars

SOURCES = Path(__file__).with_name("java")
STOP_SECONDS_MAX = 60


class ToolRun(NamedTuple):
    status: int
    output: str
    errors: str


class JavaHost:
    def __init__(self, log_path: Path) -> None:
        classpath = f"{compiled_classes()}:{kafka_jars()}/*"
        # Scenarios are short: the second compiler tier would only compete with the broker for CPU.
        flags = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        self._log_path = log_path
        self._log = log_path.open("wb")
        self._process = subprocess.Popen(
            ["java", *flags, quiet, "-cp", classpath, "ClientHost"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def tool(self, main_class: str, *arguments: str, given: str = "") -> ToolRun:
        """Runs a command-line tool, by its class below org.apache.kafka.tools or in full."""
        outside = main_class.startswith(("kafka.", "org."))
        full = main_class if outside else f"org.apache.kafka.tools.{main_class}"
        answer = self._ask({"tool": full, "arguments": list(arguments), "input": given})
        return ToolRun(answer["exit"], answer["output"], answer["errors"])

    def run(self, scenario: str, **arguments: Any) -> Any:
        """Runs a scenario; underscores in argument names stand for blanks."""
        spoken = {name.replace("_", " "): value for name, value in arguments.items()}
        answer = self._ask({"scenario": scenario, "arguments": spoken})
        assert "error" not in answer, f"{scenario}: {answer['error']}"
        return answer["result"]

    def refusal(self, scenario: str, **arguments: Any) -> str:
        """The class of the exception that a scenario ends in."""
        spoken = {name.replace("_", " "): value for name, value in arguments.items()}
        answer = self._ask({"scenario": scenario, "arguments": spoken})
        assert "error" in answer, f"{scenario} was not refused: {answer}"
        return str(answer["error"]).partition(":")[0]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STOP_SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the JVM ended: {self._log_path.read_text()[-2000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer


def compiled_classes() -> Path:
    """The classes of java/*.java, compiled once for each state of the sources."""
    sources = sorted(SOURCES.glob("*.java"))
    state = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = REPOSITORY / ".cache" / "compat-java" / state
    if not classes.exists():
        # Two test processes may compile at once: each into a directory of its own, the first wins.
        fresh = classes.with_name(f"{state}-{os.getpid()}")
        fresh.mkdir(parents=True)
        command = ["javac", "-proc:none", "-cp", f"{kafka_jars()}/*", "-d", str(fresh)]
        subprocess.run([*command, *map(str, sources)], check=True, capture_output=True, text=True)
        try:
            fresh.rename(classes)
        except OSError:
            assert classes.exists()
    return classes
