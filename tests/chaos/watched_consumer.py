"""A consumer of librdkafka that is replaced when it has locked itself up.

librdkafka 2.16.0 can do so for good when a leader goes while an epoch is looked up: its main thread
holds a partition and wants the client, a broker's thread the other way round (seen in a debugger,
in `rd_kafka_toppar_handle_OffsetForLeaderEpoch` and `rd_kafka_toppar_forget_leader` or
`rd_kafka_toppar_undelegate`). Its statistics, which come from that main thread whatever brokers do,
then end: so a client that hangs in itself is told from one that a broker keeps waiting, and only
the former is replaced.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import confluent_kafka

LOCKED_UP_SECONDS = 60.0
"""Without statistics, which are due every second."""
SETTINGS: dict[str, str | int] = {
    "group.id": "chaos-reader",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
    "statistics.interval.ms": 1000,
}


class WatchedConsumer:
    """Reads from `places` on, which it keeps; an offset that is gone is told in `failed`."""

    def __init__(
        self,
        settings: dict[str, str | int],
        places: dict[tuple[str, int], int],
        take: Callable[[confluent_kafka.Message], None],
    ) -> None:
        self.failed: list[str] = []
        self._settings = SETTINGS | settings
        self._places = places
        self._take = take

    def read(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._read_by_one_client(stopping)

    def _read_by_one_client(self, stopping: threading.Event) -> None:
        heard_s = time.monotonic()

        def on_statistics(_: str) -> None:
            nonlocal heard_s
            heard_s = time.monotonic()

        consumer = confluent_kafka.Consumer(self._settings | {"stats_cb": on_statistics})
        consumer.assign(
            [confluent_kafka.TopicPartition(*place, at) for place, at in self._places.items()]
        )
        while not stopping.is_set():
            message = consumer.poll(0.2)
            if time.monotonic() - heard_s > LOCKED_UP_SECONDS:
                # To end it would take for ever, too: nobody is to try, not even at exit.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))
                return
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._take(message)
                place = message.topic() or "", message.partition() or 0
                self._places[place] = (message.offset() or 0) + 1
            elif error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                self.failed.append(str(error))
        consumer.close()
