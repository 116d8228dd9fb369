"""Compiled twins of what costs most: the checksum of a batch and the walk over its records.

Each is a short cut of something that is written in Python beside the place that calls it, gives the
same where it gives anything, and None where Python has to look for itself: so whatever is refused,
Python refuses, with its reasons. The C sources are in this directory;
`python -m ottla.native.build` compiles them for the Python that runs it, and `make setup` does that
where there is a compiler. Without one everything works as well, only slower. OTTLA_PURE=1 leaves
them out.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Sequence
from typing import Protocol, cast

from ottla.base.ports import Buffer

MODULE = "ottla.native._compiled"


class HasKeyAndValue(Protocol):
    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes | None: ...


class Compiled(Protocol):
    def crc32c(self, buffer: Buffer, /) -> int: ...

    def good_header(
        self,
        records: Buffer,
        bytes_max: int,
        is_compacted: bool,
        earliest: int,
        latest: int,
        /,
    ) -> tuple[int, ...] | None:
        """The header of one plain batch that is right and to be stored as it came. Timestamps of
        its records are between `earliest` and `latest`."""

    def plain_batch(
        self, records: Sequence[HasKeyAndValue], timestamp: int, /
    ) -> tuple[bytearray, tuple[int, ...]] | None:
        """A batch of these records, all of them at one time and without headers, and its header."""

    def walk(self, data: Buffer, start: int, count: int, /) -> tuple[int, int, bool] | None:
        """The largest and the smallest timestamp delta of the `count` records that fill `data` from
        `start` on, and whether one of them has no key."""


def _load() -> Compiled | None:
    if os.environ.get("OTTLA_PURE") or importlib.util.find_spec(MODULE) is None:
        return None
    try:
        return cast(Compiled, importlib.import_module(MODULE))
    except ImportError as cause:
        # Of another machine: it has another processor or C library.
        warnings.warn(f"{MODULE} is left out, it can not be loaded: {cause}", stacklevel=2)
        return None


compiled = _load()
"""None where there are none."""
