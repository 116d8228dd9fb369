"""Goal: the scrubber looks over what is due, no faster than it may, and takes a replica out of
service only for what it has seen twice in a segment that is still there.
Method: real logs in memory, a pool whose work the test does, virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.errors import StorageError
from ottla.log.log_config import LogConfig
from ottla.log.log_dir import LogDir
from ottla.log.open_log import open_log
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.records.batch_header import read_header
from ottla.runtime.log_scrubber import LOOK_MS, PIECE_BYTES, LogScrubber
from sim.groups.virtual import VirtualTime
from tests.chaos.memory_files import MemoryFiles
from tests.unit.log.test_scrub import Reader
from tests.unit.log.world import batch
from tests.unit.runtime.test_log_cleaner import PlayedPool

DAY_MS = 86_400_000
RATE = 100_000
SIZE = len(batch(size=10_000))


class Node:
    """The logs of a broker, and what a scrubber asks of their keeper."""

    def __init__(self, **settings: str) -> None:
        self.time = VirtualTime()
        self.files = MemoryFiles()
        self.pool = PlayedPool()
        self.logs: dict[str, PartitionLog] = {}
        self.failures: list[StorageError] = []
        self.corrupt: list[tuple[str, str]] = []
        self.reads: list[tuple[int, str, int]] = []
        self.log_dir = LogDir.open(self.files, "/data")
        self.config = BrokerConfig({"ottla.scrub.io.max.bytes.per.second": str(RATE), **settings})
        self.scrubber = LogScrubber(
            replicas=cast(Any, self),
            open_file=self.open_file,
            clock=self.time,
            timers=self.time,
            pool=self.pool,
            config=lambda: self.config,
        )

    def open_file(self, path: str) -> Reader:
        node = self

        class Counted(Reader):
            def read_at(self, position: int, size: int) -> bytes:
                content = super().read_at(position, size)
                node.reads.append((node.time.monotonic_ms(), path, len(content)))
                return content

        return Counted(self.files.open(path))

    def add(self, topic: str, batches: int = 10) -> PartitionLog:
        held, _ = open_log(
            self.files,
            f"/data/{topic}-0",
            topic,
            0,
            config=LogConfig(segment_bytes=5 * SIZE),
            recovery_point=0,
            log_start_offset=0,
            clean=False,
            clock=self.time,
            producer_id_expiration_ms=DAY_MS,
        )
        self.logs[topic] = held
        for _ in range(batches):
            content = batch(size=10_000)
            held.append(bytearray(content), read_header(content), 0, now_ms=self.time.wall_ms())
        self.flush(topic)
        return held

    def flush(self, topic: str) -> None:
        held = self.logs[topic]
        job = held.flush_job()
        if job is not None:
            job.run()
            held.flush_done(job)

    def flip(self, topic: str, position: int, base: int = 0) -> None:
        file = self.files.open(f"/data/{topic}-0/{base:020d}.log")
        file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 1]))

    def run(self, duration_ms: int, step_ms: int = 50) -> None:
        """Time passes, and the pool is fast."""
        for _ in range(0, duration_ms, step_ms):
            self.time.advance(step_ms)
            self.pool.work_all()

    def seen(self) -> list[str]:
        """Which logs were read, in order."""
        paths = [path.split("/")[2] for _, path, _ in self.reads]
        return list(dict.fromkeys(paths))

    # -- replicas ---------------------------------------------------------------------------

    def dirs(self) -> list[LogDir]:
        return [self.log_dir]

    def logs_of(self, path: str) -> list[PartitionLog]:
        return list(self.logs.values())

    def online(self) -> Iterator[tuple[Any, PartitionLog]]:
        for topic in self.logs:
            yield self.find(topic, 0), self.logs[topic]

    def find(self, topic: str, partition: int) -> Any:
        held = self.logs.get(topic)
        return None if held is None else SimpleNamespace(topic=topic, log=held)

    def storage_failed(self, failure: StorageError) -> None:
        self.failures.append(failure)
        self.logs.clear()

    def found_corrupt(self, partition: Any, reason: str) -> None:
        self.corrupt.append((partition.topic, reason))
        del self.logs[partition.topic]


def started(**settings: str) -> Node:
    node = Node(**settings)
    node.add("a")
    node.scrubber.start()
    return node


# -- when -------------------------------------------------------------------------------------


def test_a_log_is_looked_over_once_and_then_not_for_a_week() -> None:
    node = started()
    node.run(LOOK_MS)
    assert sum(size for _, _, size in node.reads) >= 10 * SIZE
    before = len(node.reads)
    node.run(6 * DAY_MS, LOOK_MS)
    assert len(node.reads) == before
    node.run(DAY_MS, LOOK_MS)
    assert len(node.reads) > before
    assert node.corrupt == []


def test_an_idle_broker_has_one_timer_a_minute() -> None:
    node = started()
    node.run(10 * LOOK_MS, 1000)
    fired: list[float] = []
    call_later = node.time.call_later

    def counted(delay_ms: float, callback: Any) -> Any:
        fired.append(delay_ms)
        return call_later(delay_ms, callback)

    node.time.call_later = counted  # type: ignore[method-assign]
    node.run(100 * LOOK_MS, 1000)
    assert 99 <= len(fired) <= 101
    assert not node.pool.jobs


def test_what_was_never_looked_at_comes_first_also_after_a_restart() -> None:
    node = started()
    node.run(2 * LOOK_MS)
    again = Node()
    again.files = node.files
    again.log_dir = node.log_dir
    again.time.advance(2 * LOOK_MS)
    for topic in ("a", "b"):
        again.logs[topic] = node.logs.get(topic) or node.add(topic)
    again.scrubber.start()
    again.run(2 * LOOK_MS)
    assert again.seen() == ["b-0"]
    again.run(8 * DAY_MS, LOOK_MS)
    assert again.seen() == ["b-0", "a-0"]


def test_a_clock_that_was_wrong_does_not_keep_it_from_looking() -> None:
    node = Node()
    node.add("a")
    node.log_dir.write_scrub_times({("a", 0): node.time.wall_ms() + 1000 * DAY_MS})
    node.scrubber.start()
    node.run(LOOK_MS)
    assert node.seen() == ["a-0"]


def test_the_interval_can_be_changed_and_minus_one_is_never() -> None:
    node = started(**{"ottla.scrub.interval.ms": "-1"})
    node.run(30 * DAY_MS, DAY_MS)
    assert node.reads == []
    node.config = BrokerConfig({"ottla.scrub.interval.ms": "1000"})
    node.run(2 * LOOK_MS)
    count = len(node.reads)
    assert count > 0
    node.run(10_000)
    assert len(node.reads) > count


def test_logs_without_anything_to_read_do_not_keep_the_loop() -> None:
    node = Node()
    for number in range(250):
        node.add(f"t{number}", batches=0)
    node.add("z")
    node.scrubber.start()
    node.run(LOOK_MS)
    assert node.seen() == ["z-0"]


def test_what_a_stop_leaves_undone_is_not_begun() -> None:
    node = started()
    node.time.advance(LOOK_MS)
    assert node.pool.jobs
    node.scrubber.stop()
    node.pool.work_all()
    count = len(node.reads)
    node.run(LOOK_MS)
    assert len(node.reads) == count
    idle = started()
    idle.scrubber.stop()
    idle.run(2 * LOOK_MS)
    assert idle.reads == []


# -- how fast ---------------------------------------------------------------------------------


def test_no_more_is_read_than_the_budget_allows() -> None:
    node = Node()
    node.add("a", batches=100)
    node.scrubber.start()
    node.run(2 * LOOK_MS, 10)
    assert sum(size for _, _, size in node.reads) >= 100 * SIZE
    first_ms = node.reads[0][0]
    for until_ms in range(first_ms, node.reads[-1][0], 500):
        read = sum(size for at_ms, _, size in node.reads if at_ms <= until_ms)
        assert read <= RATE * (until_ms - first_ms) / 1000 + PIECE_BYTES
    last_ms = node.reads[-1][0]
    assert last_ms - first_ms >= 0.8 * 100 * SIZE * 1000 / RATE


def test_never_two_pieces_at_once() -> None:
    node = Node()
    node.add("a", batches=50)
    node.add("b", batches=50)
    node.scrubber.start()
    for _ in range(4000):
        node.time.advance(50)
        assert len(node.pool.jobs) <= 1
        node.pool.work_all()
    assert node.seen() == ["a-0", "b-0"]


# -- what it finds ----------------------------------------------------------------------------


def test_what_has_rotted_is_told_once_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    for topic in ("a", "b", "c"):
        node.add(topic)
    node.flip("b", 2 * SIZE + 100)
    node.scrubber.start()
    node.run(2 * LOOK_MS)
    [(topic, reason)] = node.corrupt
    assert topic == "b"
    assert f"/data/b-0/{0:020d}.log: a batch is broken at position {2 * SIZE}" in reason
    assert "(offset 2), recovery point 10" in reason
    assert node.seen() == ["a-0", "b-0", "c-0"]
    assert "could not be looked over" not in caplog.text


def test_what_is_right_at_the_second_look_is_not_damage(caplog: pytest.LogCaptureFixture) -> None:
    node = started()
    node.flip("a", 2 * SIZE + 100)
    walked = None
    while walked is None or walked.damage is None:
        node.time.advance(50)
        if node.pool.jobs:
            done, job = node.pool.jobs.popleft()
            walked = job()
            done.resolve(walked)
    node.flip("a", 2 * SIZE + 100)
    with caplog.at_level(logging.WARNING, "ottla.scrubber"):
        node.run(2 * LOOK_MS)
    assert node.corrupt == []
    assert "right from the disk" in caplog.text
    assert node.log_dir.read_scrub_times().keys() == {("a", 0)}, "and the pass went on"


def change(node: Node, held: PartitionLog, what: str) -> None:
    if what == "cut":
        held.truncate_to(2)
    elif what == "thrown away":
        held.truncate_fully_and_start_at(2)
    else:
        del node.logs["a"]


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("what", ["cut", "thrown away", "gone"])
def test_damage_in_what_is_not_there_any_more_counts_for_nothing(what: str, look: int) -> None:
    """The log changes after the pool has read it and before the loop hears of it."""
    node = Node()
    held = node.add("a", batches=4)
    node.flip("a", 2 * SIZE + 100)
    node.scrubber.start()
    damaged = 0
    while damaged < look:
        node.time.advance(50)
        if node.pool.jobs:
            done, job = node.pool.jobs.popleft()
            walked = job()
            damaged += walked.damage is not None
            if damaged == look:
                change(node, held, what)
            done.resolve(walked)
    node.run(LOOK_MS)
    assert node.corrupt == []


def test_a_mistake_of_ours_costs_one_log_its_pass(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.add("a")
    node.add("b")
    node.scrubber.start()
    node.time.advance(LOOK_MS)
    node.pool.failure = RuntimeError("a mistake")
    with caplog.at_level(logging.ERROR, "ottla.scrubber"):
        node.run(LOOK_MS)
    assert "could not be looked over" in caplog.text
    assert "b-0" in node.seen()


# -- on demand --------------------------------------------------------------------------------


def test_a_suspicion_is_looked_into_at_once_and_at_that_place_only() -> None:
    node = started()
    node.flip("a", 2 * SIZE + 100)
    partition = node.find("a", 0)
    node.scrubber.suspect(partition, 7)
    node.pool.work_all()
    assert node.corrupt == []
    node.scrubber.suspect(partition, 2)
    node.scrubber.suspect(partition, 3)
    assert len(node.pool.jobs) == 1, "one at a time"
    node.pool.work_all()
    [(topic, reason)] = node.corrupt
    assert (topic, "(offset 2)" in reason) == ("a", True)
    node.scrubber.suspect(SimpleNamespace(topic="a", log=None), 2)  # type: ignore[arg-type]
    assert not node.pool.jobs


def test_a_suspicion_after_the_end_or_at_no_offset_of_the_log() -> None:
    node = started()
    node.scrubber.suspect(node.find("a", 0), 10)
    assert not node.pool.jobs
    node.flip("a", 2 * SIZE + 100)
    node.scrubber.suspect(node.find("a", 0), 2)
    del node.logs["a"]
    node.pool.work_all()
    assert node.corrupt == []


def test_a_disk_that_fails_under_a_suspicion() -> None:
    node = started()
    held = node.logs["a"]
    for segment in held.all_segments():
        segment.close()
    node.files.remove(f"/data/a-0/{0:020d}.log")
    node.scrubber.suspect(node.find("a", 0), 2)
    assert len(node.failures) == 1
