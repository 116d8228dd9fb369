"""The one Spark session of a measurement, and what all of its processes have spent.

Both connectors run in it, one case after another: the same JVM, as warm for one as for the other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.kafka_jars import REPOSITORY
from bench.processes import cpu_seconds_in, resident_bytes
from ottla.spark.session import (
    LOCAL_CHECKPOINTS,
    PATIENCE,
    PATIENT_ENVIRONMENT,
    without_checksums,
)
from ottla.spark.worker_start import python_for_spark

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PARENT, _CHILDREN_USER, _CHILDREN_SYSTEM = 1, 13, 14  # after the command's name


def open_session(directory: Path, jars: Sequence[Path], *, is_tuned: bool) -> Any:
    settings: dict[str, str] = {
        **(LOCAL_CHECKPOINTS if is_tuned else {}),
        **PATIENCE,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": ":".join(str(jar) for jar in jars),
        "spark.driver.memory": "2g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "5000",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    os.environ.pop("SPARK_HOME", None)
    os.environ.update(PATIENT_ENVIRONMENT)
    os.environ["PYSPARK_PYTHON"] = python_for_spark()
    os.environ["PYTHONPATH"] = str(REPOSITORY)  # for the empty source, which is not installed
    builder = SparkSession.builder.master("local[2]").appName("ottla-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if is_tuned:
        without_checksums(session)
    return session


def stats() -> Mapping[int, str]:
    """/proc/PID/stat of everything that lives."""
    found = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found[int(process.name)] = (process / "stat").read_text()
            except OSError:
                continue  # it has ended in the meantime
    return found


def below(root: int, all_stats: Mapping[int, str]) -> list[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for pid, text in all_stats.items():
        parent = int(text.rpartition(")")[2].split()[_PARENT])
        children.setdefault(parent, []).append(pid)
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting.extend(children.get(pid, []))
    return found


def tree_cpu_seconds(root: int) -> float:
    """Of a process and its descendants, those included that it has seen end."""
    everything = stats()
    total = 0.0
    for pid in below(root, everything):
        text = everything.get(pid, "")
        if text:
            fields = text.rpartition(")")[2].split()
            ended = int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])
            total += cpu_seconds_in(text) + ended / _TICKS_PER_SECOND
    return total


def resident_below(root: int) -> dict[int, int]:
    """Resident memory of each descendant."""
    found = {}
    for pid in below(root, stats()):
        if pid != root:
            try:
                found[pid] = resident_bytes(pid)
            except OSError:
                continue  # it has ended in the meantime
    return {pid: size for pid, size in found.items() if size}


def jvm_pid(root: int) -> int:
    """The JVM of the session: a child of this process."""
    everything = stats()
    for pid in below(root, everything):
        if "(java)" in everything.get(pid, ""):
            return pid
    raise AssertionError("no JVM below this process")
