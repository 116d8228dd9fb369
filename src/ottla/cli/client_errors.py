"""The client library's errors in words for people."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

# Where the library says it is itself or the broker that speaks; the sentence says that already.
SPEAKER = re.compile(r"^(Unable to produce message: )?(Local|Broker): ")


def reason_of(error: KafkaError) -> str:
    """The broker's own words where it sent some, and the name to search for."""
    words = SPEAKER.sub("", error.str()).rstrip(".")
    return f"{words} ({error.name().removeprefix('_')})"
