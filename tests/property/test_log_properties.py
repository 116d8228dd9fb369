"""Goal: what was appended is what is read, whatever the sizes, limits and restarts.
Method: random histories against plain lists; round trips of every format.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log import checkpoints, epoch_cache, producer_snapshot, txn_index
from ottla.log.batch_scan import next_offset, scan_batches
from ottla.log.epoch_cache import EpochCache
from ottla.log.log_config import LogConfig
from ottla.log.producer_snapshot import SnapshotEntry
from ottla.log.txn_index import AbortedTransaction
from ottla.records.batch_header import LEADER_EPOCH
from tests.unit.log.world import World, batch

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 200)),
        st.tuples(st.just("epoch"), st.just(0), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("close"), st.just(0), st.just(0)),
        st.tuples(st.just("kill"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


class History:
    """The log, and beside it a list of (base offset, next offset, epoch)."""

    def __init__(self) -> None:
        self.world = World(config=LogConfig(segment_bytes=900, index_interval_bytes=150))
        self.world.open()
        self.batches: list[tuple[int, int, int]] = []

    def act(self, kind: str, first: int, second: int) -> None:
        world, log = self.world, self.world.log
        if kind == "append":
            appended = world.append(batch(first, size=second // first))
            self.batches.append((appended.base_offset, appended.last_offset + 1, world.epoch))
        elif kind == "epoch":
            world.epoch += 1
        elif kind == "flush":
            world.flush()
        elif kind == "truncate":
            self._truncate(first)
        elif kind == "start":
            log.advance_log_start(
                log.log_start_offset + first % (log.log_end_offset - log.log_start_offset + 1)
            )
        elif kind == "close":
            world.reopen_cleanly()
        else:
            world.reopen_killed()

    def _truncate(self, first: int) -> None:
        starts = [base for base, _, _ in self.batches if base >= self.world.log.log_start_offset]
        if starts:
            target = starts[first % len(starts)]
            self.world.log.truncate_to(target)
            self.batches = [one for one in self.batches if one[0] < target]

    def check(self, limit: int) -> None:
        log = self.world.log
        visible = [one for one in self.batches if one[1] > log.log_start_offset]
        assert log.log_end_offset == (self.batches[-1][1] if self.batches else 0)
        found = []
        offset = log.log_start_offset
        while (part := log.read(offset, limit, log.log_end_offset)) is not None:
            end = part.position + part.size
            for _, header, _ in scan_batches(part.file, part.position, end, 0):
                found.append((header[0], next_offset(header), header[LEADER_EPOCH]))
                offset = next_offset(header)
        assert found == visible
        derived = EpochCache()
        for base, _, epoch in visible:
            derived.assign(epoch, max(base, log.log_start_offset))
        known = [one for one in log.leader_epochs.entries() if one[1] < log.log_end_offset]
        assert known == derived.entries()


@settings(max_examples=150)
@given(ACTIONS, st.integers(1, 2_000))
def test_a_log_is_what_was_appended(actions: list[tuple[str, int, int]], limit: int) -> None:
    history = History()
    for kind, first, second in actions:
        history.act(kind, first, second)
    history.check(limit)
    history.world.reopen_killed(power_lost=True)
    history.check(limit)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.data())
def test_every_offset_is_found_below_every_bound(counts: list[int], data: st.DataObject) -> None:
    world = World(config=LogConfig(segment_bytes=700, index_interval_bytes=100))
    world.open()
    ends = [world.append(batch(count, size=30)).last_offset + 1 for count in counts]
    starts = [0, *ends[:-1]]
    offset = data.draw(st.integers(0, ends[-1]))
    bound = data.draw(st.sampled_from([0, *ends]))
    part = world.log.read(offset, 1, bound)
    holding = [start for start, end in zip(starts, ends, strict=True) if start <= offset < end]
    if offset >= bound:
        assert part is None
    else:
        assert part is not None
        assert part.file.read_at(part.position, 8) == holding[0].to_bytes(8, "big")


@given(st.lists(st.builds(SnapshotEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64)))
def test_snapshots_round_trip(entries: list[SnapshotEntry]) -> None:
    assert producer_snapshot.decode(producer_snapshot.encode(entries)) == entries


@given(st.binary(max_size=200))
def test_no_snapshot_is_no_crash(content: bytes) -> None:
    producer_snapshot.decode(content)
    epoch_cache.decode(content)
    checkpoints.decode(content)
    list(txn_index.parse(content))


@given(st.lists(st.builds(AbortedTransaction, INT64, INT64, INT64, INT64)))
def test_aborted_transactions_round_trip(entries: list[AbortedTransaction]) -> None:
    assert list(txn_index.parse(txn_index.build(entries))) == entries


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31)),
        st.integers(0, 2**63 - 1),
    )
)
def test_checkpoints_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    assert checkpoints.decode(checkpoints.encode(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=20), st.integers(0, 200))
def test_the_epoch_cache_agrees_with_the_batches(steps: list[tuple[int, int]], offset: int) -> None:
    cache = EpochCache()
    epochs: list[int] = []
    epoch = 0
    for jump, count in steps:
        epoch += jump // 5
        cache.assign(epoch, len(epochs))
        epochs += [epoch] * count
    assert epoch_cache.decode(epoch_cache.encode(cache.entries())) == cache.entries()
    if offset < len(epochs):
        assert cache.epoch_for_offset(offset) == epochs[offset]
    for asked in range(epoch + 2):
        found, end = cache.end_offset(asked, len(epochs))
        if not epochs or asked > epochs[-1]:
            assert (found, end) == (-1, -1)
        else:
            older = [at for at, one in enumerate(epochs) if one <= asked]
            assert end == len(older), "the first offset of a later epoch"
            assert found == (epochs[older[-1]] if older else asked)
