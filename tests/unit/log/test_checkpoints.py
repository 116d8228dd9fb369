"""Goal: Kafka's small text files, byte for byte, and no silent reading of broken ones.
Method: texts that Kafka 4.3 wrote; round trips; damaged texts.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError, StorageError
from ottla.log import clean_shutdown, partition_metadata, properties_text
from ottla.log.checkpoints import (
    RECOVERY_POINTS,
    decode,
    encode,
    read_checkpoint,
    write_checkpoint,
)
from ottla.log.meta_properties import (
    MetaProperties,
    check_owner,
    read_meta_properties,
    write_meta_properties,
)
from tests.chaos.memory_files import MemoryFiles

WRITTEN_BY_KAFKA = Path(__file__).with_name("kafka_partitions")


def an_empty_dir() -> MemoryFiles:
    files = MemoryFiles()
    files.make_dir("/data")
    return files


# -- offsets --------------------------------------------------------------------------------------


def test_offsets() -> None:
    offsets = {("orders", 0): 17, ("a.b_c-d", 12): 0}
    assert encode(offsets) == b"0\n2\norders 0 17\na.b_c-d 12 0\n"
    files = an_empty_dir()
    assert read_checkpoint(files, "/data", RECOVERY_POINTS) == {}
    write_checkpoint(files, "/data", RECOVERY_POINTS, offsets)
    assert read_checkpoint(files, "/data", RECOVERY_POINTS) == offsets
    assert files.list_dir("/data") == [RECOVERY_POINTS]


def test_an_empty_file_has_no_entries() -> None:
    """Kafka makes `cleaner-offset-checkpoint` and fills it later."""
    assert decode(b"") == {}
    assert decode(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "text", [b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"\xff\n", b"0", b"x"]
)
def test_broken_offsets_are_an_error(text: bytes) -> None:
    assert decode(text) is None
    files = an_empty_dir()
    files.put(f"/data/{RECOVERY_POINTS}", text)
    with pytest.raises(StorageError):
        read_checkpoint(files, "/data", RECOVERY_POINTS)


# -- whose dir it is ------------------------------------------------------------------------------


def test_meta_properties() -> None:
    files = an_empty_dir()
    assert read_meta_properties(files, "/data") is None
    meta = MetaProperties("Rt0BPa1uRtiSS53jFamqPQ", 1, "J03XP8XCYMCMf9x_3uHBaA")
    write_meta_properties(files, "/data", meta)
    assert read_meta_properties(files, "/data") == meta
    check_owner(meta, "/data", "Rt0BPa1uRtiSS53jFamqPQ", 1)


def test_meta_properties_of_kafka() -> None:
    files = an_empty_dir()
    text = (
        "#\n#Sun Nov 15 23:08:52 UTC 2026\nnode.id=1\ndirectory.id=J03XP8XCYMCMf9x_3uHBaA\n"
        "version=1\ncluster.id=Rt0BPa1uRtiSS53jFamqPQ\n"
    )
    files.put("/data/meta.properties", text.encode())
    assert read_meta_properties(files, "/data") == MetaProperties(
        "Rt0BPa1uRtiSS53jFamqPQ", 1, "J03XP8XCYMCMf9x_3uHBaA"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version=0\nbroker.id=1\n",
        "version=1\nnode.id=1\n",
        "version=1\ncluster.id=a\nnode.id=b",
    ],
)
def test_meta_properties_that_do_not_say_it(text: str) -> None:
    files = an_empty_dir()
    files.put("/data/meta.properties", text.encode())
    with pytest.raises(ConfigError):
        read_meta_properties(files, "/data")


def test_a_dir_of_somebody_else_is_refused() -> None:
    meta = MetaProperties("ours", 1, "")
    with pytest.raises(ConfigError, match="belongs to cluster ours"):
        check_owner(meta, "/data", "theirs", 1)
    with pytest.raises(ConfigError, match="belongs to node 1"):
        check_owner(meta, "/data", "ours", 2)


def test_properties_text() -> None:
    parsed = properties_text.parse("# no\n! no\n\na=b\n c : d \nkey\\=x=y\\:z\nlonely\n")
    assert parsed == {"a": "b", "c": "d", "key=x": "y:z"}
    assert properties_text.parse(properties_text.render({"a": "b", "c": "d"})) == {
        "a": "b",
        "c": "d",
    }


# -- partition.metadata ---------------------------------------------------------------------------


def test_partition_metadata_of_kafka() -> None:
    content = (WRITTEN_BY_KAFKA / "txn-0" / "partition.metadata").read_bytes()
    topic_id = partition_metadata.decode(content)
    assert topic_id is not None
    assert partition_metadata.encode(topic_id) == content


def test_partition_metadata() -> None:
    files = an_empty_dir()
    assert partition_metadata.read_partition_metadata(files, "/data") is None
    topic_id = uuid.UUID(int=2**100 + 7)
    partition_metadata.write_partition_metadata(files, "/data", topic_id)
    assert partition_metadata.read_partition_metadata(files, "/data") == topic_id
    files.put("/data/partition.metadata", bytes(43))
    assert partition_metadata.read_partition_metadata(files, "/data") is None
    for text in (b"version: 1\ntopic_id: x", b"version: 0\n", b"version: 0\ntopic_id: ??", b"hi"):
        files.put("/data/partition.metadata", text)
        with pytest.raises(StorageError):
            partition_metadata.read_partition_metadata(files, "/data")


# -- the clean-shutdown marker --------------------------------------------------------------------


def test_clean_shutdown() -> None:
    files = an_empty_dir()
    assert not clean_shutdown.has_marker(files, "/data")
    assert clean_shutdown.read_broker_epoch(files, "/data") == -1
    clean_shutdown.write_marker(files, "/data", 11)
    assert files.read("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":11}'
    assert clean_shutdown.has_marker(files, "/data")
    assert clean_shutdown.read_broker_epoch(files, "/data") == 11
    clean_shutdown.remove_marker(files, "/data")
    clean_shutdown.remove_marker(files, "/data")
    assert not clean_shutdown.has_marker(files, "/data")


@pytest.mark.parametrize(
    ("text", "epoch"),
    [(b"", -1), (b"[]", -1), (b'{"brokerEpoch":null}', -1), (b'{"broker_epoch":"7"}', 7)],
)
def test_markers_of_other_versions(text: bytes, epoch: int) -> None:
    files = an_empty_dir()
    files.put("/data/.kafka_cleanshutdown", text)
    assert clean_shutdown.has_marker(files, "/data")
    assert clean_shutdown.read_broker_epoch(files, "/data") == epoch
