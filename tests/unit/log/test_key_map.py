"""Goal: the map tells the latest offset of every key, within its memory, whatever the keys are.
Method: random keys against a dictionary, with maps so full and slots so few that searches collide.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from ottla.base.errors import InvariantError
from ottla.log import key_map
from ottla.log.key_map import UNKNOWN, KeyHasher, KeyMap, Numbers, prime_near
from tests.seeds import seed_for

HASHER = KeyHasher(b"secret")


def hashes_of(keys: list[bytes], hasher: KeyHasher = HASHER) -> key_map.Hashes:
    data = np.frombuffer(b"".join(keys) or b"\0", np.uint8)
    lengths = np.array([len(key) for key in keys], np.int64)
    return hasher.hash_keys(data, np.cumsum(lengths) - lengths, lengths)


def offsets(*values: int) -> Numbers:
    return np.array(values, np.int64)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("load_factor", [0.3, 0.95])
def test_the_latest_offset_of_each_key(chunk: int, load_factor: float) -> None:
    chance = random.Random(seed_for("key map"))
    keys = [chance.randbytes(chance.choice((0, 1, 3, 4, 8, 64, 65, 300))) for _ in range(500)]
    stream = [chance.choice(keys) for _ in range(3000)]
    table = KeyMap(24 * int(len(keys) / load_factor + 10), load_factor, 10**6)
    expected: dict[bytes, int] = {}
    for start in range(0, len(stream), chunk):
        part = stream[start : start + chunk]
        hashes = hashes_of(part)
        places = np.arange(start, start + len(part))
        while len(places):
            room = max(1, table.room())
            table.put(hashes[:room], places[:room])
            hashes, places = hashes[room:], places[room:]
        expected.update({key: start + at for at, key in enumerate(part)})
    assert table.used == len(expected)
    found = table.latest(hashes_of(list(expected)))
    assert found.tolist() == list(expected.values())
    strangers = [b"stranger %d" % number for number in range(100)]
    assert set(table.latest(hashes_of(strangers)).tolist()) == {UNKNOWN}


def test_a_key_that_comes_twice_in_one_call_has_its_later_offset() -> None:
    table = KeyMap(10_000, 0.5, 100)
    table.put(hashes_of([b"a", b"b", b"a"]), offsets(5, 6, 7))
    assert table.latest(hashes_of([b"a", b"b"])).tolist() == [7, 6]
    assert table.used == 2


def test_offset_zero_is_an_offset() -> None:
    table = KeyMap(10_000, 0.5, 100)
    table.put(hashes_of([b"a"]), offsets(0))
    assert table.latest(hashes_of([b"a", b"b"])).tolist() == [0, UNKNOWN]


def test_memory_bounds_the_keys() -> None:
    table = KeyMap(24 * 100, 0.9, 10**9)
    assert 80 <= table.capacity <= 90
    table.put(hashes_of([b"%d" % n for n in range(50)]), np.arange(50))
    assert table.room() == table.capacity - 50
    with pytest.raises(InvariantError):
        table.put(hashes_of([b"%d" % n for n in range(99)]), np.arange(99))


def test_few_keys_take_little_memory() -> None:
    assert KeyMap(128 << 20, 0.9, 10)._table.nbytes < 1000
    for keys in range(1, 300):
        assert KeyMap(128 << 20, 0.9, keys).capacity >= keys
        assert KeyMap(128 << 20, 0.1, keys).capacity >= keys


def test_a_map_without_memory_still_takes_a_key() -> None:
    for load_factor in (0.0, 0.9, 5.0):
        table = KeyMap(0, load_factor, 10)
        assert table.capacity >= 1
        table.put(hashes_of([b"a"]), offsets(3))
        assert table.latest(hashes_of([b"a", b"b"])).tolist() == [3, UNKNOWN]


def test_keys_that_differ_have_hashes_that_differ() -> None:
    keys = [
        *(b"\0" * length for length in range(70)),
        *(b"a" * length for length in range(1, 70)),
        *(b"a" + b"\0" * length for length in range(1, 66)),
        *(bytes(63) + bytes([last]) for last in range(1, 256)),
        *(bytes([first]) + bytes(99) for first in range(256)),
    ]
    assert len({tuple(row) for row in hashes_of(keys).tolist()}) == len(keys)


def test_a_key_has_one_hash_wherever_it_stands() -> None:
    rows = hashes_of([b"xx", b"the key", b"a much longer one " * 5, b"the key"])
    assert rows[1].tolist() == rows[3].tolist() == hashes_of([b"the key"])[0].tolist()
    long = hashes_of([b"x", b"a much longer one " * 5])
    assert long[1].tolist() == rows[2].tolist()


def test_another_secret_gives_other_hashes() -> None:
    for keys in ([b"short"], [b"long" * 50]):
        assert hashes_of(keys).tolist() != hashes_of(keys, KeyHasher(b"other")).tolist()


def test_records_without_a_key_do_not_disturb() -> None:
    data = np.frombuffer(b"abcd", np.uint8)
    both = HASHER.hash_keys(data, offsets(0, 2), offsets(-1, 2))
    assert both[1].tolist() == hashes_of([b"cd"])[0].tolist()
    assert len(HASHER.hash_keys(data, offsets(), offsets())) == 0
    only = HASHER.hash_keys(data, offsets(0, 1), offsets(-1, -1))
    assert only.shape == (2, 2)


def test_primes() -> None:
    primes = [2, 3, 5, 7, 11, 13, 17, 19, 23]
    assert sorted({prime_near(limit, -1) for limit in range(2, 29)}) == primes
    assert sorted({prime_near(limit, 1) for limit in range(2, 24)}) == primes
    assert prime_near(5_592_405, -1) == 5_592_373, "what the default of 128 MiB comes to"
