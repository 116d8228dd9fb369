"""Goal: a compiled twin never says anything that Python's own code would not say, and looks at
nothing but the bytes that it is given.
Method: batches of many kinds with every byte changed in turn, and random ones, are judged by both;
the same bytes are laid at the end of memory, in a process of its own: a look behind it is deadly.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import google_crc32c
import pytest

from ottla import native
from ottla.base.errors import ProtocolError
from ottla.coordinator import shard_batch
from ottla.coordinator.shard import Record
from ottla.records import validation, walk
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import HEADER_SIZE, read_header
from ottla.records.crc32c import crc32c
from ottla.records.validation import ProduceRules, familiar_header
from ottla.records.walk import walk_records
from tests.patience import SECONDS_MAX
from tests.seeds import seed_for
from tests.unit.records.batches import NOW_MS, RULES, a_batch, a_record, refusal, rules, zig_zag
from tests.unit.records.changed_batches import KINDS, a_batch_of, changes, judged

assert native.compiled is not None
compiled = native.compiled
REPOSITORY = Path(__file__).resolve().parents[3]
LONG = 1 << 40
# What Java's and our own builder never write: wide numbers, headers, times that go back.
ODD = {
    "headers": build_batch(
        [RecordToWrite(NOW_MS, b"k", b"v", headers=[("h", b"x"), ("", None)]) for _ in range(3)]
    ),
    "times that go back": a_batch(
        a_record(0, delta=9) + a_record(1, delta=-5), 2, max_timestamp=NOW_MS + 9
    ),
    "a delta as wide as they get": a_batch(
        a_record(0, delta=-LONG) + a_record(1), 2, base_timestamp=LONG, max_timestamp=LONG
    ),
    "a length in more bytes than it needs": a_batch(b"\x8e\x00" + a_record(0)[1:]),
    "an offset delta in five bytes": a_batch(
        zig_zag(11) + b"\0\0\x80\x80\x80\x80\x00" + a_record(0, b"vv")[4:]
    ),
}
BATCHES = {name: a_batch_of(records) for name, records in KINDS.items()} | ODD


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize(
    "by",
    [
        RULES,
        rules(compacted=True),
        rules(before_max_ms=50),
        rules(after_max_ms=1),
        rules(max_message_bytes=150),
    ],
)
def test_every_changed_byte_is_judged_as_by_python(
    kind: str, by: ProduceRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = changes(BATCHES[kind])
    with_twins = [judged(change, by) for change in changed]
    monkeypatch.setattr(validation, "compiled", None)
    monkeypatch.setattr(walk, "compiled", None)
    assert with_twins == [judged(change, by) for change in changed]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_right_takes_the_short_cut(kind: str) -> None:
    batch = a_batch_of(KINDS[kind])
    assert familiar_header(memoryview(batch), RULES, NOW_MS) == read_header(batch)


def test_a_wrong_checksum_takes_no_short_cut() -> None:
    batch = bytearray(a_batch_of(KINDS["fifteen"]))
    batch[-2] ^= 1
    assert familiar_header(memoryview(batch), RULES, NOW_MS) is None


@pytest.mark.parametrize("seed", range(20))
def test_random_records_are_walked_as_by_python(seed: int) -> None:
    chance = random.Random(seed_for("twins") + seed)
    for _ in range(100):
        count = chance.choice([1, 2, 5, 70])
        data = bytearray(b"".join(_random_record(chance, index) for index in range(count)))
        for _ in range(chance.choice([0, 0, 1, 2])):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255])
        found = compiled.walk(data, 0, count)
        assert found == _walked_by_python(bytes(data), count)


def _random_record(chance: random.Random, index: int) -> bytes:
    def some(most: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(most))

    return a_record(index, some(200), some(70), delta=chance.randint(-LONG, LONG))


def _walked_by_python(data: bytes, count: int) -> tuple[int, int, bool] | None:
    """Field by field, which is the rule that all short cuts follow."""
    position, outlines = 0, []
    for index in range(count):
        try:
            outlines.append(walk._read_outline(data, position, index))
        except (ProtocolError, IndexError):
            return None
        position = outlines[-1][3]
    if position != len(data):
        return None
    deltas = [outline[4] for outline in outlines]
    return max(deltas), min(deltas), any(walk._has_null_key(data, each) for each in outlines)


def test_what_the_walk_finds_is_what_it_tells() -> None:
    records = a_record(0, key=b"k", delta=3) + a_record(1, key=b"k", delta=-2)
    found = walk_records(b"..." + records, 3, 2)
    assert (found.delta_max, found.delta_not_below, found.null_key_suspected) == (3, -2, False)
    assert list(found.outlines()) == [(3, False), (-2, False)]
    refusal(walk_records, records, 0, 3)


@pytest.mark.parametrize(("start", "count"), [(-1, 1), (99, 1), (0, 0), (0, -1), (1, 1)])
def test_a_walk_from_where_there_is_nothing(start: int, count: int) -> None:
    assert compiled.walk(a_record(0), start, count) is None


def test_checksums_of_every_size_at_every_place() -> None:
    content = random.Random(1).randbytes(7000)
    for size in [*range(400), *range(3000, 3100), *range(6500, 6900, 17)]:
        start = size % 9
        part = memoryview(content)[start : start + size]
        assert compiled.crc32c(part) == crc32c(bytes(part)) == google_crc32c.value(bytes(part))
    assert compiled.crc32c(bytearray(b"123456789")) == 0xE3069283


@pytest.mark.parametrize("seed", range(20))
def test_a_coordinators_batches_are_those_of_python(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed_for("plain batches") + seed)
    sizes = (0, 1, 20, 63, 64, 130, 2047, 2048, 8_200, 1_100_000)
    for _ in range(30):
        count = chance.choice((1, 1, 1, 2, 63, 64, 65))
        records = [
            Record(
                bytes(chance.choice(sizes[:-1])),
                chance.choice(
                    (None, chance.randbytes(chance.choice(sizes[: 10 if count == 1 else 6])))
                ),
            )
            for _ in range(count)
        ]
        timestamp = chance.choice((NOW_MS, 0, -1, 1 << 62))
        made = shard_batch.build_batch(records, timestamp)
        with monkeypatch.context() as patched:
            patched.setattr(shard_batch, "compiled", None)
            assert made == shard_batch.build_batch(records, timestamp)
        assert type(made[0]) is bytearray


def test_which_batches_are_left_to_python() -> None:
    record = Record(b"key", b"value")
    assert compiled.plain_batch([record], NOW_MS) is not None
    assert compiled.plain_batch([record] * 64, NOW_MS) is not None
    assert compiled.plain_batch([record] * 65, NOW_MS) is None
    assert compiled.plain_batch([], NOW_MS) is None
    assert compiled.plain_batch((record,), NOW_MS) is None
    assert compiled.plain_batch([Record(b"key", bytes((1 << 20) + 1))], NOW_MS) is None
    assert compiled.plain_batch([Record(bytearray(b"key"), None)], NOW_MS) is None  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        compiled.plain_batch([b"no record"], NOW_MS)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        compiled.plain_batch([record], "now")  # type: ignore[arg-type]


def test_what_is_no_buffer_or_no_number_is_refused() -> None:
    with pytest.raises(TypeError):
        compiled.crc32c("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        compiled.walk(b"", 0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        compiled.good_header(b"", 1, True, "early", 2)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        compiled.walk(b"", 0, 1 << 70)


def test_nothing_behind_the_bytes_is_looked_at(tmp_path: Path) -> None:
    """The memory ends with the file: who looks on is killed by SIGBUS, as the second run shows."""
    (tmp_path / "batches").mkdir()
    for name, batch in BATCHES.items():
        for number, cut in enumerate((batch, *(batch[:size] for size in _cuts(len(batch))))):
            (tmp_path / "batches" / f"{name} {number}").write_bytes(cut)
    program = [sys.executable, "-m", "tests.unit.native.at_the_edge", str(tmp_path)]
    done = subprocess.run(
        program,
        cwd=REPOSITORY,
        timeout=SECONDS_MAX,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 1000
    beyond = subprocess.run(
        [*program, "--beyond"], cwd=REPOSITORY, timeout=SECONDS_MAX, check=False
    )
    assert beyond.returncode < 0


def _cuts(size: int) -> list[int]:
    return sorted({*range(0, min(size, HEADER_SIZE + 60)), *range(max(0, size - 20), size)})
