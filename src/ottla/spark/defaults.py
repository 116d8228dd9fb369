"""What sources and sinks take from the environment where their options are silent.

Set by the runner of a pipeline for the processes below it, or by people for a whole machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

BOOTSTRAP = "OTTLA_BOOTSTRAP"
GROUP = "OTTLA_SPARK_GROUP"
DEAD_LETTERS = "OTTLA_SPARK_DEAD_LETTERS"
STARTING_OFFSETS = "OTTLA_SPARK_STARTING_OFFSETS"
PREVIEW_ROWS = "OTTLA_SPARK_PREVIEW_ROWS"

_BY_TIME = ("startingtimestamp", "startingoffsetsbytimestamp")


def completed(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with brokers where they name none."""
    found = dict(options)
    servers = os.environ.get(BOOTSTRAP, "")
    if servers and not _has(options, "kafka.bootstrap.servers"):
        found["kafka.bootstrap.servers"] = servers
    return found


def completed_for_reading(options: Mapping[str, str]) -> dict[str, str]:
    """The same, with the beginning of the group's name."""
    found = completed(options)
    prefix = os.environ.get(GROUP, "")
    if prefix and not _has(options, "groupidprefix") and not _has(options, "kafka.group.id"):
        found["groupIdPrefix"] = prefix
    return _from_the_first(found) if preview_rows() else found


def _from_the_first(options: dict[str, str]) -> dict[str, str]:
    """A preview is of what is there: nothing comes after the latest record while it looks."""
    start = next((one for one in options if one.lower() == "startingoffsets"), "startingOffsets")
    is_by_time = any(_has(options, one) for one in _BY_TIME)
    if options.get(start, "latest").strip().lower() == "latest" and not is_by_time:
        options[start] = "earliest"
    return options


def _has(options: Mapping[str, str], name: str) -> bool:
    return any(given.lower() == name for given in options)


def dead_letters() -> str:
    return os.environ.get(DEAD_LETTERS, "")


def starting_offsets() -> str:
    """Instead of the option, for queries that begin: what `ottla pipeline reset --to` has said."""
    return os.environ.get(STARTING_OFFSETS, "")


def preview_rows() -> int:
    """0: no preview."""
    return int(os.environ.get(PREVIEW_ROWS, "0"))
