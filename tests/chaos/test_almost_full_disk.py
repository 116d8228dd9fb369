"""Goal: a disk that is about to be full stops producers, who wait and lose nothing; readers and
groups go on, the log dir stays online, and the producers go on by themselves when there is room.
Method: a broker process on a small file system that the producer itself fills, down to the
reserve; then a file that was beside the log is removed. Where nothing can be mounted the reserve
is raised above what is left instead, and lowered again.
"""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.compat.confluent import (
    admin_client,
    consumer,
    create_topic,
    producer,
    read_values,
    result_of,
)
from tests.compat.nodes import OttlaNode, java, wait_until
from tests.patience import SECONDS_MAX
from tests.ports import free_port

MIB = 1 << 20
RESERVE = "ottla.log.dir.reserve.bytes"
RESERVE_BYTES = 32 * MIB
DISK_BYTES = 96 * MIB
BALLAST_BYTES = 32 * MIB
VALUE_BYTES = 100_000
VALUES = 50
STILL_SECONDS = 2.0


class SmallDiskNode(OttlaNode):
    """Its data directory is a file system of its own."""

    def __init__(self, directory: Path) -> None:
        self.metrics_port = free_port()
        address = f"127.0.0.1:{self.metrics_port}"
        super().__init__(
            directory, {RESERVE: str(RESERVE_BYTES), "ottla.metrics.listener": address}
        )
        self.ballast = self.data / "ballast"

    def figure(self, name: str) -> float:
        address = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=SECONDS_MAX) as page:
            lines: list[str] = page.read().decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def is_short(self) -> bool:
        return self.figure("ottla_log_dir_short_of_room{") == 1.0

    def set_reserve(self, size: int) -> None:
        entry = ConfigEntry(RESERVE, str(size), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
        result_of(admin_client(self.bootstrap).incremental_alter_configs([resource]))


class Sending:
    """Values that are numbered, and what has become of them."""

    def __init__(self, node: OttlaNode, topic: str) -> None:
        self._producer = producer(node.bootstrap, {"enable.idempotence": True})
        self._topic = topic
        self.delivered: list[bytes] = []
        self.errors: list[KafkaError] = []
        self.sent = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            value = b"%d:" % self.sent + bytes(VALUE_BYTES)
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._on_delivery)
            self.sent += 1
            self._producer.poll(0)

    def send_some(self) -> bool:
        """A megabyte, and not all at once: how fast a disk is filled is another question."""
        self.send(10)
        self.poll(0.02)
        return False

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered.append(message.value() or b"")
        else:
            self.errors.append(error)

    def poll(self, seconds: float) -> bool:
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            self._producer.poll(0.05)
        return True

    def flush(self) -> None:
        assert self._producer.flush(SECONDS_MAX) == 0
        assert self.errors == []


@contextmanager
def small_disk(path: Path) -> Iterator[bool]:
    """Whether it could be mounted."""
    path.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    mounted = subprocess.run(["mount", *options], check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SmallDiskNode]:
    node = SmallDiskNode(tmp_path)
    with small_disk(node.data) as mounted:
        if mounted:
            node.ballast.write_bytes(bytes(BALLAST_BYTES))
        node.start()
        try:
            yield node
        finally:
            if node.process is not None:
                node.close()


def fill(node: SmallDiskNode) -> None:
    if not node.ballast.exists():
        node.set_reserve(1 << 60)
        wait_until(node.is_short, SECONDS_MAX, "the disk is looked at")


def make_room(node: SmallDiskNode) -> None:
    if node.ballast.exists():
        node.ballast.unlink()
    else:
        node.set_reserve(0)


def test_producers_wait_for_room_and_lose_nothing(node: SmallDiskNode) -> None:
    topic = create_topic(node.bootstrap)
    sending = Sending(node, topic)
    sending.send(10)
    sending.flush()
    fill(node)
    wait_until(lambda: node.is_short() or sending.send_some(), SECONDS_MAX, "the reserve")
    sending.send(VALUES)
    sending.poll(STILL_SECONDS)
    before = len(sending.delivered)
    assert 10 <= before <= sending.sent - VALUES
    assert sending.errors == [], "the client tries again"
    assert read_values(node.bootstrap, topic) == sending.delivered, "readers go on"
    commit_a_group(node, topic)
    java_writer = console_producer(node, topic)
    sending.poll(STILL_SECONDS)
    assert len(sending.delivered) == before
    assert java_writer.poll() is None, "it waits, too"

    make_room(node)
    sending.flush()
    assert java_writer.wait(SECONDS_MAX) == 0
    wait_until(lambda: not node.is_short(), SECONDS_MAX, "room is back")
    found = read_values(node.bootstrap, topic)
    assert b"from Java" in found
    assert [value for value in found if value != b"from Java"] == sending.delivered
    assert len(sending.delivered) == sending.sent
    assert node.log_text().count("produce is refused") == 1
    assert node.log_text().count("produce goes on") == 1


def commit_a_group(node: SmallDiskNode, topic: str) -> None:
    """Which writes to an internal topic."""
    member = consumer(node.bootstrap, {"group.id": "readers"})
    member.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    [committed] = member.committed([TopicPartition(topic, 0)], SECONDS_MAX)
    assert committed.offset == 5
    member.close()


def console_producer(node: SmallDiskNode, topic: str) -> subprocess.Popen[bytes]:
    """With the retries of a producer; the tool itself makes three."""
    command = java("org.apache.kafka.tools.ConsoleProducer", "--topic", topic)
    process = subprocess.Popen(
        [*command, "--bootstrap-server", node.bootstrap, "--message-send-max-retries=1000000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(b"from Java\n")
    process.stdin.close()
    return process
