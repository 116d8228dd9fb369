"""Change nodes: what is written is read, and nothing else is believed."""

from __future__ import annotations

import pytest

from ottla.runtime.zookeeper_journal import (
    DamagedChange,
    Recorded,
    decode,
    encode,
    newer,
    newest,
    read_pruned,
    to_prune,
)
from ottla.runtime.zookeeper_plan import Entry

NAMES = ["change-0000000010", "change-0000000009", "stranger", "change-12", "change-0000000011"]


def test_what_is_written_is_read() -> None:
    entries = (Entry("/a", bytes(range(256)), 3), Entry("/ü", None, 0), Entry("/b", b"", 1))
    content = encode("some id", entries)
    assert decode("change-0000000001", 77, content) == Recorded(
        "change-0000000001", 77, "some id", entries
    )


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"null",
        b"[]",
        b'{"id":"x"}',
        b'{"id":"x","updates":[[]]}',
        b'{"id":"x","updates":[["a","",0]]}',
        b'{"id":"x","updates":[["/a","",null]]}',
        b'{"id":"x","updates":[["/a",5,0]]}',
        b'{"id":"x","updates":[["/a","\xe2\x82\xac",0]]}',
        b'{"id":"x","updates":"abc"}',
        b"[" * 50_000,
    ],
)
def test_anything_else_is_damaged(content: bytes | None) -> None:
    with pytest.raises(DamagedChange, match="/changes/change-0000000001"):
        decode("change-0000000001", 1, content)


def test_names_are_in_the_order_of_their_numbers() -> None:
    assert newer(NAMES, "") == [NAMES[1], NAMES[0], NAMES[4]]
    assert newer(NAMES, "change-0000000009") == [NAMES[0], NAMES[4]]
    assert newest(NAMES, "") == "change-0000000011"
    assert newest(["stranger"], "change-0000000003") == "change-0000000003"


def test_the_oldest_go_first() -> None:
    assert to_prune(NAMES, 2, 10) == ["change-0000000009"]
    assert to_prune(NAMES, 0, 2) == ["change-0000000009", "change-0000000010"]
    assert to_prune(NAMES, 3, 10) == []


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"change-1", b"change-0000000001\n"])
def test_what_names_no_change_names_none(content: bytes | None) -> None:
    assert read_pruned(content) == ""


def test_the_newest_that_is_gone() -> None:
    assert read_pruned(b"change-0000000001") == "change-0000000001"
