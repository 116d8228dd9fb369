"""Goal: one broker a dir, its own only; a life from open to clean; deletion that stays deleted.
Method: dirs in memory, two brokers, boots.
"""

from __future__ import annotations

import uuid

import pytest

from ottla.base.errors import ConfigError
from ottla.log.log_dir import LogDir, partition_of
from ottla.log.move_count import encode, read_moves
from ottla.log.partition_metadata import write_partition_metadata
from tests.chaos.memory_files import MemoryFiles

UNIQUE = "0123456789abcdef" * 2
TOPIC_ID = uuid.UUID(int=9)


def a_dir(files: MemoryFiles, path: str = "/data") -> LogDir:
    log_dir = LogDir.open(files, path)
    log_dir.claim(cluster_id="cluster", node_id=1)
    return log_dir


def test_a_second_broker_is_refused() -> None:
    files = MemoryFiles()
    first = a_dir(files)
    with pytest.raises(ConfigError, match="in use"):
        LogDir.open(files, "/data")
    first.release()
    first.release()
    LogDir.open(files, "/data").release()


def test_a_dir_of_another_cluster_or_node_is_refused() -> None:
    files = MemoryFiles()
    a_dir(files).release()
    again = LogDir.open(files, "/data")
    assert again.cluster_id == "cluster"
    for cluster_id, node_id in (("other", 1), ("cluster", 2)):
        with pytest.raises(ConfigError):
            again.claim(cluster_id=cluster_id, node_id=node_id)
    again.claim(cluster_id="cluster", node_id=1)


def test_a_dir_that_can_not_be_read_is_not_left_locked() -> None:
    files = MemoryFiles()
    files.put("/data/meta.properties", b"version=7")
    for _ in range(2):
        with pytest.raises(ConfigError, match="version 7"):
            LogDir.open(files, "/data")


def test_clean_until_it_begins() -> None:
    files = MemoryFiles()
    log_dir = a_dir(files)
    assert not log_dir.clean
    log_dir.begin()
    log_dir.write_recovery_points({("a", 0): 5})
    log_dir.write_log_start_offsets({("a", 0): 1})
    log_dir.write_high_watermarks({("a", 0): 4})
    log_dir.mark_clean()
    log_dir.release()
    again = a_dir(files)
    assert (again.clean, again.power_lost) == (True, False)
    assert again.recovery_points == {("a", 0): 5}
    assert again.log_start_offsets == {("a", 0): 1}
    assert again.high_watermarks == {("a", 0): 4}
    again.begin()
    again.release()
    assert not a_dir(files).clean


def test_a_killed_process_is_not_a_power_cut() -> None:
    files = MemoryFiles(boot="monday")
    log_dir = a_dir(files)
    assert log_dir.power_lost, "nothing is known of a new dir"
    log_dir.begin()
    log_dir.release()
    killed = a_dir(files)
    assert not killed.power_lost
    killed.release()
    files._boot = "tuesday"
    rebooted = a_dir(files)
    assert rebooted.power_lost
    rebooted.release()
    assert a_dir(files).power_lost, "it stays so until all logs are recovered"


def test_after_a_clean_stop_a_reboot_loses_nothing() -> None:
    files = MemoryFiles(boot="monday")
    log_dir = a_dir(files)
    log_dir.begin()
    log_dir.mark_clean()
    log_dir.release()
    files._boot = "tuesday"
    assert not a_dir(files).power_lost


def test_without_a_boot_id_the_worst_is_assumed() -> None:
    files = MemoryFiles(boot="")
    log_dir = a_dir(files)
    log_dir.begin()
    log_dir.release()
    assert a_dir(files).power_lost


