"""Goal: the cleaner cleans the dirtiest first and no faster than it may, and whatever happens to
one log, it lets go of it and goes on with the others.
Method: real logs in memory, a pool whose work the test does, virtual time.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, StorageError
from ottla.log.compaction_batches import CannotClean
from ottla.log.log_config import LONG_MAX, LogConfig
from ottla.log.open_log import open_log
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import read_header
from ottla.runtime.log_cleaner import SWITCH_SECONDS, LogCleaner
from sim.groups.virtual import VirtualTime
from tests.chaos.memory_files import MemoryFiles
from tests.unit.log.compacting import CONFIG, batches_of, read, state_of

R = TypeVar("R")
BACKOFF_MS = 15_000


class PlayedPool:
    """Work waits until the test lets it happen; the next may be made to fail."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Deferred[Any], Callable[[], Any]]] = deque()
        self.failure: BaseException | None = None

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        done: Deferred[R] = Deferred()
        self.jobs.append((done, lambda: work(*arguments)))
        return done

    def work(self) -> None:
        done, job = self.jobs.popleft()
        failure, self.failure = self.failure, None
        if failure is not None:
            done.fail(failure)
            return
        try:
            value = job()
        except OttlaError as error:
            done.fail(error)
        else:
            done.resolve(value)

    def work_all(self) -> None:
        while self.jobs:
            self.work()


class Node:
    """The logs of a broker, and what a cleaner asks of their keepers."""

    def __init__(self, **settings: str) -> None:
        self.time = VirtualTime()
        self.files = MemoryFiles()
        self.pool = PlayedPool()
        self.logs: dict[str, PartitionLog] = {}
        self.failures: list[StorageError] = []
        self.suspected: list[tuple[Any, int]] = []
        self.checkpoints = 0
        self.config = BrokerConfig({"log.cleaner.backoff.ms": str(BACKOFF_MS), **settings})
        self.cleaner = LogCleaner(
            replicas=cast(Any, self),
            upkeep=cast(Any, self),
            flusher=cast(Any, self),
            files=self.files,
            clock=self.time,
            timers=self.time,
            pool=self.pool,
            config=lambda: self.config,
            suspect=lambda partition, offset: self.suspected.append((partition, offset)),
        )

    # -- logs -------------------------------------------------------------------------------

    def add(self, topic: str, config: LogConfig = CONFIG) -> PartitionLog:
        held, _ = open_log(
            self.files,
            f"/data/{topic}-0",
            topic,
            0,
            config=config,
            recovery_point=0,
            log_start_offset=0,
            clean=False,
            clock=self.time,
            producer_id_expiration_ms=86_400_000,
        )
        self.logs[topic] = held
        return held

    def put(self, topic: str, *values: bytes | None, key: bytes = b"k") -> None:
        """A batch for each value, under one key; then the segment ends."""
        held = self.logs[topic]
        for value in values:
            batch = build_batch([RecordToWrite(self.time.wall_ms(), key, value)])
            held.append(bytearray(batch), read_header(batch), 0, now_ms=self.time.wall_ms())
        held.on_high_watermark(held.log_end_offset)
        held.maybe_roll(self.time.wall_ms() + 10**13)
        self.on_roll(held)

    def state(self, topic: str) -> dict[bytes, bytes]:
        held = self.logs[topic]
        return state_of(
            (one.key, one.value) for _, batch in batches_of(held) for one in read(batch)
        )

    def count(self, topic: str) -> int:
        return sum(header[12] for header, _ in batches_of(self.logs[topic]))

    def unfinished(self, topic: str) -> list[str]:
        names = self.files.list_dir(f"/data/{topic}-0")
        return [name for name in names if name.endswith((".cleaned", ".swap"))]

    # -- replicas ---------------------------------------------------------------------------

    def dirs(self) -> list[Any]:
        return [SimpleNamespace(path="/data", cleaned_offsets={})]

    def online(self) -> Iterator[tuple[Any, PartitionLog]]:
        for topic in self.logs:
            yield self.find(topic, 0), self.logs[topic]

    def find(self, topic: str, partition: int) -> Any:
        held = self.logs.get(topic)
        if held is None:
            return None
        return SimpleNamespace(log=held, last_stable_offset=held.log_end_offset)

    def storage_failed(self, failure: StorageError) -> None:
        self.failures.append(failure)
        self.logs.clear()

    # -- flusher and upkeep -----------------------------------------------------------------

    def on_roll(self, held: PartitionLog) -> None:
        job = held.flush_job()
        if job is not None:
            job.run()
            held.flush_done(job)

    def save_recovery_points(self, log_dir: str) -> Deferred[None]:
        saved: Deferred[None] = Deferred()
        saved.resolve(None)
        return saved

    def checkpoint_cleaning(self) -> None:
        self.checkpoints += 1

    def remove_later(self, held: PartitionLog, paths: list[str]) -> None:
        for path in paths:
            self.files.remove(path)

    # -- time -------------------------------------------------------------------------------

    def begin(self) -> None:
        self.cleaner.start()
        self.time.advance(BACKOFF_MS)

    def pass_time(self, milliseconds: int) -> None:
        for _ in range(milliseconds):
            self.time.advance(1)
            self.pool.work_all()


