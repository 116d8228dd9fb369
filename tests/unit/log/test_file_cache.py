"""Goal: no more segments are open than allowed, and the ones in use stay open.
Method: pretended segments.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import InvariantError
from ottla.log.file_cache import FileCache


class Pretended:
    def __init__(self) -> None:
        self.used = False
        self.is_open = True

    def give_up_files(self) -> None:
        self.is_open = False


def test_the_one_not_used_for_longest_goes() -> None:
    cache = FileCache(descriptors_max=9)
    first, second, third, fourth = (Pretended() for _ in range(4))
    for segment in (first, second, third):
        cache.opened(segment)
    first.used = True
    cache.opened(fourth)
    assert [one.is_open for one in (first, second, third, fourth)] == [True, False, True, True]
    assert not first.used, "its second chance is spent"
    assert cache.open_count() == 3


def test_if_all_are_used_one_goes_all_the_same() -> None:
    cache = FileCache(descriptors_max=6)
    segments = [Pretended() for _ in range(3)]
    for segment in segments:
        segment.used = True
        cache.opened(segment)
    assert [one.is_open for one in segments] == [False, True, True]


def test_one_that_closed_itself_is_forgotten() -> None:
    cache = FileCache(descriptors_max=3)
    first, second = Pretended(), Pretended()
    cache.opened(first)
    cache.forget(first)
    cache.opened(second)
    assert first.is_open, "nobody asked it to close"
    cache.opened(second)
    assert second.is_open, "to open again does not close oneself"


def test_a_limit_below_one_segment_is_a_mistake() -> None:
    with pytest.raises(InvariantError):
        FileCache(descriptors_max=2)
