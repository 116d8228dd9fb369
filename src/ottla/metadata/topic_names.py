"""What a topic may be called.

A name becomes part of a directory and of a node's path, so what passes here is safe in both. Two
names that differ only in dots and underscores are refused, because metric names write both alike.
"""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import chain, product

from ottla.base.errors import ProtocolError
from ottla.protocol.error_codes import INVALID_TOPIC_EXCEPTION

LENGTH_MAX = 249
"""A directory is called `topic-partition`, sometimes with more behind it, within 255 bytes."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

SEPARATORS_CHECKED_MAX = 10
"""Dots and underscores of a name for which collisions are looked for: 1,024 ways to write it."""

_SEPARATORS = re.compile("[._]")
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def validate(name: str) -> None:
    """Raises ProtocolError(INVALID_TOPIC_EXCEPTION) in Kafka's words."""
    reason = _fault(name)
    if reason is not None:
        raise ProtocolError(INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_collision(name: str, existing: Container[str]) -> None:
    """Refuses a name that differs from an existing one in dots and underscores only.

    Every way to write the name is looked up: `existing` may hold ten thousand names, and a name
    has few dots and underscores. One that has many is not worth the search: it collides by intent.
    """
    parts = _SEPARATORS.split(name)
    if len(parts) - 1 > SEPARATORS_CHECKED_MAX:
        return
    for separators in product("._", repeat=len(parts) - 1):
        other = "".join(chain.from_iterable(zip(parts, (*separators, ""), strict=True)))
        if other != name and other in existing:
            message = f"Topic '{name}' collides with existing topic: {other}"
            raise ProtocolError(INVALID_TOPIC_EXCEPTION, message)


def _fault(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {LENGTH_MAX}"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None