@pytest.fixture(autouse=True)
def _switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    assert sys.getswitchinterval() == before


def cleaned_topics(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage().partition("-0: cleaned up to") for one in caplog.records]
    return [topic for topic, cleaned, _ in found if cleaned]


# -- what is cleaned, and when --------------------------------------------------------------------


def test_the_dirtiest_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.cleaner")
    node = Node()
    for topic in ("half", "all", "none"):
        node.add(topic)
        node.put(topic, *[b"old"] * 10)
    for topic in ("half", "none"):
        node.logs[topic].cleaned_to = node.logs[topic].log_end_offset
    node.put("half", *[b"new"] * 10)
    node.begin()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    node.pool.work_all()
    assert cleaned_topics(caplog) == ["all", "half"], "and then the next, without a rest"
    assert [node.count(topic) for topic in ("half", "all", "none")] == [1, 1, 10]
    assert node.checkpoints == 2
    assert not node.pool.jobs
    node.put("none", b"new")
    node.pass_time(BACKOFF_MS)
    assert node.count("none") == 1


def test_only_compacted_logs_are_cleaned() -> None:
    node = Node()
    node.add("plain", LogConfig(segment_bytes=1200))
    node.put("plain", b"1", b"2")
    node.begin()
    assert not node.pool.jobs


def test_a_log_on_its_way_to_another_disk_is_cleaned_when_it_is_there() -> None:
    node = Node()
    held = node.add("t")
    node.put("t", b"1", b"2")
    until_committed(node)
    # As who moves it does it.
    assert held.cleaning is not None
    held.cleaning.cancel()
    held.is_moving = True
    node.pool.work_all()
    assert node.logs["t"].cleaning is None
    assert (node.unfinished("t"), node.failures) == ([], [])
    node.pass_time(BACKOFF_MS)
    assert node.count("t") == 2
    held.is_moving = False
    node.pass_time(BACKOFF_MS)
    assert node.count("t") == 1


def test_nothing_is_cleaned_where_the_cleaner_is_off() -> None:
    node = Node(**{"log.cleaner.enable": "false"})
    node.add("t")
    node.put("t", b"1", b"2")
    node.begin()
    assert not node.pool.jobs


def test_no_faster_than_it_may() -> None:
    rate = 1000
    node = Node(**{"log.cleaner.io.max.bytes.per.second": str(rate)})
    held = node.add("t")
    for _ in range(5):
        node.put("t", *[b"x" * 50] * 6)
    node.begin()
    begun_ms, size = node.time.monotonic_ms(), held.size
    while node.count("t") > 1 or held.cleaning is not None:
        node.pass_time(1)
        assert node.time.monotonic_ms() < begun_ms + 100_000, "it gets on"
    # Everything is read twice, and what stays is written; the last step is not waited for.
    took_ms = node.time.monotonic_ms() - begun_ms
    assert 1.2 * size / rate * 1000 < took_ms < 2.5 * size / rate * 1000
    assert node.state("t") == {b"k": b"x" * 50}


