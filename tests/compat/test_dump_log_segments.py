"""Our files judged by Kafka: its dump tool reads them, each broker serves the other's segments."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.java_host import JavaHost
from tests.compat.nodes import KafkaNode, Node, OttlaNode
from tests.compat.test_features import everything

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 2000
SEGMENT_FILES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


def fill(node: Node) -> str:
    """A topic of several segments: every codec, each from an idempotent producer of its own."""
    topic = confluent.create_topic(node.bootstrap, configs={"segment.bytes": "1048576"})
    for codec in CODECS:
        sender = KafkaProducer(
            bootstrap_servers=node.bootstrap,
            compression_type=None if codec == "none" else codec,
            max_in_flight_requests_per_connection=1,
        )
        for number in range(RECORDS // len(CODECS)):
            key = f"{codec} {number}".encode()
            sender.send(topic, noise(number), key, headers=[("h", b"1")], partition=0)
        sender.close()
    return topic


def noise(number: int) -> bytes:
    """Two kilobytes that every codec makes smaller but not small, the same in every run."""
    state, parts = number + 1, bytearray()
    while len(parts) < 1024:
        state = (state * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)
        parts += (state >> 16).to_bytes(6, "big")
    return bytes(parts).hex().encode() + bytes(512)  # snappy only knows repeats


def dump(java: JavaHost, *options: str, files: list[Path]) -> str:
    names = ",".join(str(path) for path in sorted(files))
    done = java.tool("DumpLogSegments", *options, "--files", names)
    assert done.status == 0, done
    return done.output + done.errors  # mismatches are told on standard error


def test_kafka_reads_our_files(java: JavaHost, make_node: MakeNode) -> None:
    node = make_node(kind=OttlaNode)
    topic = fill(node)
    node.stop()
    directory = node.partition_directory(topic)
    logs = list(directory.glob("*.log"))
    assert len(logs) >= 3
    text = dump(java, "--deep-iteration", files=logs)
    assert text.count("isvalid: true") == text.count("baseOffset:") > 100
    assert "isvalid: false" not in text
    offsets = [int(found) for found in re.findall(r"\| offset: (\d+) ", text)]
    assert offsets == list(range(RECORDS))
    for codec in CODECS:
        assert f"compresscodec: {codec}" in text
    indexes = [path for path in directory.iterdir() if path.suffix in (".index", ".timeindex")]
    text = dump(java, "--index-sanity-check", files=indexes)
    # The index of a short last segment has no entry yet, and nothing to check.
    assert text.count("passed sanity check.") + text.count(".index is empty.") == len(indexes), text
    text = dump(java, "--verify-index-only", files=indexes)
    assert "Mismatches" not in text
    text = dump(java, files=indexes)
    for complaint in ("Found timestamp mismatch", "Found out of order", "Mismatches"):
        assert complaint not in text, text
    assert text.count("offset:") > 300
    snapshots = [max(directory.glob("*.snapshot"))]
    text = dump(java, files=snapshots)
    assert text.count("producerId:") == len(CODECS)
    assert text.count("lastSequence: 399") == len(CODECS)


@pytest.mark.kafka
def test_each_serves_what_the_other_wrote(make_node: MakeNode) -> None:
    ottla, kafka = make_node(kind=OttlaNode), make_node(kind=KafkaNode)
    nodes = (ottla, kafka)
    filled = {node: fill(node) for node in nodes}
    written = {node: everything(node.bootstrap, filled[node]) for node in nodes}
    empty = {node: confluent.create_topic(node.bootstrap) for node in nodes}
    for node in nodes:
        node.stop()
    for writer, reader in ((ottla, kafka), (kafka, ottla)):
        source = writer.partition_directory(filled[writer])
        target = reader.partition_directory(empty[reader])
        move_segments(source, target)
    for writer, reader in ((ottla, kafka), (kafka, ottla)):
        reader.start()
        topic = empty[reader]
        assert everything(reader.bootstrap, topic) == written[writer]
        (delivered,) = confluent.send_values(reader.bootstrap, topic, [b"and goes on"])
        assert delivered.offset() == RECORDS


def move_segments(source: Path, target: Path) -> None:
    """Replaces the files of a partition by another's, but for its partition.metadata."""
    for path in target.iterdir():
        if path.suffix in SEGMENT_FILES:
            path.unlink()
    for path in source.iterdir():
        if path.suffix in SEGMENT_FILES or path.name == "leader-epoch-checkpoint":
            shutil.copy(path, target / path.name)
