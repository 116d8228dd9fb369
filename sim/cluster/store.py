"""One broker's session with the ensemble, and what may go wrong between them.

Beside what `MemoryStore` can do: a commit whose answer is lost may be done at once, later, or
never; and a session that has ended is not known to have ended until the store says so, however
long ago that was. The broker's own fence is a help, and nothing may rest on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ottla.metadata.memory_store import MemoryEnsemble, MemoryStore
from ottla.metadata.store import Change, Operation, StoreUnavailable, VersionConflict
from sim.cluster.process import Heap, Process

Committed = Callable[[Sequence[Operation], Change], None]
LATE_MS = 400.0


class Ensemble(MemoryEnsemble):
    """Tells `on_commit` of every change, before any session hears of it."""

    def __init__(self, session_timeout_ms: int) -> None:
        super().__init__(None, session_timeout_ms)
        self.on_commit: Committed = lambda operations, change: None

    def commit(self, operations: Sequence[Operation]) -> Change:
        change = super().commit(operations)
        self.on_commit(operations, change)
        return change


class Trouble:
    """How often an answer is lost; the world changes it."""

    def __init__(self, delay_ms: float, told_ms: float) -> None:
        self.loss = 0.0
        self.delay_ms = delay_ms
        self.told_ms = told_ms


class Session(MemoryStore):
    def __init__(
        self,
        ensemble: Ensemble,
        process: Process,
        heap: Heap,
        trouble: Trouble,
        chance: Random,
        *,
        is_blind: bool,
    ) -> None:
        super().__init__(ensemble, self._deliver_later)
        self._process = process
        self._heap = heap
        self._trouble = trouble
        self._chance = chance
        self._is_blind = is_blind
        self.is_over = False

    def _deliver_later(self, tell: Callable[[], None]) -> None:
        delay_ms = self._chance.expovariate(1.0) * self._trouble.told_ms
        self._heap.push(delay_ms, tell, self._process)

    def is_fenced(self) -> bool:
        if self._is_blind or self._cut_off_ms is None:
            return False
        return self._heap.now_ms - self._cut_off_ms >= self.ensemble.session_timeout_ms

    def cut_off(self) -> None:
        self._cut_off_ms = int(self._heap.now_ms)

    @property
    def is_cut_off(self) -> bool:
        return self._cut_off_ms is not None

    def commit(self, operations: Sequence[Operation]) -> Change:
        trouble, chance = self._trouble, self._chance
        if trouble.loss and chance.random() < trouble.loss:
            self._ask()
            kind = chance.choice(("before", "after", "later"))
            if kind == "later":
                self._heap.push(chance.uniform(0, LATE_MS), lambda: self._arrive(operations))
                raise StoreUnavailable("the answer was lost")
            self.lose_next_answer(kind)
        return super().commit(operations)

    def _arrive(self, operations: Sequence[Operation]) -> None:
        """A request that was on its way when its connection ended."""
        if not self.is_over and not self._is_expired:
            try:
                self.ensemble.commit(operations)
            except VersionConflict:
                return

    def expire(self) -> None:
        if not self.is_over:
            super().expire()

    def end(self) -> None:
        """The process is gone for good, and the ensemble has noticed."""
        if not self.is_over:
            self.is_over = True
            self.close()
