"""Goal: whatever is written, deleted, committed, aborted and cleaned in whatever order, and started
again in between, a reader finds the latest value of each key, as in a dictionary, and exactly those
records are left that the rules leave.
Method: random histories against a model that applies the rules record by record, in plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.compaction_plan import CleanerLimits, first_dirty_offset
from ottla.log.log_config import LONG_MAX
from tests.unit.log.compacting import CONFIG, CompactingWorld, Written, limits

KEYS = [b"%d" % number for number in range(6)] + [b"", b"a long key " * 8]
RETENTION_MS = CONFIG.delete_retention_ms

PAIR = st.tuples(
    st.one_of(st.sampled_from(KEYS), st.none()) | st.sampled_from(KEYS),
    st.one_of(st.none(), st.binary(max_size=8), st.just(bytes(150))),
)
ACTION = st.one_of(
    st.tuples(
        st.just("put"),
        st.lists(PAIR, min_size=1, max_size=5),
        st.sampled_from([0, 0, 1, 2, 3, 4]),
        st.sampled_from([-1, -1, 1, 2]),
    ),
    st.tuples(st.just("transact"), st.lists(PAIR, min_size=1, max_size=3), st.sampled_from([8, 9])),
    st.tuples(st.just("end"), st.sampled_from([8, 9]), st.booleans()),
    st.tuples(st.just("seal")),
    st.tuples(
        st.just("clean"), st.sampled_from([10_000, 10_000, 3, 0]), st.sampled_from([150, 9_999])
    ),
    st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS])),
    st.tuples(st.just("retain"), st.sampled_from([0, RETENTION_MS, LONG_MAX])),
    st.tuples(st.just("close")),
    st.tuples(st.just("kill"), st.booleans()),
)


@dataclass
class Model:
    """The rules, one record at a time: what is left, and when tombstones may go."""

    world: CompactingWorld
    alive: dict[int, Written] = field(default_factory=dict)
    batch_of: dict[int, tuple[int, int]] = field(default_factory=dict)
    horizons: dict[tuple[int, int], int] = field(default_factory=dict)

    def note(self, first_offset: int) -> None:
        """A batch was written; it is known by its first and last offset."""
        added = [one for one in self.world.written if one.offset >= first_offset]
        for record in added:
            self.alive[record.offset] = record
            self.batch_of[record.offset] = (first_offset, added[-1].offset)

    def clean(self, first_dirty: int, end: int) -> None:
        latest: dict[bytes, int] = {}
        for record in self.alive.values():
            if first_dirty <= record.offset < end and not record.aborted and record.key is not None:
                latest[record.key] = record.offset
        kept = {one.offset: one for one in self.alive.values() if self._stays(one, latest, end)}
        self.alive = kept
        for offset, record in kept.items():
            batch = self.batch_of[offset]
            if record.value is None and batch[1] < end and offset < end:
                horizon = self.world.clock.now_ms + self.world.config.delete_retention_ms
                self.horizons.setdefault(batch, min(horizon, LONG_MAX))

    def _stays(self, record: Written, latest: dict[bytes, int], end: int) -> bool:
        if record.aborted and self.batch_of[record.offset][0] < self._cleaned_end(end):
            return False
        if record.offset >= end:
            return True
        if record.key is None or record.offset < latest.get(record.key, -1):
            return False
        horizon = self.horizons.get(self.batch_of[record.offset])
        return record.value is not None or horizon is None or horizon > self.world.clock.now_ms

    def _cleaned_end(self, end: int) -> int:
        """Where the last segment ends that a cleaning up to `end` goes over: it goes over the rest
        of it without knowing its keys, but what was aborted goes."""
        for segment in self.segments:
            if segment[0] < end <= segment[1]:
                return segment[1]
        return end

    segments: list[tuple[int, int]] = field(default_factory=list)


class History:
    def __init__(self) -> None:
        self.world = CompactingWorld()
        self.world.open()
        self.model = Model(self.world)
        self.open_transactions: set[int] = set()

    def act(self, kind: str, *details: object) -> None:
        getattr(self, kind)(*details)

    def put(self, pairs: list[tuple[bytes | None, bytes | None]], codec: int, by: int) -> None:
        self.model.note(self.world.put(*pairs, codec=codec, producer_id=by))

    def transact(self, pairs: list[tuple[bytes | None, bytes | None]], by: int) -> None:
        self.model.note(self.world.put(*pairs, producer_id=by, transactional=True))
        self.open_transactions.add(by)

    def end(self, by: int, aborted: bool) -> None:
        if by in self.open_transactions:
            self.world.end(by, aborted=aborted)
            self.open_transactions.discard(by)

    def seal(self) -> None:
        self.world.seal()

    def clean(self, keys: int, chunk_bytes: int) -> None:
        first_dirty = first_dirty_offset(self.world.log)
        bases = [one.base_offset for one in self.world.log.all_segments()]
        self.model.segments = list(pairwise(bases))
        within: CleanerLimits = limits(keys, chunk_bytes)
        result = self.world.clean(within)
        if result is not None:
            assert result.end_offset > first_dirty, "each pass gets on"
            self.model.clean(first_dirty, result.end_offset)
        self.check()

    def wait(self, time_ms: int) -> None:
        self.world.clock.now_ms += time_ms

    def retain(self, time_ms: int) -> None:
        self.world.configure(delete_retention_ms=time_ms)

    def close(self) -> None:
        self.world.reopen_cleanly()

    def kill(self, power_lost: bool) -> None:
        self.world.flush()
        self.world.reopen_killed(power_lost=power_lost)

    def check(self) -> None:
        world = self.world
        world.check()
        assert world.offsets() == sorted(self.model.alive)
        # What producers may rely on is still known.
        for producer_id, sequence in world.sequences.items():
            if producer_id >= 0:
                assert world.log.producers.entries[producer_id].next_sequence == sequence


@settings(max_examples=400)
@given(st.lists(ACTION, min_size=5, max_size=40))
def test_a_cleaned_log_is_what_the_rules_leave(actions: list[tuple[object, ...]]) -> None:
    history = History()
    for kind, *details in actions:
        history.act(str(kind), *details)
    for producer_id in sorted(history.open_transactions):
        history.end(producer_id, True)
    history.world.seal()
    history.clean(10_000, 500)
    history.kill(True)
    history.check()
