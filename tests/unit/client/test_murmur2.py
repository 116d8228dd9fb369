"""Goal: keys are hashed and placed as the Java client does it, one by one and by the column.
Method: values of Kafka's own tests (UtilsTest); the column against the single keys.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from ottla.client.columns.partitioning import murmur2_of, partitions_of_keys
from ottla.client.murmur2 import murmur2, partition_of
from tests.seeds import seed_for

OF_KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), OF_KAFKA.items())
def test_keys_are_hashed_as_kafka_does(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def some_keys(rows: int) -> list[bytes | None]:
    chance = random.Random(seed_for("keys"))
    sizes = (0, 1, 2, 3, 4, 5, 7, 8, 100, 256, 257, 5_000)
    return [chance.randbytes(chance.choice(sizes)) for _ in range(rows)]


def test_a_column_of_keys_is_hashed_like_each_of_them() -> None:
    keys = some_keys(250)
    column = pa.array(keys, pa.binary())
    assert murmur2_of(column).tolist() == [murmur2(key or b"") for key in keys]
    part = column.slice(13, 200)
    assert murmur2_of(part).tolist() == [murmur2(key or b"") for key in keys[13:213]]
    assert murmur2_of(column.slice(0, 0)).tolist() == []
    assert murmur2_of(pa.array([], pa.binary())).tolist() == []
    assert murmur2_of(pa.array([b"", b""], pa.binary())).tolist() == [murmur2(b"")] * 2


def test_keys_of_one_length_are_hashed_together() -> None:
    keys = [b"key-%05d" % number for number in range(1000)]
    assert murmur2_of(pa.array(keys)).tolist() == [murmur2(key) for key in keys]


def test_null_keys_have_no_partition() -> None:
    keys = [*some_keys(50), None, b"x", None]
    expected = [-1 if key is None else partition_of(key, 7) for key in keys]
    assert partitions_of_keys(pa.array(keys, pa.binary()), 7).tolist() == expected
