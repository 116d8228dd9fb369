"""Sends records to one topic and keeps the count of what became of them.

Partitions are chosen as the Java client does (murmur2 of the key), so that a key produced here
lands where the services of the house put it. With acks=all the producer is idempotent: a retry
never writes a record twice. Deliveries are told in the client's own thread: the counts have a lock.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ottla.base.errors import ConfigError
from ottla.cli.client_errors import reason_of
from ottla.cli.client_settings import settings_for
from ottla.cli.failure import Failure
from ottla.cli.model import RecordToSend, SenderSettings
from ottla.client.errors import BufferFullError, ClientError, TimedOutError, UnknownTopicError
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings

# The broker knows its own limit and answers with it; ours only keeps a mistake out of memory.
RECORD_BYTES_MAX = 100_000_000
MEMORY_BYTES_MAX = 2 * RECORD_BYTES_MAX
BATCH_BYTES = 1_000_000
LINGER_MS = 5
FLUSH_STEP_S = 0.2
TOPIC_TIMEOUT_MS = 5_000
"""A topic of which nobody has heard by then is not there."""


class RecordSender:
    def __init__(
        self,
        client_settings: Mapping[str, str],
        topic: str,
        settings: SenderSettings,
        batch_bytes_max: int | None,
    ) -> None:
        self.topic = topic
        self.sent = 0
        self.failed = 0
        self.first_failure: str | None = None
        self.delivered_by_partition: Counter[int] = Counter()
        self._settled = threading.Condition()
        self._hopeless: ClientError | None = None
        timeout_ms = max(settings.timeout_ms, LINGER_MS + 1)
        try:
            self._producer = Producer(
                {
                    **settings_for(ProducerSettings, client_settings),
                    "compression.type": settings.compression,
                    "acks": settings.acks,
                    "enable.idempotence": settings.acks == "all",
                    "max.request.size": RECORD_BYTES_MAX,
                    "buffer.memory": MEMORY_BYTES_MAX,
                    "batch.size": max(1, min(batch_bytes_max or BATCH_BYTES, BATCH_BYTES)),
                    "linger.ms": LINGER_MS,
                    "delivery.timeout.ms": timeout_ms,
                    "request.timeout.ms": timeout_ms - LINGER_MS,
                    "max.block.ms": min(timeout_ms, TOPIC_TIMEOUT_MS),
                }
            )
        except ConfigError as cause:
            raise Failure(f"bad producer settings: {cause}") from cause
        # What was not delivered when a command is broken off is not waited for.
        self.close = weakref.finalize(self, self._producer.close, 0.0)

    def send(self, record: RecordToSend) -> None:
        """Waits only while the memory is full; a refusal is counted like a failed delivery."""
        self.sent += 1
        if self._hopeless is not None:
            self._on_failure(self._hopeless)
            return
        while True:
            try:
                self._producer.send(
                    self.topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    record.partition,
                    record.timestamp_ms,
                    on_delivery=self._on_delivery,
                )
            except BufferFullError:
                continue  # each record in it has its time-out
            except (UnknownTopicError, TimedOutError) as error:
                if record.partition is None:
                    # It would be waited for again with each record.
                    self._hopeless = error
                self._on_failure(error)
            except ClientError as error:
                self._on_failure(error)
            return

    def wait(self, seconds: float) -> None:
        """Deliveries are reported in the meantime."""
        time.sleep(seconds)

    def unsent(self) -> int:
        with self._settled:
            return self._open()

    def flush_step(self) -> int:
        """Waits a moment for deliveries; gives how many are still open."""
        with suppress(TimedOutError):
            self._producer.flush(FLUSH_STEP_S)
        with self._settled:
            # The last of them may be acknowledged and not told yet.
            self._settled.wait_for(lambda: self._open() == 0, FLUSH_STEP_S)
            return self._open()

    def _open(self) -> int:
        return self.sent - self.failed - self.delivered()

    def delivered(self) -> int:
        return self.delivered_by_partition.total()

    def _on_delivery(self, metadata: Any, error: Exception | None) -> None:
        if error is not None:
            self._on_failure(error)
            return
        with self._settled:
            self.delivered_by_partition[metadata.partition] += 1
            self._settled.notify_all()

    def _on_failure(self, error: Exception) -> None:
        with self._settled:
            self.failed += 1
            if self.first_failure is None:
                self.first_failure = reason_of(error)
            self._settled.notify_all()