def test_what_stands_in_it() -> None:
    files = MemoryFiles()
    log_dir = a_dir(files)
    for name in (
        "orders-0",
        "with-dashes-12",
        "__cluster_metadata-0",
        f"gone-3.{UNIQUE}-delete",
        f"lost-3.{UNIQUE}-stray",
        f"moving-3.{UNIQUE}-future",
        "lost+found",
    ):
        files.make_dir(f"/data/{name}")
    topic_id = uuid.UUID(int=5)
    write_partition_metadata(files, "/data/orders-0", topic_id)
    found = {(one.topic, one.partition): one.topic_id for one in log_dir.partitions()}
    assert found == {("orders", 0): topic_id, ("with-dashes", 12): None}
    assert log_dir.doomed_directories() == [f"/data/gone-3.{UNIQUE}-delete"]
    assert log_dir.directory_of("orders", 0) == "/data/orders-0"
    assert log_dir.space() == (1 << 40, 1 << 39)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a-0", ("a", 0)),
        ("a-b.c_d-17", ("a-b.c_d", 17)),
        ("a", None),
        ("a-", None),
        ("-0", None),
        ("a-x", None),
        ("meta.properties", None),
    ],
)
def test_names(name: str, key: tuple[str, int] | None) -> None:
    assert partition_of(name) == key


class Renames(MemoryFiles):
    """Directories can be renamed; what the crash tests use knows files only."""

    def rename(self, source: str, target: str) -> None:
        self.directories.remove(source)
        self.directories.add(target)


def test_deletion_is_a_rename_first() -> None:
    files = Renames(record=True)
    files.make_dir("/data/orders-0")
    files.directories |= {"/data/orders-1"}
    log_dir = LogDir.__new__(LogDir)
    log_dir._files = files
    log_dir.path = "/data"
    assert log_dir.set_aside_for_deletion("orders", 0, UNIQUE) == f"/data/orders-0.{UNIQUE}-delete"
    assert files.journal[-1] == ("sync_dir", "/data"), "a deleted topic does not come back"
    assert log_dir.doomed_directories() == [f"/data/orders-0.{UNIQUE}-delete"]
    files.directories |= {"/data/orders-0"}  # of the same replica, back before that was removed
    second = log_dir.set_aside_for_deletion("orders", 0, UNIQUE)
    assert log_dir.doomed_directories() == sorted([f"/data/orders-0.{UNIQUE}-delete", second])


def test_a_stray_is_kept_out_of_the_way() -> None:
    files = Renames()
    log_dir = LogDir.__new__(LogDir)
    log_dir._files = files
    log_dir.path = "/data"
    targets = set()
    for _ in range(2):
        files.make_dir("/data/orders-0")
        [found] = log_dir.partitions()
        targets.add(log_dir.set_stray(found))
    assert len(targets) == 2, "the second does not fall over the first"
    assert log_dir.partitions() == []


def test_long_names_lose_their_end() -> None:
    files = Renames()
    topic = "t" * 249
    files.make_dir(f"/data/{topic}-0")
    log_dir = LogDir.__new__(LogDir)
    log_dir._files = files
    log_dir.path = "/data"
    target = log_dir.set_aside_for_deletion(topic, 0, UNIQUE)
    assert len(target.rpartition("/")[2]) == 255
    assert target.endswith(f"-0.{UNIQUE}-delete")


def test_a_replica_on_its_way_has_a_directory_of_its_own() -> None:
    files = MemoryFiles(record=True)
    log_dir = LogDir.open(files, "/data")
    first = log_dir.make_future("orders", 3, UNIQUE)
    assert first == f"/data/orders-3.{UNIQUE}-future"
    second = log_dir.make_future("orders", 3, UNIQUE)
    write_partition_metadata(files, second, TOPIC_ID)
    assert log_dir.partitions() == [], "it counts as none yet"
    found = {one.path: (one.topic, one.partition, one.topic_id) for one in log_dir.futures()}
    assert found == {first: ("orders", 3, None), second: ("orders", 3, TOPIC_ID)}
    doomed = [log_dir.discard_future("orders", 3, path) for path in (first, second)]
    assert log_dir.futures() == []
    assert sorted(log_dir.doomed_directories()) == sorted(doomed)


def test_how_often_it_has_moved() -> None:
    files = MemoryFiles()
    assert read_moves(files, "/data/orders-0") == 0
    files.put("/data/orders-0/ottla.moves", encode(17))
    assert read_moves(files, "/data/orders-0") == 17
    files.put("/data/orders-0/ottla.moves", b"?")
    assert read_moves(files, "/data/orders-0") == 0
