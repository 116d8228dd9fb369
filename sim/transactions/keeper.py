"""A client of two-phase commit (KIP-939): what it decides is written down outside of the cluster.

Its transactions have no time-out. Before it commits one it notes so in a database of its own; after
a crash the next one keeps what is open and looks there: what is noted is committed, anything else
aborted. The database belongs to whoever started last, so an older one that wakes up notes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.transactions.ledger import Attempt, Violation
from sim.transactions.producer import RETRIABLE, TIMEOUT_MS, Answer, Client, Script

Pair = tuple[int, int]
"""Producer id and epoch."""

NOTHING: Pair = (-1, -1)


@dataclass
class Outside:
    """The database. `open` and `noted` are the last transaction, and the one to be committed."""

    starts: int = 0
    open: tuple[Pair, Attempt] | None = None
    noted: tuple[Pair, Attempt] | None = None


class Keeper(Client):
    outside: Outside
    _start = 0

    def work_for_ever(self) -> Script:
        self._start_anew()
        while not self._is_replaced():
            if self.producer_id < 0:
                yield from self._recover()
            else:
                yield from self._one_transaction()
                yield self.dice.choice((0, 10, 300))

    def finish(self) -> Script:
        """The last one: nothing may be left open."""
        self._start_anew()
        while not (yield from self._recover()):
            pass

    def give_up(self) -> Script:
        """Started again without two-phase commit, by somebody who has noted nothing to commit."""
        self._start_anew()
        while not (yield from self.init()):
            pass
        if self.outside.open is not None and not self.outside.open[1].may_be_committed:
            self.ledger.on_aborted(self.outside.open[1])

    def _start_anew(self) -> None:
        self.outside.starts += 1
        self._start = self.outside.starts

    def _is_replaced(self) -> bool:
        return self.outside.starts != self._start

    # -- one transaction --------------------------------------------------------------------

    def _one_transaction(self) -> Answer:
        attempt = self.ledger.begin(self.name)
        pair = (self.producer_id, self.epoch)
        self.outside.open = (pair, attempt)
        is_good = yield from self.fill(attempt)
        if is_good and self.dice.random() < 0.5:
            is_good = yield from self.commit_offset(attempt)
        yield self.dice.choice((0, 0, 5, 200, TIMEOUT_MS * 2))
        if self._is_replaced():
            return
        committed = bool(is_good) and self.dice.random() < 0.7
        if committed:
            self.outside.noted = (pair, attempt)
            attempt.may_be_committed = True
        yield from self._decide(attempt, committed)

    def _decide(self, attempt: Attempt | None, committed: bool) -> Answer:
        """Whether it was told that it is done; if not, it is not its own any more."""
        while not self._is_replaced():
            fields = yield self._end(committed)
            code = None if fields is None else fields["error_code"]
            if code == 0:
                self._told(attempt, committed)
                self._take(fields)
                return True
            if code not in RETRIABLE:
                break
            yield self.dice.randint(5, 300)
        self.producer_id = -1
        return False

    def _told(self, attempt: Attempt | None, committed: bool) -> None:
        if attempt is not None:
            (self.ledger.on_committed if committed else self.ledger.on_aborted)(attempt)
        if self.outside.noted is not None and self.outside.noted[1] is attempt:
            self.outside.noted = None

    # -- after a crash ----------------------------------------------------------------------

    def _recover(self) -> Answer:
        """Whether nothing is open any more."""
        fields = yield self._init(enable2_pc=True, keep_prepared_txn=True)
        code = None if fields is None else fields["error_code"]
        if code in RETRIABLE:
            yield self.dice.randint(5, 100)
            return False
        if code != 0:
            raise Violation(f"InitProducerId of {self.name}, which keeps: {code}")
        if self._is_replaced():
            return False
        self._take(fields)
        kept = (
            fields.get("ongoing_txn_producer_id", -1),
            fields.get("ongoing_txn_producer_epoch", -1),
        )
        noted = self.outside.noted
        if kept == NOTHING:
            if noted is not None:
                self._told(noted[1], committed=True)  # nobody else has ended it
            return True
        if noted is not None and noted[0] != kept:
            raise Violation(f"T1: {self.name} noted {noted[0]}, kept is {kept}")
        return (yield from self._finish_kept(kept))

    def _finish_kept(self, kept: Pair) -> Answer:
        noted, last = self.outside.noted, self.outside.open
        attempt = last[1] if last is not None and last[0] == kept else None
        yield from self._older_client(kept, attempt, committed=noted is None)
        yield self.dice.choice((0, 100, TIMEOUT_MS * 3))
        return (yield from self._decide(attempt, noted is not None))

    def _older_client(self, kept: Pair, attempt: Attempt | None, *, committed: bool) -> Answer:
        """Who had it open does not know that it was kept. It may neither end it nor write."""
        own = (self.producer_id, self.epoch)
        self.producer_id, self.epoch = kept
        end = self._end(committed)
        place = self.dice.choice(self.cluster.data_places)
        write = None
        if attempt is not None and self.dice.random() < 0.3:
            value = attempt.next_value()
            attempt.forbidden.add(value)
            write = self.produce(place, self.sequences.get(place, 0), [value])
        self.producer_id, self.epoch = own
        if self.dice.random() < 0.5:
            fields = yield end
            if fields is not None and fields["error_code"] == 0:
                raise Violation(f"T3: {self.name} was kept, and an older client has ended it")
        if write is not None and (yield write) == 0:
            raise Violation(f"T3: {self.name} was kept, and {place} took more of it")
