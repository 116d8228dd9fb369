"""Answers that wait to be handed out, in the order in which they came.

Owns which of them is next: partitions take turns as their answers arrive; a paused one waits aside,
and what belongs to another `era` of its partition is dropped. An error stands in the queue where it
happened, so that everything before it is handed out first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ottla.base.errors import ProtocolError
from ottla.base.ports import Buffer
from ottla.client.consumer_partitions import PartitionState
from ottla.client.errors import ClientError
from ottla.client.fetch_batches import AbortedTransactions, FetchedBatches, RecordBlock
from ottla.records.batch_header import BASE_OFFSET


class FetchedItem:
    """What one answer brought of one partition, while it is being handed out.

    Blocks are taken out of `batches` as they are needed; those of which not all has been handed
    out stay in `blocks`. `cached` is what the reader has made of them (records, or a table), and
    `cached_for` which reader that was.
    """

    __slots__ = ("_put_back", "batches", "blocks", "cached", "cached_for", "era", "error", "state")

    def __init__(
        self, state: PartitionState, batches: FetchedBatches | None, error: ClientError | None
    ) -> None:
        self.state = state
        self.era = state.era
        self.batches = batches
        self.error = error
        self.blocks: deque[RecordBlock] = deque()
        self._put_back: deque[RecordBlock] = deque()
        self.cached: object = None
        self.cached_for: object = None

    def more_blocks(self) -> Iterator[RecordBlock]:
        """Blocks that have not been taken out yet; each is kept in `blocks`. They end before one
        that is damaged, which is told to whoever finds it first."""
        while (block := self._next_block()) is not None:
            self.blocks.append(block)
            yield block

    def _next_block(self) -> RecordBlock | None:
        if self._put_back:
            return self._put_back.popleft()
        if self.batches is None:
            return None
        try:
            block = self.batches.next_block()
        except ProtocolError:
            if self.blocks:
                return None  # what stands before it comes first
            raise
        if block is not None:
            self.batches.advance(block.next_offset())
        return block

    def has_more(self) -> bool:
        """Behind `blocks`; damage counts, for somebody has to be told."""
        try:
            return bool(self._put_back) or (
                self.batches is not None and self.batches.next_block() is not None
            )
        except ProtocolError:
            return True

    def keep_blocks(self, count: int) -> None:
        """Only the first ones can be read together: the others are taken out again later."""
        while len(self.blocks) > count:
            self._put_back.appendleft(self.blocks.pop())

    def damaged_at(self) -> int:
        """The offset from which on nothing can be read, once all before it is handed out."""
        position = self.state.position or 0
        if self.blocks:
            return max(position, self.blocks[0].header[BASE_OFFSET])
        return position if self.batches is None else max(position, self.batches.position)

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
        """One at a time of each partition: what comes before it was told says nothing new."""
        if state.error is None:
            state.error = error
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
        if item.era != item.state.era:
            return
        if item.error is None:
            item.state.buffered -= 1
        else:
            item.state.error = None

    def is_empty(self) -> bool:
        return self.first() is None
