"""Where and with what a run was made: without it, figures of two runs cannot be told apart."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.kafka_jars import REPOSITORY, kafka_version

PACKAGES = ("ottla", "kio", "uvloop", "google-crc32c", "cramjam", "confluent-kafka")


def machine_facts() -> dict[str, Any]:
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "kafka": kafka_version(),
        "java": _first_line(["java", "-version"]),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "kernel": platform.release(),
        "processor": _proc_value("cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": _proc_value("meminfo", "MemTotal"),
        "load_before": os.getloadavg()[0],
    }


def commit() -> str:
    """The commit that is measured; a plus says that the tree has changes of its own."""
    head = _first_line(["git", "rev-parse", "--short=12", "HEAD"])
    changed = _first_line(["git", "status", "--porcelain", "--untracked-files=no", "src"])
    return f"{head}+" if changed else head


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    except FileNotFoundError:
        return ""
    return next(iter((done.stdout or done.stderr).splitlines()), "")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _proc_value(name: str, key: str) -> str:
    for line in Path(f"/proc/{name}").read_text().splitlines():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return ""
