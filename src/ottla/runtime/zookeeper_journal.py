"""The journal of changes in ZooKeeper: how a change node looks, and which ones are there.

`/changes/change-0000000042` is made in the multi of its change; ZooKeeper numbers them. A change
node holds `{"id": ..., "updates": [[path, content, version], ...]}`, content as latin-1 text or
null for a removal; the number of the change is the zxid that made the node, which every other node
made by that multi shares. The content of `/changes` itself is the name of the newest node that was
pruned, so that who missed it can tell.

Never delivers anything and keeps no position: that is the store's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.base.errors import OttlaError
from ottla.runtime.zookeeper_plan import Entry

CHANGES = "/changes"
PREFIX = f"{CHANGES}/change-"
_NAME = re.compile(r"change-[0-9]{10}")


class Recorded(NamedTuple):
    """One change node: `name` orders them, `number` is its zxid, `commit_id` who wrote it."""

    name: str
    number: int
    commit_id: str
    entries: tuple[Entry, ...]


class DamagedChange(OttlaError):
    """A change node that no store has written: what it changed is unknown."""


def encode(commit_id: str, entries: Iterable[Entry]) -> bytes:
    updates = [
        (path, None if content is None else content.decode("latin-1"), version)
        for path, content, version in entries
    ]
    document = {"id": commit_id, "updates": updates}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def decode(name: str, number: int, content: bytes | None) -> Recorded:
    try:
        document = json.loads(content or b"")
        entries = tuple(_entry(*update) for update in document["updates"])
        return Recorded(name, number, str(document["id"]), entries)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
        raise DamagedChange(f"{CHANGES}/{name} holds no change") from cause


def _entry(path: str, content: str | None, version: int) -> Entry:
    if not path.startswith("/") or not isinstance(version, int):
        raise ValueError("no node")
    return Entry(path, None if content is None else content.encode("latin-1"), version)


def newer(names: Iterable[str], position: str) -> list[str]:
    """The change nodes after `position`, in order. Ten digits each: they sort as text."""
    return sorted(name for name in names if name > position and _NAME.fullmatch(name))


def newest(names: Iterable[str], pruned: str) -> str:
    """The position of who has seen everything."""
    return max((name for name in names if _NAME.fullmatch(name)), default=pruned)


def read_pruned(content: bytes | None) -> str:
    """The newest name that is gone; empty as long as none is."""
    name = (content or b"").decode("ascii", "replace")
    return name if _NAME.fullmatch(name) else ""


def to_prune(names: Sequence[str], kept: int, at_once: int) -> list[str]:
    """The oldest names beyond `kept`, a multi's worth."""
    ordered = newer(names, "")
    return ordered[: max(0, len(ordered) - kept)][:at_once]
