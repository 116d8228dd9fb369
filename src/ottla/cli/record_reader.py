"""Reads records from partitions that it is told, from offsets that it is told.

Assigns partitions itself: no consumer group is joined and nothing is committed. An offset that is
out of range is an error, never a silent jump.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.errors import ConfigError
from ottla.base.ids import TopicPartition
from ottla.cli.client_errors import reason_of
from ottla.cli.client_settings import settings_for
from ottla.cli.failure import Failure
from ottla.cli.model import EndReached, ReceivedRecord
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.errors import ClientError
from ottla.client.fetch_records import Record

RECORDS_AT_ONCE_MAX = 1_000
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
NO_TIMESTAMP = "NoTimestampType"
# An end behind a last record that is not shown is told only after such a wait.
LOOK_EVERY_S = 0.1


class RecordReader:
    def __init__(self, client_settings: Mapping[str, str], *, committed: bool) -> None:
        settings = consumer_settings(client_settings, committed=committed)
        self._source = EventSource(settings | {"auto.offset.reset": "none"})

    @property
    def connection_lost(self) -> str | None:
        return self._source.connection_lost()

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self._source.consumer.assign(starts)
        for partition, offset in starts.items():
            self._source.consumer.seek(partition, offset)

    def read(self, timeout_s: float) -> list[ReceivedRecord | EndReached]:
        """What has come, after at most so long; `connection_lost` says whether nobody is there."""
        try:
            return self._source.read(timeout_s, RECORDS_AT_ONCE_MAX)
        except ClientError as cause:
            raise Failure(reason_of(cause)) from cause

    def close(self) -> None:
        self._source.consumer.close()


def consumer_settings(given: Mapping[str, str], *, committed: bool) -> dict[str, Any]:
    return {
        **settings_for(ConsumerSettings, given),
        "enable.auto.commit": False,
        "fetch.max.wait.ms": int(LOOK_EVERY_S * 1_000),
        "isolation.level": "read_committed" if committed else "read_uncommitted",
    }


class EventSource:
    """A consumer that tells the ends of partitions among their records."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            self.consumer = Consumer(settings)
        except ConfigError as cause:
            raise Failure(f"bad consumer settings: {cause}") from cause
        self._at_end: dict[TopicPartition, int] = {}

    def connection_lost(self) -> str | None:
        error = self.consumer.connection_error()
        return None if error is None else reason_of(error)

    def read(self, timeout_s: float, records_max: int) -> list[ReceivedRecord | EndReached]:
        until_s = time.monotonic() + timeout_s
        while True:
            wait_s = min(LOOK_EVERY_S, max(0.0, until_s - time.monotonic()))
            found = self.consumer.poll(wait_s, records_max)
            events: list[ReceivedRecord | EndReached] = list(map(received, found))
            events += self._new_ends()
            if events or time.monotonic() >= until_s:
                return events

    def _new_ends(self) -> Iterable[EndReached]:
        before, self._at_end = self._at_end, self.consumer.caught_up()
        return [EndReached(*end) for end in sorted(self._at_end.items() - before.items())]


def received(record: Record) -> ReceivedRecord:
    has_time = record.timestamp >= 0
    return ReceivedRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        timestamp_type=TIMESTAMP_TYPES[record.timestamp_type] if has_time else NO_TIMESTAMP,
        key=record.key,
        value=record.value,
        headers=record.headers,
        leader_epoch=record.leader_epoch if record.leader_epoch >= 0 else None,
    )
