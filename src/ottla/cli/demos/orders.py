"""A shop that takes orders all the time: a producer in a thread, and what became of each order."""

from __future__ import annotations

import threading
import time
from collections import Counter

from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.client import Consumer, Producer
from ottla.client.delivery import RecordMetadata

CUSTOMERS = 30
DELIVERY_TIMEOUT_MS = 110_000
READ_SECONDS_MAX = 60.0


class Orders:
    """Each order has a number of its own, so that one which is lost or doubled can be named."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        orders_per_s: float = 100.0,
        acks: str = "all",
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> None:
        self.topic = topic
        self.sent = 0
        self.acked: dict[str, TopicPartition | None] = {}
        self.failed: list[str] = []
        self.longest_gap_s: dict[int, float] = {}
        """By partition: the longest time between one acknowledgement and the next."""
        self._last_ack_s: dict[int, float] = {}
        self._pause_s = 1 / orders_per_s
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._producer = Producer(
            bootstrap_servers=bootstrap,
            acks=acks,
            enable_idempotence=acks == "all",
            linger_ms=0,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=min(5_000, delivery_timeout_ms),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            self.send()

    def send(self, partition: int | None = None) -> None:
        self.sent += 1
        order = f"order {self.sent}"
        customer = f"customer {self.sent % CUSTOMERS}".encode()

        def on_delivery(metadata: RecordMetadata | None, error: OttlaError | None) -> None:
            self._delivered(order, metadata)

        try:
            self._producer.send(
                self.topic, order.encode(), customer, partition=partition, on_delivery=on_delivery
            )
        except OttlaError:
            self._delivered(order, None)

    def _delivered(self, order: str, metadata: RecordMetadata | None) -> None:
        now_s = time.monotonic()
        with self._lock:
            if metadata is None:
                self.failed.append(order)
                return
            partition = metadata.partition
            self.acked[order] = (self.topic, partition)
            gap_s = now_s - self._last_ack_s.get(partition, now_s)
            self.longest_gap_s[partition] = max(self.longest_gap_s.get(partition, 0.0), gap_s)
            self._last_ack_s[partition] = now_s

    @property
    def acked_count(self) -> int:
        with self._lock:
            return len(self.acked)

    def stop(self) -> None:
        """Sends no more, and waits until it is known what became of each."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.close()


def read_all(bootstrap: str, topic: str, partitions: int) -> Counter[str]:
    """How often each order can be read, up to what can be read now."""
    places = [(topic, partition) for partition in range(partitions)]
    found: Counter[str] = Counter()
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        left = {place for place, end in ends.items() if end > 0}
        deadline = time.monotonic() + READ_SECONDS_MAX
        while left and time.monotonic() < deadline:
            for record in consumer.poll(0.5):
                found[bytes(record.value).decode()] += 1
                place = (record.topic, record.partition)
                if record.offset + 1 >= ends[place]:
                    left.discard(place)
    return found
