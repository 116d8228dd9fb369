"""confluent-kafka (librdkafka) in a few calls: the client most of these tests talk through."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.nodes import wait_until
from tests.compat.wire import Wire, fetch
from tests.patience import SECONDS_MAX


def new_name(prefix: str = "compat") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


@cache
def admin_client(bootstrap: str) -> AdminClient:
    """One for each broker: it must outlive its futures, and connecting costs more than a call."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(
    bootstrap: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
) -> str:
    """A new topic whose partitions are all served; it keeps records of any age unless told."""
    topic = name or new_name()
    settings = {"retention.ms": "-1", **(configs or {})}
    new = NewTopic(topic, partitions, 1, config=settings)
    result_of(admin_client(bootstrap).create_topics([new], operation_timeout=SECONDS_MAX))
    with Wire(bootstrap) as wire:
        for part in range(partitions):
            # Kafka names a leader some moments before that leader takes requests.
            served = partial(_is_served, wire, topic, part)
            wait_until(served, SECONDS_MAX, f"{topic}-{part} is served")
    return topic


def _is_served(wire: Wire, topic: str, partition: int) -> bool:
    return int(fetch(wire, topic, 0, partition=partition).error_code) == 0


def topic_exists(bootstrap: str, topic: str) -> bool:
    return topic in admin_client(bootstrap).list_topics(timeout=SECONDS_MAX).topics


def result_of(futures: Mapping[Any, Any]) -> Any:
    """The result of the one future in the answer of an admin call."""
    (future,) = futures.values()
    return future.result(SECONDS_MAX)


def error_of(futures: Mapping[Any, Any]) -> str:
    """The name of the error that the one future of an admin call ends in."""
    try:
        answer = result_of(futures)
    except KafkaException as refusal:
        return str(refusal.args[0].name())
    raise AssertionError(f"no error but {answer!r}")


def producer(bootstrap: str, settings: Mapping[str, Any] | None = None) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "message.timeout.ms": 120_000,
            **(settings or {}),
        }
    )


def send(sender: Producer, topic: str, records: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Sends records (arguments of `produce`; partition 0 unless said), returns them delivered."""
    delivered: list[Message] = []
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            errors.append(error)

    count = 0
    for record in records:
        arguments = {"partition": 0, **record}
        sender.produce(topic, on_delivery=on_delivery, **arguments)
        sender.poll(0)
        count += 1
    left = sender.flush(SECONDS_MAX)
    if errors:
        raise KafkaException(errors[0])
    assert left == 0 and len(delivered) == count, f"{len(delivered)} of {count} delivered"
    return delivered


def send_values(
    bootstrap: str, topic: str, values: Iterable[bytes], settings: Mapping[str, Any] | None = None
) -> list[Message]:
    return send(producer(bootstrap, settings), topic, ({"value": value} for value in values))


def consumer(bootstrap: str, settings: Mapping[str, Any] | None = None) -> Consumer:
    """For `assign` only: no group is joined and nothing is committed."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": new_name("unused"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,  # the end of a partition shows when a fetch comes back empty
            **(settings or {}),
        }
    )


def read(
    bootstrap: str,
    topic: str,
    *,
    partitions: Iterable[int] = (0,),
    start: int = OFFSET_BEGINNING,
    settings: Mapping[str, Any] | None = None,
) -> list[Message]:
    """Every message of the partitions from `start` to their end."""
    reader = consumer(bootstrap, settings)
    try:
        open_partitions = set(partitions)
        # Knowing the leader before assign saves librdkafka half a second of waiting.
        reader.list_topics(topic, timeout=SECONDS_MAX)
        reader.assign([TopicPartition(topic, part, start) for part in open_partitions])
        messages = []
        while open_partitions:
            message = reader.poll(SECONDS_MAX)
            assert message is not None, f"nothing more from {topic} {open_partitions}"
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
        return messages
    finally:
        reader.close()


def read_values(bootstrap: str, topic: str, **options: Any) -> list[bytes]:
    return [message.value() or b"" for message in read(bootstrap, topic, **options)]


def watermarks(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """Log start and end offset."""
    reader = consumer(bootstrap)
    try:
        low, high = reader.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=SECONDS_MAX
        )
        return low, high
    finally:
        reader.close()
