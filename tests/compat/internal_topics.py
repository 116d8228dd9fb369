"""What Kafka's console consumer needs to read all that an internal topic holds about one key."""

from __future__ import annotations

from ottla.runtime.key_hash import java_hash
from tests.compat.confluent import admin_client, watermarks
from tests.compat.wire import Wire, batches_in, stored_bytes
from tests.patience import SECONDS_MAX


def everything_about(bootstrap: str, key: str, topic: str) -> tuple[str, ...]:
    """Options for the partition of `topic` that holds `key`, from its begin to where it ends now.

    It ends by the number of records: no time-out decides how much a busy machine reads. And it
    assigns itself, so that it writes nothing into what it reads.
    """
    found = admin_client(bootstrap).list_topics(topic, timeout=SECONDS_MAX).topics[topic]
    partition = java_hash(key) % len(found.partitions)
    _, end = watermarks(bootstrap, topic, partition)
    with Wire(bootstrap) as wire:
        batches = batches_in(stored_bytes(wire, topic, end, partition=partition))
    count = sum(batch.record_count for batch in batches if not batch.is_control)
    place = ("--topic", topic, "--partition", str(partition), "--offset", "earliest")
    return (*place, "--max-messages", str(count), "--timeout-ms", str(int(SECONDS_MAX * 1000)))
