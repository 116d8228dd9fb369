"""The doors to a cluster that the sink uses. Ports only; `client_sink` stands behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.spark.decisions import Decision, Prepared

if TYPE_CHECKING:
    import pyarrow as pa


class TaskTransaction(Protocol):
    """The records of one attempt of one task, invisible until somebody commits them."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def prepare(self, is_lasting: bool) -> Prepared:
        """All records are stored, and nobody adds to them any more. If it is lasting, from now on
        no time-out undoes them, where the broker can promise that."""

    def abort(self) -> None: ...


class Claim(Protocol):
    """The right to decide for a sink, until somebody else claims it."""

    def decision(self) -> Decision | None:
        """The newest there is; nobody else can have written one since the claim."""

    def decide(self, decision: Decision) -> None:
        """Durable when this returns. Raises SinkConflict when the claim is lost; after any other
        error it may have been written or not."""


class SinkCluster(Protocol):
    def decision(self, sink: str) -> Decision | None:
        """The newest that is known: a younger one may be on its way."""

    def decisions_of(self, query: str) -> list[Decision]:
        """The newest of each sink that this query has written to; none that was stored before the
        call is missing."""

    def begin(self, transactional_id: str) -> TaskTransaction: ...

    def claim(self, sink: str) -> Claim: ...

    def commit(self, transaction: Prepared) -> None:
        """Idempotent. Raises SinkLoss when it was aborted."""

    def commit_all(self, transactions: Sequence[Prepared]) -> None:
        """The same for each of them, in no order: some may be committed when this raises."""

    def commit_open(self, transactions: Sequence[Prepared]) -> None:
        """Those of them that are open still; of an old decision, whose ids may be forgotten."""

    def missing(self, transactions: Sequence[Prepared]) -> list[str]:
        """The ids of those that are not open any more."""

    def abort(self, transactional_id: str) -> None:
        """Whatever is open under this id, and whoever has it."""

    def open_transactions(self, prefix: str) -> list[str]:
        """The ids that begin with `prefix` and have a transaction under way."""
