"""Compaction on a running broker: readers meanwhile, `compact,delete`, and Kafka as the judge of
the files that the cleaner wrote.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.compat import confluent
from tests.compat.conftest import SHARED_OVERRIDES, MakeNode
from tests.compat.java_host import JavaHost
from tests.compat.nodes import KafkaNode, Node, OttlaNode, wait_until
from tests.compat.test_dump_log_segments import CODECS, dump, move_segments, noise
from tests.patience import SECONDS_MAX

KEYS = 150
ROUNDS = 20
BROKER = {
    **SHARED_OVERRIDES,
    "log.cleaner.backoff.ms": "50",
    # Slow enough for readers to come by.
    "log.cleaner.io.max.bytes.per.second": "8000000",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
}
DAY_MS = 86_400_000


def fill(bootstrap: str, topic: str) -> dict[bytes, bytes | None]:
    """Every key many times, with every codec and some tombstones; what each key has at the end."""
    latest: dict[bytes, bytes | None] = {}
    for round_number in range(ROUNDS):
        codec = CODECS[round_number % len(CODECS)]
        records = []
        for number in range(KEYS):
            # Half of the keys are not written any more when the last segments are.
            is_early = number % 2 and round_number < ROUNDS // 2
            key = f"{'early' if is_early else 'key'} {number}".encode()
            is_gone = (number + round_number) % 10 == 0
            value = None if is_gone else noise(round_number * KEYS + number)
            latest[key] = value
            records.append({"key": key, "value": value})
        sender = confluent.producer(bootstrap, {"compression.type": codec})
        confluent.send(sender, topic, records)
    return latest


def latest_of(messages: list[Message]) -> dict[bytes, bytes | None]:
    return {message.key() or b"": message.value() for message in messages}


def offsets_of(messages: list[Message]) -> list[int]:
    return [message.offset() or 0 for message in messages]


def first_of_last_segment(directory: Path) -> int:
    return max(int(path.stem) for path in directory.glob("*.log"))


def cleaned_to(node: Node, topic: str) -> int:
    checkpoint = Path(node.data) / "cleaner-offset-checkpoint"
    text = checkpoint.read_text() if checkpoint.exists() else ""
    found = re.search(rf"^{topic} 0 (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else -1


def wait_for_cleaning(node: Node, topic: str) -> int:
    """Until everything but the segment that is being written is clean; the offset of that."""
    directory = node.partition_directory(topic)
    end = first_of_last_segment(directory)
    wait_until(lambda: cleaned_to(node, topic) >= end, SECONDS_MAX, "the log is cleaned")
    return end


def read_until(is_over: threading.Event, read_and_check: Callable[[], None]) -> None:
    while not is_over.is_set():
        read_and_check()


def test_readers_see_the_latest_of_each_key_at_every_moment(make_node: MakeNode) -> None:
    node = make_node(BROKER)
    topic = confluent.create_topic(
        node.bootstrap, configs={**COMPACTED, "cleanup.policy": "delete"}
    )
    latest = fill(node.bootstrap, topic)

    def read_and_check() -> None:
        messages = confluent.read(node.bootstrap, topic)
        assert latest_of(messages) == latest
        offsets = offsets_of(messages)
        assert offsets == sorted(set(offsets))

    is_over = threading.Event()
    with ThreadPoolExecutor(1) as readers:
        reading = readers.submit(read_until, is_over, read_and_check)
        try:
            set_policy(node.bootstrap, topic, "compact")
            end = wait_for_cleaning(node, topic)
        finally:
            is_over.set()
        reading.result()
    read_and_check()
    messages = confluent.read(node.bootstrap, topic)
    cleaned = [message.key() for message in messages if (message.offset() or 0) < end]
    assert len(cleaned) == len(set(cleaned))
    assert confluent.watermarks(node.bootstrap, topic) == (0, KEYS * ROUNDS)


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.xdist_group("java")
def test_kafka_reads_what_our_cleaner_wrote(java: JavaHost, make_node: MakeNode) -> None:
    ottla = make_node(BROKER, kind=OttlaNode)
    topic = confluent.create_topic(ottla.bootstrap, configs=COMPACTED)
    latest = fill(ottla.bootstrap, topic)
    end = wait_for_cleaning(ottla, topic)
    messages = confluent.read(ottla.bootstrap, topic)
    assert latest_of(messages) == latest
    ottla.stop()

    directory = ottla.partition_directory(topic)
    text = dump(java, "--deep-iteration", files=list(directory.glob("*.log")))
    assert "isvalid: false" not in text
    offsets = [int(found) for found in re.findall(r"\| offset: (\d+) ", text)]
    assert offsets == offsets_of(messages)
    assert KEYS // 2 <= sum(offset < end for offset in offsets) <= 2 * KEYS
    indexes = [path for path in directory.iterdir() if path.suffix in (".index", ".timeindex")]
    text = dump(java, "--index-sanity-check", files=indexes)
    # The index of a short last segment has no entry yet, and nothing to check.
    assert text.count("passed sanity check.") + text.count(".index is empty.") == len(indexes), text
    assert "Mismatches" not in dump(java, "--verify-index-only", files=indexes)

    kafka = make_node(BROKER, kind=KafkaNode)
    place = confluent.create_topic(kafka.bootstrap, configs=COMPACTED)
    kafka.stop()
    move_segments(directory, kafka.partition_directory(place))
    kafka.start()
    assert latest_of(confluent.read(kafka.bootstrap, place)) == latest
    fill(kafka.bootstrap, place)
    wait_for_cleaning(kafka, place)  # its own cleaner takes our segments
    assert latest_of(confluent.read(kafka.bootstrap, place)) == latest


def test_compact_and_delete(make_node: MakeNode) -> None:
    """Old segments go, whatever keys they hold; of the others the latest of each key stays."""
    node = make_node(BROKER)
    configs = {**COMPACTED, "retention.ms": "-1", "message.timestamp.before.max.ms": str(2**62)}
    topic = confluent.create_topic(node.bootstrap, configs=configs)
    sender = confluent.producer(node.bootstrap)
    old = {"value": noise(1), "timestamp": 1_600_000_000_000}
    confluent.send(sender, topic, ({**old, "key": f"old {one}"} for one in range(800)))
    latest = fill(node.bootstrap, topic)
    wait_for_cleaning(node, topic)
    assert len(latest_of(confluent.read(node.bootstrap, topic))) == 800 + len(latest)

    set_policy(node.bootstrap, topic, "compact,delete", {"retention.ms": str(7 * DAY_MS)})

    def is_retained() -> bool:
        return confluent.watermarks(node.bootstrap, topic)[0] > 0

    wait_until(is_retained, SECONDS_MAX, "old segments are deleted")
    fill(node.bootstrap, topic)
    wait_for_cleaning(node, topic)
    left = latest_of(confluent.read(node.bootstrap, topic))
    assert {key: left[key] for key in latest} == latest
    assert len(left) < 800 + len(latest)


def set_policy(
    bootstrap: str, topic: str, policy: str, others: dict[str, str] | None = None
) -> None:
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {"cleanup.policy": policy, **(others or {})}.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    confluent.result_of(confluent.admin_client(bootstrap).incremental_alter_configs([resource]))
