"""Which offsets a batch ends at: what Spark has written into the checkpoint before it began."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ottla.spark.errors import OffsetError, OptionError
from ottla.spark.offsets import NOTES, Position, position_of
from ottla.spark.source_options import Given


def checkpoint_of(given: Given) -> str:
    """Spark does not show a sink where the session's own setting puts the checkpoint."""
    text = (given.text("checkpointLocation") or "").strip()
    if not text:
        raise OptionError(
            "option checkpointLocation is missing: each commit holds the offsets that it ends at, "
            "and they stand there. A setting of the session (spark.sql.streaming."
            "checkpointLocation) is not enough"
        )
    return text


def offsets_of_batch(checkpoint: str, batch: int) -> dict[str, dict[str, int]]:
    """By topic and partition, of all sources of ours; empty where there are none."""
    return merged(_read(checkpoint, batch))


def merged(text: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for position in positions_in(text):
        for (topic, partition), offset in sorted(position.next_offsets.items()):
            found.setdefault(topic, {})[str(partition)] = offset
    return found


def positions_in(text: str) -> Iterator[Position]:
    """Of sources of ours in a file of Spark's offset log: a version, the batch's notes, a line a
    source."""
    for line in text.splitlines()[2:]:
        try:
            given: Any = json.loads(line)
        except ValueError:
            continue
        if not isinstance(given, dict) or NOTES not in given:
            continue
        try:
            yield position_of(given)
        except OffsetError:
            continue


def _read(checkpoint: str, batch: int) -> str:
    from ottla.spark.tables.places import Place

    return Place(checkpoint).read(f"offsets/{batch}").decode()
