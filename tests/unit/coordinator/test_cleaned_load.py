"""Goal: a coordinator finds in a log that was cleaned what it would have found before.
Method: logs as shards write them, commits in transactions among them, cleaned by the real cleaner
at any moment and read in pieces as the loader does, against a dictionary.
"""

from __future__ import annotations

import uuid

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.coordinator import consumer_records
from ottla.coordinator.offset_commits import commit_record, tombstone
from ottla.coordinator.offsets_records import CONSUMER_GROUP_KEYS, Commit
from ottla.coordinator.shard import Record, Transactional
from ottla.coordinator.shard_batch import build_batch
from ottla.coordinator.shard_load import ShardLoad
from ottla.log.log_config import LONG_MAX
from ottla.records.batch_header import ATTRIBUTES, DELETE_HORIZON_MASK, RECORD_COUNT
from tests.unit.log.compacting import CONFIG, CompactingWorld, limits

GROUPS = ["g", "gruppe-ß", "群組", "a long name " * 9, "\n\x1b[31m"]
RETENTION_MS = CONFIG.delete_retention_ms
TOPIC_ID = uuid.UUID(int=7)
PRODUCERS = (8, 9)

Live = tuple[bytes, bytes | None, int]


class World:
    """The log of a shard, and the last value of each key by who has written it."""

    def __init__(self) -> None:
        self.log = CompactingWorld()
        self.log.open()
        self.latest: dict[bytes, tuple[int, bytes | None]] = {}
        self.open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}

    def write(self, records: list[Record], producer_id: int = -1) -> None:
        transactional = Transactional(producer_id, 0) if producer_id >= 0 else None
        batch, _ = build_batch(records, self.log.clock.now_ms, transactional)
        offset = self.log.append(bytes(batch), from_client=False).base_offset
        held = self.latest if producer_id < 0 else self.open.setdefault(producer_id, {})
        for number, record in enumerate(records):
            held[record.key] = (offset + number, record.value)
        self._seen()

    def end(self, producer_id: int, *, aborted: bool) -> None:
        ended = self.open.pop(producer_id, None)
        if ended is None:
            return
        self.log.end_transaction(producer_id, aborted=aborted)
        for key, held in ended.items():
            if not aborted and self.latest.get(key, (-1, None))[0] < held[0]:
                self.latest[key] = held
        self._seen()

    def _seen(self) -> None:
        self.log.log.on_high_watermark(self.log.log.log_end_offset)

    def clean(self) -> None:
        self.log.seal()
        self.log.clean_all(limits(chunk_bytes=500))

    def load(self, piece_bytes: int) -> list[Live]:
        """As the loader reads: from where it is, as long as there is something."""
        held = self.log.log
        load = ShardLoad(held.log_start_offset)
        while True:
            part = held.read(load.next_offset, piece_bytes, held.log_end_offset)
            if part is None:
                return list(load.live_records())
            before = load.next_offset
            load.read(bytes(part.file.read_at(part.position, part.size)))
            assert load.next_offset > before, "it gets on"

    def check(self, piece_bytes: int) -> None:
        found = self.load(piece_bytes)
        plain = {key: value for key, value, producer_id in found if producer_id < 0}
        # What is deleted may be told or not: to a coordinator it is the same.
        assert {key: value for key, value in plain.items() if value is not None} == {
            key: value for key, (_, value) in self.latest.items() if value is not None
        }
        assert plain.keys() <= self.latest.keys()
        waiting = {(key, of): value for key, value, of in found if of >= 0}
        assert waiting == {
            (key, of): value for of, held in self.open.items() for key, (_, value) in held.items()
        }


def a_record(group: str, partition: int, offset: int | None) -> Record:
    if offset is None:
        return tombstone(group, "t", partition)
    return commit_record(group, "t", partition, Commit(offset, -1, "", 1_000, -1, TOPIC_ID))


places = st.tuples(st.sampled_from(GROUPS), st.integers(0, 2), st.none() | st.integers(0, 9))
ACTION = st.one_of(
    st.tuples(st.just("write"), st.lists(places, min_size=1, max_size=4)),
    st.tuples(st.just("write"), st.lists(places, min_size=1, max_size=1)),
    st.tuples(st.just("forget"), st.sampled_from(GROUPS)),
    st.tuples(st.just("transact"), places, st.sampled_from(PRODUCERS)),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("clean")),
    st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS])),
    st.tuples(st.just("retain"), st.sampled_from([0, RETENTION_MS, LONG_MAX])),
)


def act(world: World, kind: str, *details: object) -> None:
    match kind, details:
        case "write", [list(batch)]:
            world.write([a_record(*one) for one in batch])
        case "forget", [str(group)]:
            world.write([a_record(group, partition, None) for partition in range(3)])
        case "transact", [tuple(place), int(producer_id)]:
            world.write([a_record(*place)], producer_id)
        case "end", [int(producer_id), bool(aborted)]:
            world.end(producer_id, aborted=aborted)
        case "clean", _:
            world.clean()
        case "wait", [int(time_ms)]:
            world.log.clock.now_ms += time_ms
        case "retain", [int(time_ms)]:
            world.log.configure(delete_retention_ms=time_ms)
        case _:
            raise AssertionError(f"no such action: {kind}")


@settings(max_examples=200)
@given(st.lists(ACTION, max_size=40), st.sampled_from([200, 5_000, 1 << 20]))
@example([("write", [("g", 0, 1)]), ("forget", "群組"), ("clean",)], 1 << 20)
def test_a_cleaned_log_loads_as_the_whole_one_would(
    actions: list[tuple[object, ...]], piece_bytes: int
) -> None:
    world = World()
    for kind, *details in actions:
        act(world, str(kind), *details)
    world.check(piece_bytes)
    for producer_id in PRODUCERS:
        world.end(producer_id, aborted=False)
    world.clean()
    world.check(piece_bytes)


def test_the_cleaner_leaves_all_that_is_hard_to_read() -> None:
    """Otherwise the test above says less than it seems to."""
    world = World()
    act(world, "write", [("g", 0, 1), ("g", 1, 1), ("g", 2, 1)])
    act(world, "forget", "群組")
    act(world, "transact", ("g", 1, 3), 8)
    act(world, "end", 8, False)
    act(world, "write", [("g", 1, 4)])
    act(world, "clean")
    headers = [header for header, _ in world.log.batches()]
    tombstones = [one for one in headers if one[ATTRIBUTES] & DELETE_HORIZON_MASK]
    assert [one[RECORD_COUNT] for one in tombstones] == [3]
    assert 0 in [one[RECORD_COUNT] for one in headers], "an empty batch of a known producer"
    assert headers[0][RECORD_COUNT] == 2, "a gap"
    world.check(1 << 20)


def test_a_group_whose_records_were_all_taken_back_can_be_loaded() -> None:
    world = World()
    world.write([consumer_records.tombstone(kind, "群組") for kind in CONSUMER_GROUP_KEYS])
    world.clean()
    assert [value for _, value, _ in world.load(1 << 20)] == [None] * len(CONSUMER_GROUP_KEYS)
