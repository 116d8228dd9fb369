"""Goal: the replicas here are what the image says, and one that fails costs nothing but itself.
Method: real logs on a real disk, images by hand, a pool that works at once.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.base.ids import TopicPartition
from ottla.log.file_cache import FileCache
from ottla.log.log_dir import LogDir
from ottla.log.move_count import encode
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR, NONE, NOT_LEADER_OR_FOLLOWER
from ottla.records.batch_header import read_header
from ottla.replication.partition import Partition
from ottla.runtime import replica_loader
from ottla.runtime.flusher import Flusher
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_upkeep import LogUpkeep
from ottla.runtime.posix_files import PosixFiles
from sim.groups.virtual import VirtualTime
from tests.unit.log.world import NOW_MS, batch

ME = 1
TOPIC_ID = uuid.UUID(int=5)
ANOTHER_ID = uuid.UUID(int=6)


class Pool:
    """Does it now."""

    def run(self, work: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        done.resolve(work(*arguments))
        return done


class Broker:
    """One life of broker 1 over the files of its disk."""

    def __init__(
        self,
        disk: Path,
        dirs: tuple[str, ...] = ("one",),
        *,
        is_cluster: bool = False,
        broken: tuple[str, ...] = (),
        settings: dict[str, str] | None = None,
    ) -> None:
        self.time = VirtualTime()
        self.disk = disk
        files = PosixFiles()
        self.dirs = [
            LogDir.offline(files, str(disk / name), "a broken disk")
            if name in broken
            else LogDir.open(files, str(disk / name))
            for name in dirs
        ]
        self.replicas = LocalReplicas(
            broker_id=ME,
            files=files,
            file_cache=FileCache(100),
            clock=self.time,
            timers=self.time,
            pool=Pool(),
            log_dirs=self.dirs,
            config=BrokerConfig(settings or {}),
            is_cluster=is_cluster,
        )
        self.replicas.copying = self
        self.replicas.on_offline = self.on_offline
        self.followed: dict[Partition, int] = {}
        self.offline: list[TopicPartition] = []
        self.image = MetadataImage()

    def follow(self, partition: Partition) -> None:
        self.followed[partition] = partition.leader_id

    def unfollow(self, partition: Partition) -> None:
        self.followed.pop(partition, None)

    def on_offline(self) -> None:
        known = {one.topic_id: one.topic for one in self.replicas.all()}
        self.offline = [
            (known[topic_id], index)
            for topic_id, indexes in self.replicas.all_lost().items()
            for index in sorted(indexes)
        ]

    def load(self, *states: PartitionState) -> Broker:
        self.image = image(*states)
        self.replicas.load(self.image).result()
        return self

    def apply(self, *states: PartitionState, topic_id: uuid.UUID = TOPIC_ID) -> None:
        old, self.image = self.image, image(*states, topic_id=topic_id)
        self.replicas.apply(old, self.image).result()

    def partition(self, index: int = 0) -> Partition:
        found = self.replicas.find("t", index)
        assert found is not None
        return found

    def produce(self, index: int = 0) -> None:
        content = batch()
        self.partition(index).append(bytearray(content), read_header(content), NOW_MS)

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.disk / "one").iterdir() if path.is_dir())

    def die(self) -> None:
        for _, held in self.replicas.online():
            held.abandon()
        for log_dir in self.dirs:
            log_dir.release()


def state(leader: int = 1, epoch: int = 0, version: int = 0, **changes: Any) -> PartitionState:
    return replace(PartitionState(leader, epoch, (1, 2, 3), (1, 2, 3), version), **changes)


def image(
    *states: PartitionState,
    topic_id: uuid.UUID = TOPIC_ID,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> MetadataImage:
    configs = {"min.insync.replicas": "1", **settings}
    topic = TopicImage("t", topic_id, dict(enumerate(states)), configs)
    return MetadataImage(topics={"t": topic} if states else {}, topic_names_by_id={topic_id: "t"})


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_roles_follow_the_image(broker: Broker) -> None:
    broker.load(state(1), state(2), state(-1, 3))
    leads, follows, nobodys = (broker.partition(index) for index in range(3))
    assert leads.check_leader(-1) == NONE
    assert broker.followed == {follows: 2}
    assert nobodys.check_replica(-1) == NOT_LEADER_OR_FOLLOWER
    broker.apply(state(2, 1, 1), state(1, 1, 1), state(3, 4, 1))
    assert leads.check_leader(-1) == NOT_LEADER_OR_FOLLOWER
    assert follows.check_leader(-1) == NONE
    assert broker.followed == {leads: 2, nobodys: 3}
    broker.apply(state(2, 1, 1), state(1, 1, 1), state(-1, 5, 2))
    assert broker.followed == {leads: 2}


def test_a_newer_state_of_the_same_epoch_is_no_new_role(broker: Broker) -> None:
    broker.load(state(2))
    broker.followed.clear()
    broker.apply(state(2, 0, 1, in_sync=(2, 3)))
    assert broker.followed == {}
    assert broker.partition().in_sync == (2, 3)


def test_replicas_come_and_go(broker: Broker) -> None:
    broker.load(state(2, replicas=(2, 3), in_sync=(2, 3)))
    assert broker.replicas.find("t", 0) is None
    broker.apply(state(2, 0, 1, replicas=(2, 3, 1), in_sync=(2, 3), adding=(1,)))
    added = broker.partition()
    assert broker.followed == {added: 2}
    broker.apply(state(2, 0, 2, replicas=(2, 3), in_sync=(2, 3)))
    assert broker.replicas.find("t", 0) is None
    assert broker.followed == {}
    broker.time.advance(60_000)
    assert broker.names() == []


def test_more_threads_than_there_can_be_open_what_there_is(tmp_path: Path) -> None:
    settings = {"num.recovery.threads.per.data.dir": str(2**31 - 1)}
    broker = Broker(tmp_path, ("one", "two"), settings=settings).load(state(1), state(1), state(2))
    assert len(list(broker.replicas.online())) == 3


def test_a_setting_of_another_version_costs_no_replica_and_is_told(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.image = image(state(1), settings={"retention.ms": "soon", "segment.ms": "5"})
    broker.replicas.load(broker.image).result()
    [(_, held)] = broker.replicas.online()
    assert (held.config.retention_ms, held.config.segment_ms) == (604_800_000, 5)
    assert [one.getMessage() for one in caplog.records] == [
        "a setting of topic t counts as not set: "
        "Invalid value soon for configuration retention.ms: Not a number of type LONG"
    ]
    broker.replicas.configure(BrokerConfig({"log.retention.ms": "9"}), broker.image)
    assert held.config.retention_ms == 9


def test_what_is_not_ours_any_more_is_set_aside(broker: Broker) -> None:
    broker.load(state(1))
    broker.produce()
    broker.die()
    again = Broker(broker.disk).load(state(2, 1, 1, replicas=(2, 3), in_sync=(2, 3)))
    assert again.replicas.find("t", 0) is None
    [name] = again.names()
    assert name.endswith("-stray")


def test_an_epoch_that_an_earlier_life_led_is_not_led_again(broker: Broker) -> None:
    """Others may have copied of it what is not here any more (R1, R9)."""
    broker.load(state(1))
    broker.die()
    again = Broker(broker.disk, is_cluster=True).load(state(1))
    assert again.partition().check_leader(-1) == NOT_LEADER_OR_FOLLOWER
    again.apply(state(1, 0, 1, in_sync=(1, 2)))
    assert again.partition().check_leader(-1) == NOT_LEADER_OR_FOLLOWER
    again.apply(state(1, 2, 3, in_sync=(1, 2)))
    assert again.partition().check_leader(-1) == NONE


@pytest.mark.parametrize(("flush", "synced"), [("1", 2), ("9223372036854775807", 0)])
def test_what_a_kill_has_left_is_synced_before_it_counts(
    broker: Broker, flush: str, synced: int
) -> None:
    """Where a record counts once it is synced: a leader alone commits all that it has."""
    broker.load(state(1))
    broker.produce()
    broker.produce()
    broker.die()
    settings = {"log.flush.interval.messages": flush}
    held = Broker(broker.disk, settings=settings).load(state(1)).partition().log
    assert held is not None
    assert (held.log_end_offset, held.recovery_point) == (2, synced)
    assert held.unflushed_messages == 2 - synced


@pytest.mark.parametrize("is_cluster", [True, False])
def test_after_a_loss_of_power_records_of_an_unknown_topic_are_not_taken(
    broker: Broker, *, is_cluster: bool
) -> None:
    """They may be of a deleted one of the same name. A single node has only these."""
    broker.load(state(1))
    broker.produce()
    broker.die()
    (broker.disk / "one" / "t-0" / "partition.metadata").unlink()
    (broker.disk / "one" / "ottla.boot.id").write_text("another")
    again = Broker(broker.disk, is_cluster=is_cluster).load(state(2, 1, 1))
    log = again.partition().log
    assert log is not None
    assert log.log_end_offset == (0 if is_cluster else 1)
    assert any(name.endswith("-stray") for name in again.names()) == is_cluster


def test_a_failed_disk_is_told(tmp_path: Path) -> None:
    two = Broker(tmp_path, ("one", "two"))
    two.load(state(1), state(2), state(2), state(1))
    one = str(tmp_path / "one")
    of_one = [index for index in range(4) if two.partition(index).log_dir == one]
    assert len(of_one) == 2, "new replicas go where the fewest are"
    two.replicas.storage_failed(StorageError(f"{one}/t-0", "append"))
    assert sorted(two.offline) == [("t", index) for index in of_one]
    assert sorted(two.replicas.lost("t")) == of_one
    assert not two.replicas.lost("u")
    assert all(partition.log_dir != one for partition in two.followed)
    for index in range(4):
        expected = KAFKA_STORAGE_ERROR if index in of_one else two.partition(index).check_leader(-1)
        assert two.partition(index).check_leader(-1) == expected


def test_the_last_disk_that_fails_is_told_once(tmp_path: Path) -> None:
    two = Broker(tmp_path, ("one", "two")).load(state(1), state(1))
    told: list[bool] = []
    two.replicas.on_last_dir_failed = lambda: told.append(True)
    two.replicas.storage_failed(StorageError(str(tmp_path / "one" / "t-0"), "append"))
    assert told == []
    two.replicas.storage_failed(StorageError(str(tmp_path / "two"), "append"))
    two.replicas.storage_failed(StorageError(str(tmp_path / "one"), "append"))
    assert told == [True]


def test_a_disk_whose_name_begins_alike_has_not_failed(tmp_path: Path) -> None:
    two = Broker(tmp_path, ("disk1", "disk10")).load(state(1), state(1))
    two.replicas.storage_failed(StorageError(str(tmp_path / "disk10" / "t-1"), "append"))
    assert [log_dir.error is None for log_dir in two.dirs] == [True, False]
    two.replicas.storage_failed(StorageError(str(tmp_path / "disk1"), "list"))
    assert two.dirs[0].error is not None


def test_what_may_be_on_a_disk_that_can_not_be_read_is_offline_and_not_empty(
    tmp_path: Path,
) -> None:
    first = Broker(tmp_path, ("one", "two")).load(state(1), state(1))
    on_two = [index for index in range(2) if first.partition(index).log_dir.endswith("two")]
    for index in range(2):
        first.produce(index)
    first.die()
    again = Broker(tmp_path, ("one", "two"), broken=("two",)).load(state(1, 1, 1), state(1, 1, 1))
    assert again.offline == [("t", index) for index in on_two]
    assert len(on_two) == 1
    for index in range(2):
        expected = KAFKA_STORAGE_ERROR if index in on_two else NONE
        assert again.partition(index).check_leader(-1) == expected
    again.die()
    healed = Broker(tmp_path, ("one", "two")).load(state(1, 2, 2), state(1, 2, 2))
    for index in range(2):
        log = healed.partition(index).log
        assert log is not None
        assert log.log_end_offset == 1


def test_an_alarm_takes_one_replica_offline(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.load(state(2, 3), state(2, 3))
    with caplog.at_level(logging.ERROR, "ottla.runtime"):
        broker.partition(0).alarm("R0: a rule is broken")
    assert "ALARM: t-0" in caplog.text
    assert broker.replicas.alarms == 1
    assert broker.offline == [("t", 0)]
    assert list(broker.replicas.lost("t")) == [0]
    assert broker.followed == {broker.partition(1): 2}
    broker.time.advance(1)
    assert broker.partition(0).check_leader(-1) == KAFKA_STORAGE_ERROR


def a_corrupt_broker(disk: Path) -> Broker:
    """Its first batch is damaged, with sound ones behind it."""
    first = Broker(disk).load(state(1))
    for _ in range(3):
        first.produce()
    first.die()
    with (disk / "one" / "t-0" / "00000000000000000000.log").open("r+b") as file:
        file.seek(65)
        file.write(b"\xff\xff")
    return Broker(disk)


def test_a_corrupt_replica_is_not_served_and_leaves_its_sets(tmp_path: Path) -> None:
    broker = a_corrupt_broker(tmp_path).load(state(1, 1, 1))
    assert broker.partition().check_leader(-1) == KAFKA_STORAGE_ERROR
    assert broker.offline == [("t", 0)]
    assert broker.followed == {}


def test_it_is_copied_anew_once_nobody_counts_on_it(tmp_path: Path) -> None:
    broker = a_corrupt_broker(tmp_path).load(state(1, 1, 1))
    for waits in (
        state(2, 2, 2),  # still in sync
        state(2, 2, 3, in_sync=(2,), eligible=(1,)),  # still eligible
        state(-1, 3, 4, in_sync=(2,)),  # nobody to copy from
    ):
        broker.apply(waits)
        assert broker.partition().log is None
    broker.apply(state(2, 4, 5, in_sync=(2, 3)))
    fresh = broker.partition()
    assert fresh.log is not None
    assert fresh.log.log_end_offset == 0
    assert broker.followed == {fresh: 2}
    assert not broker.replicas.lost("t")
    assert any(name.endswith("-stray") for name in broker.names())


def test_a_corrupt_replica_is_deleted_with_its_topic_and_the_next_one_begins_anew(
    tmp_path: Path,
) -> None:
    broker = a_corrupt_broker(tmp_path).load(state(1, 1, 1))
    broker.apply()
    assert [name for name in broker.names() if not name.endswith("-delete")] == []
    broker.apply(state(1), topic_id=ANOTHER_ID)
    log = broker.partition().log
    assert log is not None
    assert log.log_end_offset == 0
    assert not broker.replicas.lost("t")
    broker.time.advance(60_000)
    assert broker.names() == ["t-0"]


def test_an_alarmed_replica_is_deleted_with_its_topic(broker: Broker) -> None:
    broker.load(state(1))
    broker.produce()
    broker.partition().alarm("R0: a rule is broken")
    broker.time.advance(1)
    broker.apply()
    broker.time.advance(60_000)
    assert broker.names() == []


def test_one_that_is_nowhere_on_the_disk_is_removed_without_a_word(broker: Broker) -> None:
    broker.load(state(1))
    broker.partition().alarm("R0: a rule is broken")
    broker.time.advance(1)
    shutil.rmtree(broker.disk / "one" / "t-0")
    broker.apply()
    assert broker.dirs[0].error is None


def test_a_directory_of_another_topic_is_not_served_under_this_ones_name(
    tmp_path: Path, broker: Broker
) -> None:
    other = Broker(tmp_path / "elsewhere").load(state(1))
    other.produce()
    other.die()
    broker.load()
    shutil.copytree(tmp_path / "elsewhere" / "one" / "t-0", tmp_path / "one" / "t-0")
    broker.apply(state(1), topic_id=ANOTHER_ID)
    log = broker.partition().log
    assert log is not None
    assert log.log_end_offset == 0
    assert broker.names() == ["t-0", f"t-0.{TOPIC_ID.hex}-stray"]


def test_a_watermark_beyond_what_is_left_is_not_believed(broker: Broker) -> None:
    broker.load(state(2))
    broker.dirs[0].write_high_watermarks({("t", 0): 9})
    broker.die()
    again = Broker(broker.disk).load(state(2))
    assert again.partition().high_watermark == 0


# -- what rots while it is served -------------------------------------------------------------


def test_what_has_rotted_is_served_no_more_and_others_are_told(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.load(state(1), state(1))
    broker.produce(0)
    with caplog.at_level(logging.ERROR, "ottla.runtime"):
        broker.replicas.found_corrupt(broker.partition(0), "a batch is broken")
        broker.replicas.found_corrupt(broker.partition(0), "a batch is broken")
    assert caplog.text.count("partition t-0 is offline: a batch is broken") == 1
    assert broker.partition(0).check_leader(-1) == KAFKA_STORAGE_ERROR
    assert broker.partition(1).check_leader(-1) == NONE
    assert broker.offline == [("t", 0)]
    assert list(broker.replicas.lost("t")) == [0]
    assert broker.replicas.corrupt_in(str(broker.disk / "one")) == [("t", 0)]
    assert broker.replicas.corrupt_in(str(broker.disk / "two")) == []


def test_a_rotten_one_is_still_so_after_a_restart(broker: Broker) -> None:
    broker.load(state(1))
    broker.produce()
    path = broker.disk / "one" / "t-0" / "00000000000000000000.log"
    before = path.read_bytes()
    broker.replicas.found_corrupt(broker.partition(), "a batch is broken")
    broker.die()
    for _ in range(2):
        again = Broker(broker.disk).load(state(1, 1, 1))
        assert again.partition().check_leader(-1) == KAFKA_STORAGE_ERROR
        assert again.offline == [("t", 0)]
        again.die()
    assert path.read_bytes() == before
    path.with_name("ottla.corrupt").unlink()
    healed = Broker(broker.disk).load(state(1, 1, 1)).partition().log
    assert healed is not None
    assert healed.log_end_offset == 1


def test_a_follower_that_has_rotted_is_copied_anew(broker: Broker) -> None:
    broker.load(state(2))
    rotten = broker.partition()
    assert broker.followed == {rotten: 2}
    broker.replicas.found_corrupt(rotten, "a batch is broken")
    assert broker.followed == {}
    broker.apply(state(2, version=1, in_sync=(2, 3)))
    assert broker.partition() is not rotten
    assert broker.followed == {broker.partition(): 2}
    assert broker.replicas.corrupt_in(str(broker.disk / "one")) == []
    assert not (broker.disk / "one" / "t-0" / "ottla.corrupt").exists()


def test_one_that_was_in_no_set_is_copied_anew_with_the_next_change_of_anything(
    broker: Broker,
) -> None:
    broker.load(state(2, in_sync=(2, 3)))
    rotten = broker.partition()
    broker.replicas.found_corrupt(rotten, "a batch is broken")
    broker.replicas.apply(broker.image, replace(broker.image, controller_id=2)).result()
    assert broker.partition() is not rotten
    assert broker.followed == {broker.partition(): 2}


def test_a_disk_that_takes_no_mark_is_offline(broker: Broker) -> None:
    broker.load(state(1))
    shutil.rmtree(broker.disk / "one" / "t-0")
    broker.replicas.found_corrupt(broker.partition(), "a batch is broken")
    assert broker.dirs[0].error is not None


def test_what_checkpoints_say_of_a_corrupt_replica_stays(tmp_path: Path) -> None:
    """Its recovery point: without it, a recovery takes damage in the last batch for a torn end."""
    first = Broker(tmp_path).load(state(1))
    log_dir = first.dirs[0]
    log_dir.write_recovery_points({("t", 0): 3, ("gone", 0): 5})
    log_dir.write_log_start_offsets({("t", 0): 1})
    first.die()
    broker = Broker(tmp_path).load(state(1))
    upkeep = LogUpkeep(
        replicas=broker.replicas,
        flusher=Flusher(Pool(), broker.replicas.storage_failed),
        files=PosixFiles(),
        clock=broker.time,
        timers=broker.time,
        pool=Pool(),
        config=lambda: BrokerConfig({}),
    )
    broker.replicas.found_corrupt(broker.partition(), "a batch is broken")
    upkeep.checkpoint_recovery()
    upkeep.checkpoint_all_now(broker.dirs[0])
    broker.die()
    found = LogDir.open(PosixFiles(), str(tmp_path / "one"))
    assert found.recovery_points == {("t", 0): 3}
    assert found.log_start_offsets == {("t", 0): 1}
    found.release()


def test_who_leads_with_records_that_count_when_they_are_synced_syncs_them(tmp_path: Path) -> None:
    """Otherwise the readers of what it has copied wait for its next producer."""
    settings = {"log.flush.interval.messages": "1"}
    broker = Broker(tmp_path, is_cluster=True, settings=settings).load(state(2))
    flusher = Flusher(Pool(), broker.replicas.storage_failed, broker.replicas.on_flushed)
    broker.replicas.flush = flusher.flush
    partition = broker.partition()
    assert partition.log is not None
    content = bytearray(batch(epoch=0))
    partition.log.append_replicated(content)
    assert partition.log.unflushed_messages == 1
    broker.apply(state(ME, epoch=1, in_sync=(ME,)))
    assert partition.log.unflushed_messages == 0
    assert partition.high_watermark == 1


def test_a_new_replica_goes_where_somebody_has_asked_for(tmp_path: Path) -> None:
    broker = Broker(tmp_path, ("one", "two", "three")).load()
    three = str(tmp_path / "three")
    broker.replicas.prefer("t", 0, three)
    broker.replicas.prefer("t", 1, str(tmp_path / "two"))
    broker.replicas.prefer("t", 1, three)
    broker.apply(state(), state(), state())
    assert [broker.partition(index).log_dir for index in range(2)] == [three, three]
    assert broker.partition(2).log_dir != three, "the others where the fewest are"
    # Once: a topic of the same name that is made later has not been asked about.
    broker.apply()
    broker.apply(state(), topic_id=ANOTHER_ID)
    assert broker.partition(0).log_dir == str(tmp_path / "one")


def test_a_wish_for_a_broken_disk_counts_for_nothing(tmp_path: Path) -> None:
    broker = Broker(tmp_path, ("one", "two"), broken=("two",)).load()
    broker.replicas.prefer("t", 0, str(tmp_path / "two"))
    broker.apply(state())
    assert broker.partition(0).log_dir == str(tmp_path / "one")


def test_wishes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_loader, "PREFERRED_LOG_DIRS_MAX", 2)
    broker = Broker(tmp_path, ("one", "two")).load()
    for index in range(3):
        broker.replicas.prefer("t", index, str(tmp_path / "two"))
    broker.apply(state(), state(), state())
    dirs = [Path(broker.partition(index).log_dir).name for index in range(3)]
    assert dirs == ["one", "two", "two"]


@pytest.mark.parametrize("later", ["one", "two"])
def test_of_two_directories_the_one_that_has_moved_more_often_counts(
    tmp_path: Path, later: str
) -> None:
    broker = Broker(tmp_path, ("one", "two")).load(state())
    broker.produce()
    broker.die()
    shutil.copytree(tmp_path / "one" / "t-0", tmp_path / "two" / "t-0")
    (tmp_path / later / "t-0" / "ottla.moves").write_bytes(encode(1))
    again = Broker(tmp_path, ("one", "two")).load(state())
    assert again.partition().log_dir == str(tmp_path / later)
    left = [path.name for path in tmp_path.glob("*/t-0*") if path.parent.name != later]
    assert [name.rpartition("-")[2] for name in left] == ["delete"]
