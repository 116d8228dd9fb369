"""Goal: batches that are stored together are stored as if they had come one after the other.
Method: random batches of producers who make mistakes, to two logs in memory: one gets them singly,
the other as many at a time as it takes. Files, indexes, answers and memory have to be equal.
"""

from __future__ import annotations

import random

import pytest

from ottla.base.errors import ProtocolError, StorageError
from ottla.log.appended import Appended
from ottla.log.log_config import LogConfig
from ottla.log.producer_state import SEQUENCE_MAX
from ottla.records.batch_header import read_header
from tests.seeds import seed_for
from tests.unit.log.world import NOW_MS, World, batch

SETTINGS = (
    LogConfig(),
    LogConfig(segment_bytes=3_000),
    LogConfig(segment_ms=40),
    LogConfig(segment_index_bytes=64, index_interval_bytes=300),
    LogConfig(segment_ms=40, segment_jitter_ms=20),
)


class Producer:
    """Numbers its batches, and now and then gets it wrong."""

    def __init__(self, rng: random.Random, producer_id: int) -> None:
        self.rng = rng
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = rng.choice((0, 0, SEQUENCE_MAX - 20))
        self.sent: list[bytes] = []

    def next_batch(self, now_ms: int) -> bytes:
        rng = self.rng
        if self.sent and rng.random() < 0.05:
            return rng.choice(self.sent[-7:])
        if rng.random() < 0.03:
            self.epoch, self.sequence = self.epoch + 1, 0
        count = rng.choice((1, 1, 2, 9))
        sequence = self.sequence + (rng.random() < 0.04)
        made = batch(
            count,
            size=rng.choice((0, 20, 200)),
            timestamp_ms=now_ms + rng.choice((-3, 0, 0, 2)),
            producer_id=self.producer_id,
            epoch=max(0, self.epoch + rng.choice((0,) * 30 + (-1, 1))),
            sequence=sequence % (SEQUENCE_MAX + 1),
            transactional=self.producer_id >= 0 and rng.random() < 0.01,
        )
        if sequence == self.sequence:
            self.sequence = (sequence + count) % (SEQUENCE_MAX + 1)
        self.sent.append(made)
        return made


def facts(answer: Appended) -> tuple[object, ...]:
    return tuple(getattr(answer, name) for name in Appended.__slots__)


def one_by_one(world: World, contents: list[bytes]) -> list[object]:
    told: list[object] = []
    for content in contents:
        try:
            told.append(facts(world.append(content)))
        except ProtocolError as refused:
            told.append(refused.code)
    return told


def together(world: World, contents: list[bytes], lengths: list[int]) -> list[object]:
    """What a run leaves is the next one's, or goes the usual way."""
    told: list[object] = []
    while contents:
        stored = world.log.append_run(
            [memoryview(bytearray(content)) for content in contents],
            [read_header(content) for content in contents],
            world.epoch,
            world.clock.now_ms,
        )
        lengths.append(len(stored))
        told += map(facts, stored)
        contents = contents[len(stored) :]
        if contents and not stored:
            told += one_by_one(world, contents[:1])
            contents = contents[1:]
    return told


def known(world: World) -> dict[str, object]:
    log = world.log
    return {
        "log": (log.log_start_offset, log.log_end_offset, log.size, log.unflushed_messages),
        "stable": log.first_unstable_offset,
        "producers": {
            key: [getattr(entry, name) for name in type(entry).__slots__]
            for key, entry in log.producers.entries.items()
        },
        "segments": [
            (one.base_offset, one.size, one.max_timestamp, one.max_timestamp_offset, one.cuts)
            for one in log.all_segments()
        ],
        "epochs": log.leader_epochs.latest,
        "files": {name: world.files.read(f"/data/topic-0/{name}") for name in world.names()},
    }


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_a_run_leaves_what_single_batches_leave(number: int) -> None:
    rng = random.Random(seed_for(f"produced run {number}"))
    lengths: list[int] = []
    for _ in range(30):
        worlds = [World(config=SETTINGS[number]) for _ in range(2)]
        for world in worlds:
            world.open()
        producers = [Producer(rng, each) for each in (-1, 7, 7, 8)]
        for _ in range(15):
            producer = rng.choice(producers)
            contents = [producer.next_batch(NOW_MS) for _ in range(rng.randrange(1, 6))]
            if rng.random() < 0.1:
                contents[-1] = rng.choice(producers).next_batch(NOW_MS)
            assert one_by_one(worlds[0], contents) == together(worlds[1], contents, lengths)
            assert known(worlds[0]) == known(worlds[1])
            for world in worlds:
                world.clock.now_ms += 7
                world.epoch += len(producer.sent) % 9 == 0
    assert (max(lengths) > 1) == (not SETTINGS[number].segment_jitter_ms)


def test_what_the_disk_refuses_has_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.open()
    world.append(batch(producer_id=7, sequence=0))
    contents = [batch(producer_id=7, sequence=number) for number in (1, 2)]
    headers = [read_header(content) for content in contents]
    before = known(world)
    file = world.log.all_segments()[0].open_file()

    def refuse(buffers: object) -> int:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(type(file), "append", lambda self, buffers: refuse(buffers))
        with pytest.raises(StorageError):
            world.log.append_run([memoryview(bytearray(one)) for one in contents], headers, 0, 1)
    assert known(world) == before
    assert [answer[0] for answer in one_by_one(world, contents)] == [1, 2]  # type: ignore[index]


def test_a_log_that_was_not_written_to_yet_is_looked_at_first() -> None:
    world = World()
    world.open()
    content = batch()
    buffers = [memoryview(bytearray(content)) for _ in range(2)]
    assert world.log.append_run(buffers, [read_header(content)] * 2, 0, 1) == []
