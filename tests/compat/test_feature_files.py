"""Rows of the feature list that show in files and over restarts, each on a broker of its own."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.nodes import Node, wait_until
from tests.compat.test_features import everything
from tests.compat.wire import Wire, batch_of, batches_in, stored_bytes
from tests.patience import SECONDS_MAX

FIRST_SEGMENT = "0" * 20
SEGMENT_BYTES_MIN = 1_048_576


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    return make_node({"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "100"})


def fill(node: Node, count: int = 3000, configs: dict[str, str] | None = None) -> str:
    """A topic with records of a hundred bytes in batches of about a kilobyte."""
    topic = confluent.create_topic(node.bootstrap, configs=configs)
    settings = {"enable.idempotence": True, "batch.num.messages": 10}
    records = (
        {"key": b"k%d" % number, "value": b"%d " % number * 20, "timestamp": 1000 + number}
        for number in range(count)
    )
    confluent.send(confluent.producer(node.bootstrap, settings), topic, records)
    return topic


def test_row_41_kill_9_loses_nothing_that_was_acknowledged(node: Node) -> None:
    topic = fill(node)
    before = everything(node.bootstrap, topic)
    node.kill()
    node.start()
    assert everything(node.bootstrap, topic) == before
    assert len(before) == 3000


@pytest.mark.parametrize("torn", ["header", "body", "garbage"])
def test_row_42_a_torn_tail_is_cut(node: Node, torn: str) -> None:
    topic = fill(node)
    before = everything(node.bootstrap, topic)
    node.kill()
    half = batch_of([b"never acknowledged"] * 10)
    tails = {"header": half[:30], "body": half[:-7], "garbage": b"\x5a" * 5000}
    log = node.partition_directory(topic) / f"{FIRST_SEGMENT}.log"
    with log.open("ab") as file:
        file.write(tails[torn])
    node.start()
    assert everything(node.bootstrap, topic) == before
    (delivered,) = confluent.send_values(node.bootstrap, topic, [b"goes on"])
    assert delivered.offset() == 3000


def test_row_43_segments_are_named_by_offset_and_only_grow(node: Node) -> None:
    topic = fill(node, 100)
    log = node.partition_directory(topic) / f"{FIRST_SEGMENT}.log"
    first = log.read_bytes()
    more = {"value": b"more", "timestamp": 2000}  # as old as the others, or the segment would roll
    confluent.send(confluent.producer(node.bootstrap), topic, [more] * 100)
    assert log.read_bytes().startswith(first)
    assert log.stat().st_size > len(first)
    assert batches_in(first)[0].base_offset == 0


def test_row_44_a_fetch_gives_the_bytes_that_are_stored(node: Node) -> None:
    topic = confluent.create_topic(node.bootstrap)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        values = [b"value" * 20] * 200
        confluent.send_values(node.bootstrap, topic, values, {"compression.type": codec})
    with Wire(node.bootstrap) as wire:
        served = stored_bytes(wire, topic, 1000)
    assert served == (node.partition_directory(topic) / f"{FIRST_SEGMENT}.log").read_bytes()


def lookups(node: Node, topic: str) -> list[Any]:
    """What the indexes answer: records at offsets, and offsets at times."""
    found: list[Any] = []
    for offset in (0, 9, 1234, 2999):
        (message, *_) = confluent.read(node.bootstrap, topic, start=offset)
        found.append((message.offset(), message.value()))
    reader = confluent.consumer(node.bootstrap)
    for time_ms in (0, 1000, 1777, 3999, 4000):
        (place,) = reader.offsets_for_times(
            [TopicPartition(topic, 0, time_ms)], timeout=SECONDS_MAX
        )
        found.append(place.offset)
    reader.close()
    return found


@pytest.mark.parametrize(("end", "how"), [("stop", "gone"), ("stop", "empty"), ("kill", "garbage")])
def test_row_45_indexes_are_made_again(node: Node, end: str, how: str) -> None:
    topic = fill(node)
    before = lookups(node, topic)
    getattr(node, end)()
    indexes = [
        path
        for path in node.partition_directory(topic).iterdir()
        if path.suffix in (".index", ".timeindex")
    ]
    assert len(indexes) == 2
    spoil: dict[str, Callable[[Path], object]] = {
        "gone": Path.unlink,
        "empty": lambda path: path.write_bytes(b""),
        "garbage": lambda path: path.write_bytes(b"\xff\x01" * 120),
    }
    for path in indexes:
        spoil[how](path)
    node.start()
    assert lookups(node, topic) == before
    assert all(path.exists() for path in indexes)


def test_row_46_every_file_of_a_partition_is_there(node: Node) -> None:
    topic = fill(node)
    node.stop()
    names = {path.name for path in node.partition_directory(topic).iterdir()}
    assert names >= {
        f"{FIRST_SEGMENT}.log",
        f"{FIRST_SEGMENT}.index",
        f"{FIRST_SEGMENT}.timeindex",
        f"{3000:020d}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    epochs = (node.partition_directory(topic) / "leader-epoch-checkpoint").read_text()
    assert epochs.split() == ["0", "1", "0", "0"]  # version, entries, then epoch and start offset
    assert {path.name for path in node.data.iterdir()} >= {
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        ".kafka_cleanshutdown",
    }


def test_row_47_indexes_are_sparse(node: Node) -> None:
    topic = fill(node)
    node.stop()
    directory = node.partition_directory(topic)
    batches = batches_in((directory / f"{FIRST_SEGMENT}.log").read_bytes())
    starts = {batch.position: batch for batch in batches}
    entries = list(struct.iter_unpack(">ii", (directory / f"{FIRST_SEGMENT}.index").read_bytes()))
    positions = [position for _, position in entries]
    largest = max(batch.size for batch in batches)
    for offset, position in entries:
        batch = starts[position]
        assert batch.base_offset <= offset < batch.next_offset
    for before, after in zip([0, *positions], positions, strict=False):
        assert 4096 < after - before <= 4096 + 2 * largest
    stamps = list(
        struct.iter_unpack(">qi", (directory / f"{FIRST_SEGMENT}.timeindex").read_bytes())
    )
    assert stamps == sorted(stamps)
    # This topic's record at an offset has that many milliseconds more than a second.
    assert all(stamp == 1000 + offset for stamp, offset in stamps)
    assert len(stamps) >= len(entries) // 2


def test_row_49_segments_roll_and_retention_drops_the_oldest(node: Node) -> None:
    configs = {"segment.bytes": str(SEGMENT_BYTES_MIN), "file.delete.delay.ms": "0"}
    topic = confluent.create_topic(node.bootstrap, configs=configs)
    settings = {"batch.num.messages": 10}
    values = [b"%05d" % number * 200 for number in range(5500)]
    confluent.send_values(node.bootstrap, topic, values, settings)
    directory = node.partition_directory(topic)

    def bases() -> list[int]:
        return sorted(int(path.stem) for path in directory.glob("*.log"))

    assert len(bases()) >= 5
    assert bases()[0] == 0
    sizes = [path.stat().st_size for path in directory.glob("*.log")]
    assert max(sizes) <= SEGMENT_BYTES_MIN
    retention = [("retention.ms", "-1"), ("retention.bytes", str(2 * SEGMENT_BYTES_MIN))]
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in retention
        ],
    )
    admin = confluent.admin_client(node.bootstrap)
    confluent.result_of(admin.incremental_alter_configs([change]))
    wait_until(lambda: len(bases()) <= 3, SECONDS_MAX, "old segments are gone")
    start, end = confluent.watermarks(node.bootstrap, topic)
    assert (start, end) == (bases()[0], 5500)
    assert start > 0
    assert confluent.read_values(node.bootstrap, topic) == values[start:]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_row_75_contents_survive_every_kind_of_restart(node: Node, how: str) -> None:
    topics = [fill(node, 500), fill(node, 50, {"compression.type": "lz4"})]
    before = [everything(node.bootstrap, topic) for topic in topics]
    ends = [confluent.watermarks(node.bootstrap, topic) for topic in topics]
    for _ in range(2):
        getattr(node, how)()
        node.start()
        assert [everything(node.bootstrap, topic) for topic in topics] == before
        assert [confluent.watermarks(node.bootstrap, topic) for topic in topics] == ends
