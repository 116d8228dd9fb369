"""Goal: a topic that is deleted and made again has nothing from the one before it.

Its log starts at 0 at once, and after a kill as well: no checkpoint on the disk may speak of the
old partition once the new one's directory is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.patience import SECONDS_MAX


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def admin_of(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(broker: Broker) -> None:
    admin = admin_of(broker)
    admin.create_topics([NewTopic("again", 1, 1)])["again"].result(SECONDS_MAX)


def delete(broker: Broker) -> None:
    admin = admin_of(broker)
    admin.delete_topics(["again"])["again"].result(SECONDS_MAX)


def produce(broker: Broker, count: int) -> list[int | None]:
    """The offsets of `count` new records."""
    offsets: list[int | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(count):
        producer.produce(
            "again",
            b"value",
            partition=0,
            on_delivery=lambda _, sent: offsets.append(sent.offset()),
        )
    assert producer.flush(SECONDS_MAX) == 0
    return offsets


def with_a_log_start_on_the_disk(broker: Broker) -> None:
    create(broker)
    assert produce(broker, 100) == list(range(100))
    admin = admin_of(broker)
    asked = admin.delete_records([TopicPartition("again", 0, 60)])
    assert next(iter(asked.values())).result(SECONDS_MAX).low_watermark == 60
    broker.restart()  # a clean stop writes every checkpoint


def as_after_a_kill(broker: Broker, tmp_path: Path) -> Iterator[Broker]:
    """Another broker over a copy of the data as they are now."""
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir, copy, ignore=shutil.ignore_patterns(".lock"))
    with Broker(data_dir=str(copy)) as other:
        yield other


def test_it_begins_at_zero(broker: Broker) -> None:
    with_a_log_start_on_the_disk(broker)
    delete(broker)
    create(broker)
    assert produce(broker, 3) == [0, 1, 2]


def test_it_has_its_records_after_a_kill(broker: Broker, tmp_path: Path) -> None:
    with_a_log_start_on_the_disk(broker)
    delete(broker)
    create(broker)
    produce(broker, 3)
    for other in as_after_a_kill(broker, tmp_path):
        assert produce(other, 1) == [3]


def test_it_has_its_records_after_a_restart_between_and_a_kill(
    broker: Broker, tmp_path: Path
) -> None:
    with_a_log_start_on_the_disk(broker)
    delete(broker)
    broker.restart()
    create(broker)
    produce(broker, 3)
    for other in as_after_a_kill(broker, tmp_path):
        assert produce(other, 1) == [3]


def test_a_directory_that_was_lost_is_made_as_an_empty_one(broker: Broker, tmp_path: Path) -> None:
    with_a_log_start_on_the_disk(broker)
    broker.stop()
    shutil.rmtree(Path(broker.data_dir) / "again-0")
    broker.start()
    assert produce(broker, 3) == [0, 1, 2]
    for other in as_after_a_kill(broker, tmp_path):
        assert produce(other, 1) == [3]
