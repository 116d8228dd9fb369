"""An append: what is written into a batch, and the answer, which says where it stands."""

from __future__ import annotations

import struct

PREFIX = struct.Struct(">qii")
"""Base offset, batch length and leader epoch: what the broker writes into a batch."""


class Appended:
    """Where a batch is. For a duplicate: where it has been since the first time."""

    __slots__ = ("base_offset", "duplicate", "last_offset", "log_start_offset", "timestamp")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_start_offset: int,
        duplicate: bool,
        timestamp: int,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        self.timestamp = timestamp
        """The largest timestamp stored: what LogAppendTime topics answer with."""
