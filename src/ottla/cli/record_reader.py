"""Reads records from partitions that it is told, from offsets that it is told.

Assigns partitions itself: no consumer group is joined and nothing is committed. An offset that is
out of range is an error, never a silent jump.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ottla.base.ids import TopicPartition
from ottla.cli.client_errors import reason_of
from ottla.cli.failure import Failure
from ottla.cli.model import EndReached, ReceivedRecord

RECORDS_AT_ONCE_MAX = 1_000
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}


class RecordReader:
    def __init__(self, client_settings: Mapping[str, Any], *, committed: bool) -> None:
        self.connection_lost: str | None = None
        try:
            self._consumer = Consumer(
                {
                    **client_settings,
                    # The library wants a name, though no group is ever joined.
                    "group.id": "ottla-cli",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "check.crcs": True,
                    # An end behind a last record that is not shown is told only after this wait.
                    "fetch.wait.max.ms": 100,
                    "isolation.level": "read_committed" if committed else "read_uncommitted",
                    "error_cb": self._on_error,
                }
            )
        except KafkaException as cause:
            raise Failure(f"bad consumer settings: {cause.args[0].str()}") from cause

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign(
            [
                KafkaTopicPartition(topic, partition, offset)
                for (topic, partition), offset in starts.items()
            ]
        )

    def read(self, timeout_s: float) -> list[ReceivedRecord | EndReached]:
        """What has come, after at most so long; `connection_lost` says whether nobody is there."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        self.connection_lost = None
        # Asked with a time-out, this waits until it has as many as it may give; so it gets none.
        others = self._consumer.consume(RECORDS_AT_ONCE_MAX, 0)
        return [event_of(message) for message in (first, *others)]

    def close(self) -> None:
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.connection_lost = reason_of(error)


def event_of(message: Any) -> ReceivedRecord | EndReached:
    error = message.error()
    if error is None:
        return _record_of(message)
    if error.code() == KafkaError._PARTITION_EOF:
        return EndReached((message.topic(), message.partition()))
    raise Failure(f"{message.topic()}-{message.partition()}: {reason_of(error)}")


def _record_of(message: Any) -> ReceivedRecord:
    timestamp_type, timestamp_ms = message.timestamp()
    return ReceivedRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms,
        timestamp_type=TIMESTAMP_TYPES.get(timestamp_type, "NoTimestampType"),
        key=message.key(),
        value=message.value(),
        headers=message.headers() or (),
        leader_epoch=message.leader_epoch(),
    )
