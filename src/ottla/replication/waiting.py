"""Who waits at a partition, and for what; each is told in the turn in which it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.replication.partition import Partition


class Waiter(Protocol):
    """Something parked until this partition moves: a long poll, a coordinator's answer."""

    def on_progress(self, partition: Partition, new_bytes: int) -> None: ...
    def on_gone(self, partition: Partition) -> None: ...


class CommitWaiter(Protocol):
    """A produce with acks=all, parked until the watermark has passed `last_offset`."""

    last_offset: int

    def on_committed(self, partition: Partition) -> None: ...
    def on_gone(self, partition: Partition) -> None: ...


class LogStartWaiter(Protocol):
    """A DeleteRecords, parked until every replica has let go of what was deleted."""

    def on_log_start(self, partition: Partition) -> None: ...
    def on_gone(self, partition: Partition) -> None: ...


class Reader(Protocol):
    """A follower's place at the leader."""

    def on_news(self) -> None:
        """Something was appended, or the role has changed."""
        ...

    def on_watermark(self) -> None: ...
