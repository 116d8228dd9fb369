"""A cluster in memory for the sink's protocol, where any call may be the last of its caller.

It keeps what a broker keeps: transactions by id with their epochs, decisions, who has the claim.
`Fuse` lets one call die, before or after it has taken effect; a driver that dies is replaced by one
with a new run, until the query has caught up, as a supervisor would do it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from ottla.spark.decisions import Decision, Prepared
from ottla.spark.errors import SinkConflict, SinkLoss


class Crash(BaseException):
    """kill -9: nothing of the caller runs any more."""


class LostAnswer(Exception):
    """The call took effect, or not; its caller is told that it failed."""


@dataclass
class Fuse:
    """Burns at call number `at`; `after`: when the call has taken effect."""

    at: int = -1
    after: bool = False
    error: type[BaseException] = Crash
    calls: int = 0

    def __enter__(self) -> None:
        self.calls += 1
        if self.calls == self.at and not self.after:
            raise self.error

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self.calls == self.at and self.after:
            raise self.error


class Turns:
    """Two drivers, one call at a time, in an order drawn from a seed: the same every time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._condition = threading.Condition()
        self._waiting: set[int] = set()
        self._live: set[int] = set()
        self._turn: int | None = None

    def join(self, number: int) -> None:
        self._live.add(number)

    def leave(self, number: int) -> None:
        with self._condition:
            self._live.discard(number)
            self._waiting.discard(number)
            self._pass_on()

    def take(self, number: int) -> None:
        with self._condition:
            self._waiting.add(number)
            self._pass_on()
            self._condition.wait_for(lambda: self._turn == number, timeout=60)
            self._turn = None
            self._waiting.discard(number)

    def _pass_on(self) -> None:
        if self._live and self._waiting == self._live:
            self._turn = self._random.choice(sorted(self._live))
            self._condition.notify_all()


@dataclass
class Shared(Fuse):
    """The fuse of one of two drivers: a call waits for its turn."""

    turns: Turns | None = None
    number: int = 0

    def __enter__(self) -> None:
        assert self.turns is not None
        self.turns.take(self.number)


@dataclass
class Transaction:
    producer_id: int
    rows: list[int] = field(default_factory=list)
    state: str = "open"


@dataclass
class Batch:
    """Stands in for an Arrow batch."""

    rows: list[int]

    @property
    def num_rows(self) -> int:
        return len(self.rows)


@dataclass
class World:
    transactions: dict[str, Transaction] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0

    def visible(self) -> Counter[int]:
        return Counter(
            row
            for one in self.transactions.values()
            if one.state == "committed"
            for row in one.rows
        )

    def undecided(self) -> list[str]:
        return [
            name for name, one in self.transactions.items() if one.state in ("open", "prepared")
        ]


class MemoryTransaction:
    def __init__(self, world: World, fuse: Fuse, name: str) -> None:
        with fuse:
            assert name not in world.transactions, f"{name} is used twice"
            world.next_producer_id += 1
            world.transactions[name] = Transaction(world.next_producer_id)
        self._one = world.transactions[name]
        self._fuse = fuse
        self._name = name

    def write(self, batch: Batch) -> None:
        with self._fuse:
            self._must_be_open()
            self._one.rows += batch.rows

    def prepare(self, is_lasting: bool) -> Prepared:
        assert is_lasting
        with self._fuse:
            self._must_be_open()
            self._one.state = "prepared"
        return Prepared(self._name, self._one.producer_id, 0)

    def _must_be_open(self) -> None:
        if self._one.state != "open":
            raise SinkConflict(f"{self._name} is fenced")

    def abort(self) -> None:
        """As far as it comes: the caller has failed already."""
        if self._one.state in ("open", "prepared"):
            self._one.state = "aborted"


class MemoryClaim:
    def __init__(self, world: World, fuse: Fuse, sink: str) -> None:
        with fuse:
            world.claims[sink] = world.claims.get(sink, 0) + 1
        self._number = world.claims[sink]
        self._world = world
        self._fuse = fuse
        self._sink = sink

    def decision(self) -> Decision | None:
        with self._fuse:
            return self._world.decisions.get(self._sink)

    def decide(self, decision: Decision) -> None:
        with self._fuse:
            if self._world.claims[self._sink] != self._number:
                raise SinkConflict("fenced")
            self._world.decisions[self._sink] = decision


class MemoryCluster:
    """`world` as one process sees it."""

    def __init__(self, world: World, fuse: Fuse | None = None) -> None:
        self.world = world
        self.fuse = fuse or Fuse()

    def decision(self, sink: str) -> Decision | None:
        with self.fuse:
            return self.world.decisions.get(sink)

    def decisions_of(self, query: str) -> list[Decision]:
        with self.fuse:
            return [one for one in self.world.decisions.values() if one.query == query]

    def begin(self, transactional_id: str) -> MemoryTransaction:
        return MemoryTransaction(self.world, self.fuse, transactional_id)

    def claim(self, sink: str) -> MemoryClaim:
        return MemoryClaim(self.world, self.fuse, sink)

    def commit(self, transaction: Prepared) -> None:
        """As a broker that forgets ids when they are ended: it cannot tell how they were."""
        with self.fuse:
            one = self.world.transactions[transaction.transactional_id]
            assert one.producer_id == transaction.producer_id
            if one.state == "open":
                raise SinkLoss(f"{transaction.transactional_id} is {one.state}")
            if one.state == "prepared":
                one.state = "committed"

    def commit_all(self, transactions: Iterable[Prepared]) -> None:
        for one in transactions:
            self.commit(one)

    def commit_open(self, transactions: Iterable[Prepared]) -> None:
        with self.fuse:
            for one in transactions:
                if self.world.transactions[one.transactional_id].state == "prepared":
                    self.world.transactions[one.transactional_id].state = "committed"

    def missing(self, transactions: Iterable[Prepared]) -> list[str]:
        with self.fuse:
            names = [one.transactional_id for one in transactions]
            return [
                name
                for name in names
                if self.world.transactions[name].state not in ("open", "prepared")
            ]

    def abort(self, transactional_id: str) -> None:
        with self.fuse:
            one = self.world.transactions[transactional_id]
            if one.state != "committed":
                one.state = "aborted"

    def open_transactions(self, prefix: str) -> list[str]:
        with self.fuse:
            return [
                name
                for name, one in sorted(self.world.transactions.items())
                if one.state in ("open", "prepared") and name.startswith(prefix)
            ]


def halves(rows: Iterable[int]) -> list[list[int]]:
    everything = list(rows)
    middle = len(everything) // 2
    return [everything[:middle], everything[middle:]]
