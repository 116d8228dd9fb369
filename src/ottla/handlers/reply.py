"""What the two raw handlers, Produce and Fetch, give back: bytes and slices of files.

Every other handler returns the fields of its response and is encoded from the message schemas.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.log.partition_log import LogSlice

Part = bytes | LogSlice


class Reply:
    """A response body: `parts` go out in order, `size` is their sum."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: list[Part], size: int) -> None:
        self.parts = parts
        self.size = size


class OrderedDeferred(Deferred[Reply | None]):
    """An answer that later requests of the same connection must not overtake.

    A batch that is unpacked in the pool is appended afterwards; the next produce of the same
    connection has to wait, or the producer's sequence would be broken by ourselves.
    """

    __slots__ = ()


class ParkedDeferred(Deferred[Reply | None]):
    """An answer that waits for something to happen, for as long as the client likes. Once nobody
    would read it, `abandon` lets go of all that it holds; then it never comes."""

    __slots__ = ("abandon",)

    def __init__(self, abandon: Callable[[], None]) -> None:
        super().__init__()
        self.abandon = abandon


class CloseConnection(OttlaError):
    """There is no answer that could tell: a failed acks=0 produce has none (Kafka closes, too), and
    one that is too large is not made."""