def test_a_new_rate_counts_from_the_next_slice_on() -> None:
    node = Node(**{"log.cleaner.io.max.bytes.per.second": "1"})
    node.add("t")
    for _ in range(3):
        node.put("t", *[b"x" * 50] * 6)
    node.begin()
    node.pass_time(1000)
    assert node.count("t") == 18
    node.config = BrokerConfig({})
    node.pass_time(1_000_000 // 500)
    assert node.count("t") == 18, "what was worked on before is waited for"
    node.time.advance(3_000_000)
    node.pool.work_all()
    assert node.count("t") == 1


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [CannotClean("damaged"), KeyError("a mistake"), IndexError()])
def test_a_log_that_cannot_be_cleaned_is_left_alone_and_others_are_not(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    for topic in ("bad", "good"):
        node.add(topic)
        node.put(topic, b"1", b"2")
    node.logs["good"].cleaned_to = 1  # so it is the less dirty one
    node.begin()
    node.pool.failure = failure
    node.pool.work_all()
    assert node.logs["bad"].cleaning is None
    assert "bad-0 is not cleaned any more" in caplog.text
    assert node.count("bad") == 2
    node.pass_time(BACKOFF_MS)
    assert node.count("good") == 1
    node.put("bad", b"3")
    node.put("good", b"3")
    node.pass_time(BACKOFF_MS)
    assert (node.count("bad"), node.count("good")) == (3, 1)
    assert not node.failures


def test_what_is_found_broken_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """It keeps its place, and its checksum; but nobody should be served from it."""
    node = Node()
    held = node.add("t")
    node.put("t", b"1", b"2", b"3")
    (segment, *_) = held.all_segments()
    file = segment.open_file()
    content = file.read_at(0, segment.size)
    file.write_at(content.index(b"2"), b"x")
    node.begin()
    node.pool.work_all()
    assert "t-0 is not cleaned any more" in caplog.text
    assert [(found.log, offset) for found, offset in node.suspected] == [(held, 1)]
    assert not node.failures


def test_without_memory_it_is_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.add("t")
    node.put("t", b"1", b"2")
    node.begin()
    node.pool.failure = MemoryError()
    node.pool.work_all()
    assert node.logs["t"].cleaning is None
    assert "no memory" in caplog.text
    node.pass_time(BACKOFF_MS - 1)
    assert node.count("t") == 2
    node.pass_time(1)
    assert node.count("t") == 1


def test_a_disk_that_fails_takes_its_logs_offline() -> None:
    node = Node()
    held = node.add("t")
    node.put("t", b"1", b"2")
    node.begin()
    node.pool.failure = failure = StorageError("/data/t-0", "clean")
    node.pool.work_all()
    assert node.failures == [failure]
    assert held.cleaning is None
    node.add("other")
    node.put("other", b"1", b"2")
    node.pass_time(BACKOFF_MS)
    assert node.count("other") == 1


def test_a_retention_for_ever_is_cleaned_like_any_other() -> None:
    node = Node()
    node.add("t", replace(CONFIG, delete_retention_ms=LONG_MAX))
    node.put("t", b"1", None)
    node.begin()
    node.pool.work_all()
    assert node.count("t") == 1
    assert node.state("t") == {}


# Kafka takes all of these, and while it runs.
ODD_SETTINGS = [
    ("log.cleaner.dedupe.buffer.size", str(LONG_MAX)),
    ("log.cleaner.io.buffer.load.factor", "-1"),
    ("log.cleaner.io.buffer.load.factor", "4.9e-324"),
    ("log.cleaner.io.buffer.load.factor", "Infinity"),
    ("log.cleaner.io.buffer.size", "0"),
    ("log.cleaner.io.buffer.size", str(2**31 - 1)),
    ("log.cleaner.io.max.bytes.per.second", "-Infinity"),
    ("log.cleaner.io.max.bytes.per.second", "-1"),
    ("log.cleaner.io.max.bytes.per.second", "0"),
    ("log.cleaner.io.max.bytes.per.second", "4.9e-324"),
    ("log.cleaner.io.max.bytes.per.second", "Infinity"),
]


@pytest.mark.parametrize(("name", "value"), ODD_SETTINGS)
def test_no_setting_stops_it_for_good(name: str, value: str) -> None:
    node = Node(**{name: value})
    held = node.add("t")
    node.put("t", b"1", b"2", b"3")
    node.begin()
    node.pool.work_all()
    for _ in range(100):  # a rate of nothing is one of next to nothing
        node.time.advance(60_000)
        node.pool.work_all()
    assert node.count("t") == 1
    assert held.cleaning is None


# -- what happens to a log meanwhile --------------------------------------------------------------


def until_committed(node: Node) -> None:
    """The cleaned segment has its `.swap` names; what is next is the sync before it takes over."""
    node.begin()
    while not any(name.endswith(".log.swap") for name in node.unfinished("t")):
        node.pool.work()


def test_a_log_that_is_cut_between_commit_and_swap_keeps_what_it_was_cut_to() -> None:
    node = Node()
    held = node.add("t")
    for value in (b"1", b"2", b"3"):
        node.put("t", value, value)
    until_committed(node)
    held.truncate_to(3)
    assert node.unfinished("t") == []
    node.pool.work_all()
    assert held.cleaning is None
    assert (node.count("t"), node.state("t")) == (3, {b"k": b"2"})
    assert not node.failures
    node.put("t", b"4")
    node.pass_time(BACKOFF_MS)
    assert (node.count("t"), node.state("t")) == (1, {b"k": b"4"})


def test_a_log_that_is_deleted_between_commit_and_swap_is_let_go() -> None:
    node = Node()
    held = node.add("t")
    node.put("t", b"1", b"2")
    until_committed(node)
    del node.logs["t"]
    held.close()
    node.files.remove_tree("/data/t-0")
    node.pool.work_all()
    assert held.cleaning is None
    assert not node.failures, "nobody's disk has failed"
    node.add("other")
    node.put("other", b"1", b"2")
    node.pass_time(BACKOFF_MS)
    assert node.count("other") == 1


def test_a_log_that_is_deleted_and_made_anew_is_another_one() -> None:
    node = Node()
    held = node.add("t")
    node.put("t", b"1", b"2")
    until_committed(node)
    held.close()
    node.files.remove_tree("/data/t-0")
    node.add("t")
    node.put("t", b"new")
    node.pool.work_all()
    assert node.state("t") == {b"k": b"new"}
    assert not node.failures


def test_nothing_is_swapped_in_after_the_stop() -> None:
    node = Node()
    held = node.add("t")
    node.put("t", b"1", b"2")
    until_committed(node)
    node.cleaner.stop()
    node.pool.work_all()
    node.pass_time(2 * BACKOFF_MS)
    assert held.cleaning is None
    assert node.count("t") == 2
    assert not node.pool.jobs
