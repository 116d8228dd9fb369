"""Answers that wait to be handed out, in the order in which they came.

Owns which of them is next: partitions take turns as their answers arrive; a paused one waits aside,
and what belongs to another `era` of its partition is dropped. An error stands in the queue where it
happened, so that everything before it is handed out first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ottla.base.ports import Buffer
from ottla.client.consumer_partitions import PartitionState
from ottla.client.errors import ClientError
from ottla.client.fetch_batches import AbortedTransactions, FetchedBatches, RecordBlock


class FetchedItem:
    """What one answer brought of one partition, while it is being handed out.

    Blocks are taken out of `batches` as they are needed; those of which not all has been handed
    out stay in `blocks`. `cached` is what the reader has made of them (records, or a table), and
    `cached_for` which reader that was.
    """

    __slots__ = ("batches", "blocks", "cached", "cached_for", "era", "error", "state")

    def __init__(
        self, state: PartitionState, batches: FetchedBatches | None, error: ClientError | None
    ) -> None:
        self.state = state
        self.era = state.era
        self.batches = batches
        self.error = error
        self.blocks: deque[RecordBlock] = deque()
        self.cached: object = None
        self.cached_for: object = None

    def more_blocks(self) -> Iterator[RecordBlock]:
        """Blocks that have not been taken out yet; each is kept in `blocks`."""
        batches = self.batches
        while batches is not None and (block := batches.next_block()) is not None:
            batches.advance(block.next_offset())
            self.blocks.append(block)
            yield block

    def drop_blocks_before(self, position: int) -> None:
        while self.blocks and self.blocks[0].next_offset() <= position:
            self.blocks.popleft()


class FetchQueue:
    def __init__(self, check_crcs: bool) -> None:
        self._check_crcs = check_crcs
        self._items: deque[FetchedItem] = deque()

    def add(
        self,
        state: PartitionState,
        frame: Buffer,
        start: int,
        end: int,
        offset: int,
        aborted: AbortedTransactions | None,
    ) -> None:
        batches = FetchedBatches(
            frame, start, end, offset, aborted=aborted, check_crcs=self._check_crcs
        )
        state.buffered += 1
        self._items.append(FetchedItem(state, batches, None))

    def add_error(self, state: PartitionState, error: ClientError) -> None:
        self._items.append(FetchedItem(state, None, error))

    def first(self) -> FetchedItem | None:
        """The next item of a partition that is not paused; it stays until it is `done`."""
        items = self._items
        while items and items[0].era != items[0].state.era:
            items.popleft()
        if items and not items[0].state.paused:
            return items[0]
        return next(self.items(), None)

    def items(self) -> Iterator[FetchedItem]:
        """All that can be handed out now, in order."""
        self._items = deque(item for item in self._items if item.era == item.state.era)
        return iter([item for item in self._items if not item.state.paused])

    def done(self, item: FetchedItem) -> None:
        """Nothing of it is left."""
        self._items.remove(item)
        if item.error is None and item.era == item.state.era:
            item.state.buffered -= 1

    def is_empty(self) -> bool:
        return self.first() is None
