"""Goal: epochs and offsets as KIP-101 and KIP-279 need them, and Kafka's checkpoint text.
Method: the cases of features 6.3, one by one; the text compared with what Kafka 4.3 wrote.
"""

from __future__ import annotations

import pytest

from ottla.log.epoch_cache import EpochCache, decode, encode


def a_cache() -> EpochCache:
    return EpochCache([(2, 10), (4, 20), (5, 35)])


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (5, (5, 50)),
        (4, (4, 35)),
        (3, (2, 20)),
        (2, (2, 20)),
        (1, (1, 10)),
        (6, (-1, -1)),
        (-1, (-1, -1)),
    ],
)
def test_end_offset(epoch: int, answer: tuple[int, int]) -> None:
    assert a_cache().end_offset(epoch, 50) == answer


def test_end_offset_without_epochs() -> None:
    assert EpochCache().end_offset(0, 50) == (-1, -1)


def test_epoch_for_offset() -> None:
    cache = a_cache()
    assert [cache.epoch_for_offset(at) for at in (9, 10, 19, 20, 34, 35, 99)] == [
        -1,
        2,
        2,
        4,
        4,
        5,
        5,
    ]


def test_the_first_batch_of_an_epoch_makes_the_entry() -> None:
    cache = EpochCache()
    for epoch, offset in ((0, 0), (0, 5), (2, 7), (2, 9)):
        cache.assign(epoch, offset)
    assert cache.entries() == [(0, 0), (2, 7)]
    assert cache.latest == 2
    cache.assign(-1, 12)
    assert cache.entries() == [(0, 0), (2, 7)]


def test_what_contradicts_a_new_entry_goes() -> None:
    cache = a_cache()
    cache.assign(6, 20)
    assert cache.entries() == [(2, 10), (6, 20)]
    cache = a_cache()
    cache.assign(3, 60)
    assert cache.entries() == [(2, 10), (3, 60)]


def test_truncations() -> None:
    cache = a_cache()
    cache.truncate_from_end(35)
    assert (cache.entries(), cache.latest) == ([(2, 10), (4, 20)], 4)
    cache.truncate_from_end(36)
    assert cache.version == 1, "nothing has changed"
    cache.truncate_from_start(25)
    assert cache.entries() == [(4, 25)]
    cache.truncate_from_start(25)
    cache.truncate_from_start(5)
    assert cache.entries() == [(4, 25)]
    cache.clear()
    assert (cache.entries(), cache.latest) == ([], -1)
    cache.truncate_from_start(7)
    assert cache.entries() == []


def test_text() -> None:
    assert encode([(0, 0)]) == b"0\n1\n0 0\n"
    assert decode(b"0\n1\n0 0\n") == [(0, 0)]
    assert decode(encode([(2, 10), (4, 20)])) == [(2, 10), (4, 20)]
    assert decode(b"0\n0\n") == []


@pytest.mark.parametrize(
    "text", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"\0\0\0", b"0\n", b"0\n1\n-1 0\n"]
)
def test_text_that_is_none(text: bytes) -> None:
    assert decode(text) is None
