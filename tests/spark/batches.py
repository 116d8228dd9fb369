"""Batches of a stream reader, as tasks would read them."""

from __future__ import annotations

import json
from typing import Any

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def values_between(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """As tasks would read them, from what they would be sent."""
    found = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += [int(value) for value in batch.column("value").to_pylist()]
    return sorted(found)


def through_text(offset: dict[str, Any]) -> Any:
    return json.loads(json.dumps(offset))
