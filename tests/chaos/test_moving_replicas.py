"""Goal: a replica that moves between log dirs is in use all the time: nothing is lost, nothing is
there twice, and the order stays; also if the broker is killed on the way.
Method: a broker process with two log dirs, an idempotent producer with acks=all, a reader, and
somebody who sends the partition to and fro.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.compat.confluent import create_topic, read_values, send_values
from tests.compat.nodes import OttlaNode, wait_until
from tests.compat.wire import Wire
from tests.patience import SECONDS_MAX

alter: Any = import_module("kio.schema.alter_replica_log_dirs.v2.request")
describe: Any = import_module("kio.schema.describe_log_dirs.v4.request")

MOVES_UNDER_LOAD = 20
PADDING = b"." * 200
UNACKNOWLEDGED_MAX = 40
UNKNOWN_TOPIC_OR_PARTITION = 3


class TwoDirs(OttlaNode):
    def __init__(self, directory: Path) -> None:
        self.dirs = [str(directory / "one"), str(directory / "two")]
        super().__init__(
            directory,
            {
                "log.dirs": ",".join(self.dirs),
                "log.segment.bytes": str(1 << 20),
                "log.segment.delete.delay.ms": "0",
            },
        )

    def move(self, topic: str, log_dir: str, code: int = 0) -> None:
        wanted = alter.AlterReplicaLogDirTopic(name=topic, partitions=(0,))
        asked = alter.AlterReplicaLogDir(path=log_dir, topics=(wanted,))
        with Wire(self.bootstrap) as wire:
            answer = wire.call(alter.AlterReplicaLogDirsRequest(dirs=(asked,)))
        assert [int(part.error_code) for one in answer.results for part in one.partitions] == [code]

    def places(self, topic: str) -> dict[str, bool]:
        """The log dirs that have something of the partition, and whether it is on its way there."""
        wanted = describe.DescribableLogDirTopic(topic=topic, partitions=(0,))
        with Wire(self.bootstrap) as wire:
            answer = wire.call(describe.DescribeLogDirsRequest(topics=(wanted,)))
        return {
            one.log_dir: part.is_future_key
            for one in answer.results
            for told in one.topics
            for part in told.partitions
        }

    def other_dir(self, topic: str) -> str:
        (here,) = (path for path, is_future in self.places(topic).items() if not is_future)
        return next(path for path in self.dirs if path != here)

    def has_arrived(self, topic: str, log_dir: str) -> bool:
        return self.places(topic) == {log_dir: False}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoDirs]:
    node = TwoDirs(tmp_path)
    node.start()
    yield node
    node.close()


class Writer(threading.Thread):
    """Numbers, one after the other, until it is told to end; `acknowledged` is how many were."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self.ending = threading.Event()
        self.failures: list[Any] = []
        self.acknowledged = 0

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            value = b"%d:" % number + PADDING
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._on_end)
            number += 1
            while number - self.acknowledged >= UNACKNOWLEDGED_MAX and not self.failures:
                self._producer.poll(0.1)
        self._producer.flush(SECONDS_MAX)

    def has_passed(self, number: int) -> bool:
        return self.acknowledged > number

    def _on_end(self, failure: Any, message: Any) -> None:
        if failure is not None:
            self.failures.append(failure)
        else:
            assert message.value().startswith(b"%d:" % self.acknowledged)
            self.acknowledged += 1


class Reader(threading.Thread):
    """From the beginning, until it is told how many there are; `numbers` is what came, in order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0}
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self.expected = -1
        self.numbers: list[int] = []
        self.offsets: list[int] = []

    def run(self) -> None:
        while len(self.numbers) != self.expected:
            for message in self._consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                value, offset = message.value(), message.offset()
                assert value is not None
                assert offset is not None
                self.numbers.append(int(value.partition(b":")[0]))
                self.offsets.append(offset)
        self._consumer.close()


def test_a_partition_in_use_moves_to_and_fro(node: TwoDirs) -> None:
    topic = create_topic(node.bootstrap)
    writer, reader = Writer(node.bootstrap, topic), Reader(node.bootstrap, topic)
    writer.start()
    reader.start()
    try:
        for _ in range(MOVES_UNDER_LOAD):
            before = writer.acknowledged
            target = node.other_dir(topic)
            node.move(topic, target)
            wait_until(partial(node.has_arrived, topic, target), SECONDS_MAX, "it is there")
            wait_until(partial(writer.has_passed, before), SECONDS_MAX, "it goes on")
    finally:
        writer.ending.set()
        writer.join()
        reader.expected = writer.acknowledged
        reader.join(SECONDS_MAX)
    assert writer.failures == []
    everything = list(range(writer.acknowledged))
    assert (reader.numbers, reader.offsets) == (everything, everything)

    def left() -> list[str]:
        return [path.name for one in node.dirs for path in Path(one).glob(f"{topic}-0*")]

    wait_until(lambda: left() == [f"{topic}-0"], SECONDS_MAX, "nothing is left elsewhere")


def test_a_broker_that_is_killed_on_the_way_goes_on_with_the_move(tmp_path: Path) -> None:
    node = TwoDirs(tmp_path)
    node.overrides["replica.alter.log.dirs.io.max.bytes.per.second"] = "200000"
    node.start()
    topic = create_topic(node.bootstrap)
    values = [b"%d:" % number + PADDING for number in range(3_000)]
    send_values(node.bootstrap, topic, values)
    target = node.other_dir(topic)
    node.move(topic, target)
    assert node.places(topic)[target] is True
    node.kill()
    del node.overrides["replica.alter.log.dirs.io.max.bytes.per.second"]
    node.start()
    wait_until(lambda: node.has_arrived(topic, target), SECONDS_MAX, "it is there")
    assert read_values(node.bootstrap, topic) == values
    node.kill()
    node.start()
    assert node.has_arrived(topic, target)
    assert read_values(node.bootstrap, topic) == values
    node.close()


def test_a_partition_is_made_where_it_was_asked_for_before(node: TwoDirs) -> None:
    for number, log_dir in enumerate([*node.dirs, *node.dirs]):
        topic = f"wanted-{number}"
        node.move(topic, log_dir, UNKNOWN_TOPIC_OR_PARTITION)
        send_values(node.bootstrap, topic, [b"which makes it"])
        assert node.places(topic) == {log_dir: False}
