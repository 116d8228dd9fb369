"""Where Apache Kafka's jars are, and which version they have. `make kafka-jars` brings them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bench.errors import BenchError

REPOSITORY = Path(__file__).resolve().parents[1]
_CLIENTS = re.compile(r"kafka-clients-(\d[\w.]*)\.jar")


class JarsMissing(BenchError):
    """There is no Apache Kafka to measure against."""


def jars_directory() -> Path:
    """OTTLA_KAFKA_JARS or KAFKA_JARS if set, else what `make kafka-jars` fills."""
    named = os.environ.get("OTTLA_KAFKA_JARS") or os.environ.get("KAFKA_JARS")
    return Path(named) if named else REPOSITORY / ".cache" / "kafka"


def kafka_version() -> str:
    directory = jars_directory()
    names = sorted(path.name for path in directory.glob("kafka-clients-*.jar"))
    found = [match.group(1) for name in names if (match := _CLIENTS.fullmatch(name))]
    if not found:
        raise JarsMissing(f"no Kafka jars in {directory}: run make kafka-jars")
    return found[0]
