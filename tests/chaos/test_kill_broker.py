"""Goal: kill -9 at any moment loses nothing that was acknowledged, and changes nothing.
Method: idempotent producers under way all the time, the broker killed at random moments and started
again on the same data; every acknowledgement is then compared, offset by offset, with what is read.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.compat.confluent import admin_client, producer, read, result_of
from tests.compat.nodes import OttlaNode, wait_until
from tests.patience import HEAL_SECONDS_MAX, SECONDS_MAX
from tests.seeds import seed_for

KILLS = int(os.environ.get("OTTLA_KILLS", "20"))
PARTITIONS = 3
SETTINGS = {
    # Small segments, so that kills hit rolls, index trims and snapshots too.
    "log.segment.bytes": "1048576",
    "log.retention.ms": "-1",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}


class Load:
    """Producers that never stop by themselves, and a note of every acknowledgement."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=(number, codec))
            for number, codec in enumerate(("none", "lz4"))
        ]
        for thread in self._threads:
            thread.start()

    def _produce(self, number: int, codec: str) -> None:
        settings = {
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 2,
            # A record may have to wait for as many kills as there are.
            "message.timeout.ms": HEAL_SECONDS_MAX * 1000,
            "queue.buffering.max.messages": 2_000,
            "reconnect.backoff.max.ms": 100,
        }
        sender = producer(self._bootstrap, settings)
        count = 0
        while not self._stopping.is_set():
            value = f"{number}:{count}:".encode() + bytes(count % 2000)
            try:
                sender.produce(
                    self._topic, value, partition=count % PARTITIONS, on_delivery=self._on_delivery
                )
            except BufferError:
                sender.poll(0.01)
                continue
            count += 1
            sender.poll(0)
        left = sender.flush(HEAL_SECONDS_MAX)
        if left:
            self.failures.append(f"{left} records were never answered")

    def _on_delivery(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        place = (message.partition() or 0, message.offset() or 0)
        value = message.value() or b""
        if place in self.acknowledged:
            self.failures.append(f"{place} was acknowledged twice")
        self.acknowledged[place] = value

    def wait_for_acknowledgements(self, count: int) -> None:
        """So that each kill comes in the middle of work, at another place each time."""
        target = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= target, SECONDS_MAX, "producers go on")

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path, SETTINGS)
    node.start()
    yield node
    node.close()


def test_nothing_acknowledged_is_lost_or_changed(node: OttlaNode) -> None:
    rng = random.Random(seed_for("kill -9"))
    topic = "killed"
    wanted = confluent_kafka.admin.NewTopic(topic, PARTITIONS, 1)
    result_of(admin_client(node.bootstrap).create_topics([wanted]))
    load = Load(node.bootstrap, topic)
    try:
        for _ in range(KILLS):
            load.wait_for_acknowledgements(rng.randrange(1, 400))
            node.kill()
            node.start()
    finally:
        load.stop()
    assert load.failures == []
    assert len(load.acknowledged) > KILLS
    stored = {
        (message.partition(), message.offset()): message.value()
        for message in read(node.bootstrap, topic, partitions=list(range(PARTITIONS)))
    }
    missing = [place for place in load.acknowledged if place not in stored]
    changed = [place for place, value in load.acknowledged.items() if stored.get(place) != value]
    assert (missing[:5], changed[:5]) == ([], [])
    values = list(stored.values())
    assert len(values) == len(set(values)), "an idempotent producer's record is stored twice"
