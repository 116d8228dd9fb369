"""Sends records to one topic and keeps the count of what became of them.

Partitions are chosen as the Java client does (murmur2 of the key), so that a key produced here
lands where the services of the house put it. With acks=all the producer is idempotent: a retry
never writes a record twice.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ottla.cli.client_errors import reason_of
from ottla.cli.failure import Failure
from ottla.cli.model import RecordToSend, SenderSettings

# The broker knows its own limit and answers with it; ours only keeps a mistake out of memory.
RECORD_BYTES_MAX = 100_000_000
BATCH_BYTES = 1_000_000
FLUSH_STEP_S = 0.2
READY_TIMEOUT_S = 5.0
ANY_PARTITION = -1


class RecordSender:
    def __init__(
        self,
        client_settings: Mapping[str, Any],
        topic: str,
        settings: SenderSettings,
        batch_bytes_max: int | None,
    ) -> None:
        self.topic = topic
        self.sent = 0
        self.failed = 0
        self.first_failure: str | None = None
        self.delivered_by_partition: Counter[int] = Counter()
        try:
            self._producer = Producer(
                {
                    **client_settings,
                    "compression.type": settings.compression,
                    "acks": settings.acks,
                    "enable.idempotence": settings.acks == "all",
                    "partitioner": "murmur2_random",
                    "message.max.bytes": RECORD_BYTES_MAX,
                    "batch.size": max(1, min(batch_bytes_max or BATCH_BYTES, BATCH_BYTES)),
                    "message.timeout.ms": settings.timeout_ms,
                    "topic.metadata.propagation.max.ms": 5_000,
                }
            )
        except KafkaException as cause:
            raise Failure(f"bad producer settings: {cause.args[0].str()}") from cause
        self._make_ready()

    def _make_ready(self) -> None:
        # The library asks for its producer id when it starts; if it is not connected by then, only
        # half a second later. A question that needs the connection first often saves that wait.
        with contextlib.suppress(KafkaException):
            self._producer.list_topics(self.topic, timeout=READY_TIMEOUT_S)

    def send(self, record: RecordToSend) -> None:
        """Waits only while the queue is full; a refusal is counted like a failed delivery."""
        self.sent += 1
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value=record.value,
                    key=record.key,
                    partition=ANY_PARTITION if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(record.headers),
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(FLUSH_STEP_S)
            except KafkaException as cause:
                self._on_failure(cause.args[0])
                return
            else:
                self._producer.poll(0)
                return

    def wait(self, seconds: float) -> None:
        """Lets deliveries be reported for so long."""
        self._producer.poll(seconds)

    def unsent(self) -> int:
        return len(self._producer)

    def flush_step(self) -> int:
        """Waits a moment for deliveries; gives how many are still open."""
        return int(self._producer.flush(FLUSH_STEP_S))

    def delivered(self) -> int:
        return self.delivered_by_partition.total()

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.delivered_by_partition[message.partition()] += 1
        else:
            self._on_failure(error)

    def _on_failure(self, error: KafkaError) -> None:
        self.failed += 1
        if self.first_failure is None:
            self.first_failure = reason_of(error)
