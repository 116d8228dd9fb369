"""Waits a little for the markers of an id's last transaction, for who wants to begin the next.

Kafka says CONCURRENT_TRANSACTIONS and the client comes again after 20 ms, though the markers were
there after two. Some clients do worse: librdkafka, told to abort while its first partition is not
yet added, ends a transaction that never began, and never recovers from the refusal. So a request
waits here, and is sent back only when the markers take long.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.ports import Timers
from ottla.coordinator.shard import Outcome
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.protocol.error_codes import CONCURRENT_TRANSACTIONS

Decide = Callable[[TransactionShard], Outcome[int]]
Ask = Callable[[str, Decide], Deferred[int]]


class TransactionPatience:
    """`ask` has something decided by the shard of a transactional id."""

    def __init__(self, timers: Timers, ask: Ask) -> None:
        self._timers = timers
        self._ask = ask
        self._waiting: dict[str, dict[Callable[[], None], None]] = {}

    def ask(self, transactional_id: str, decide: Decide, patience_ms: int) -> Deferred[int]:
        answer: Deferred[int] = Deferred()
        is_waiting = False

        def first(shard: TransactionShard) -> Outcome[int]:
            # In the very moment of the refusal: its answer may come after the markers.
            nonlocal is_waiting
            outcome = decide(shard)
            if outcome.response == CONCURRENT_TRANSACTIONS:
                is_waiting = True
                self._wait(transactional_id, again, patience_ms)
            return outcome

        def again() -> None:
            self._ask(transactional_id, decide).when_done(lambda done: done.tell(answer))

        def asked(done: Deferred[int]) -> None:
            if not is_waiting:
                done.tell(answer)

        self._ask(transactional_id, first).when_done(asked)
        return answer

    def finished(self, transactional_id: str) -> None:
        """The last transaction of this id is over, whatever came of it."""
        for again in list(self._waiting.get(transactional_id, ())):
            again()

    def _wait(self, transactional_id: str, again: Callable[[], None], patience_ms: int) -> None:
        def go() -> None:
            timer.cancel()
            waiting = self._waiting[transactional_id]
            del waiting[go]
            if not waiting:
                del self._waiting[transactional_id]
            again()

        timer = self._timers.call_later(patience_ms, go)
        self._waiting.setdefault(transactional_id, {})[go] = None
