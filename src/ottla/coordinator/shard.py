"""What every coordinator decides in: records, outcomes, time-outs.

A coordinator's state is a partition of an internal topic. A decision reads the state and returns an
`Outcome`: the records that make it true and the answer that is owed once they are committed. Only
replaying records changes what the log holds. What no log holds (who waits for whom, when somebody
was last heard of) is lost with the process, as it should be, and may change in the decision itself;
`Outcome.on_settled` puts it right once it is known whether the records made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ottla.base.deferred import Deferred

R = TypeVar("R")

Fields = dict[str, Any]
"""The fields of a response under their names in the message schemas."""


class Record:
    """One record in Kafka's own format; a `value` of None takes back what `key` said.

    `fact` is what key and value say, where whoever wrote them has it at hand: replaying live then
    needs no decoding. It must equal what decoding would give.
    """

    __slots__ = ("fact", "key", "value")

    def __init__(self, key: bytes, value: bytes | None, fact: Any = None) -> None:
        self.key = key
        self.value = value
        self.fact = fact

    def __repr__(self) -> str:
        return f"Record({self.key!r}, {self.value!r})"


class Transactional:
    """As whose transaction the records of an outcome are written.

    With `committed` they are its end instead: one marker, by a coordinator of `coordinator_epoch`.
    """

    __slots__ = ("committed", "coordinator_epoch", "producer_epoch", "producer_id")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool | None = None,
        coordinator_epoch: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.committed = committed
        self.coordinator_epoch = coordinator_epoch


class Outcome(Generic[R]):
    """What a decision returns.

    `records` are appended as one batch or not at all, unless `is_atomic` is False: then they may
    go into several, and what fails halfway stands halfway. `response` is given when they are
    committed; a Deferred is one that waits for others and is resolved by a later decision, or by
    `on_settled`. That is called once before: with 0 when the records are committed, else with the
    error code that the client gets. Without records, both wait only for what was written before.
    """

    __slots__ = ("is_atomic", "on_settled", "records", "response", "transactional")

    def __init__(
        self,
        records: Sequence[Record],
        response: R | Deferred[R],
        on_settled: Callable[[int], None] | None = None,
        *,
        is_atomic: bool = True,
        transactional: Transactional | None = None,
    ) -> None:
        self.records = records
        self.response = response
        self.on_settled = on_settled
        self.is_atomic = is_atomic
        self.transactional = transactional


NOTHING: Outcome[None] = Outcome((), None)
"""A time-out that found nothing to do."""


class ShardTimers(Protocol):
    """Time-outs of one shard. When one is due, its operation is run like any other decision."""

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Outcome[None]]) -> None:
        """One that has the same key is replaced."""
        ...

    def cancel(self, key: str) -> None:
        """No error if there is none."""
        ...


class Caller:
    """Who asks: what a request says of its sender outside its body."""

    __slots__ = ("api_version", "client_host", "client_id")

    def __init__(self, client_id: str, client_host: str, api_version: int) -> None:
        self.client_id = client_id
        self.client_host = client_host
        self.api_version = api_version
