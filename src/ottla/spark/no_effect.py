"""Settings of Kafka's clients that mean nothing here: taken, since code for the stock connector has
them, and told by name with what holds instead.

Refused is what would change which rows there are; these only say how Java's client goes about it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

log = logging.getLogger(__name__)

_NO_GROUP = "queries join no group: Spark says which task reads what"
_PLACED = "rows go where their key says, or their column partition"

READING: Final = {
    "allow.auto.create.topics": "a topic that is missing is an error",
    "auto.commit.interval.ms": "offsets are committed at the end of each batch",
    "exclude.internal.topics": "a pattern never means internal topics",
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "max.poll.interval.ms": _NO_GROUP,
    "partition.assignment.strategy": _NO_GROUP,
    "session.timeout.ms": _NO_GROUP,
}
WRITING: Final = {
    "buffer.memory": "a task has two batches of rows in memory, as Spark hands them over",
    "linger.ms": "rows are sent as Spark hands them over; batch.size says how many at once",
    "max.in.flight.requests.per.connection": "one batch of each partition is under way",
    "metadata.max.idle.ms": "topics are known as long as the process lives",
    "partitioner.adaptive.partitioning.enable": _PLACED,
    "partitioner.availability.timeout.ms": _PLACED,
    "retries": "delivery.timeout.ms says for how long a batch is tried",
    "transaction.two.phase.commit.enable": "transactions are prepared wherever brokers can",
}

_told: set[str] = set()


def tell(settings: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Once in a process: Spark asks for a writer with every batch."""
    for name in sorted(settings.keys() & known.keys()):
        if name not in _told:
            _told.add(name)
            log.warning("option kafka.%s has no effect here: %s", name, known[name])
