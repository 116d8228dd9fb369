"""The record of a decision: which transactions of a batch count. Pure.

One record a sink in a compacted topic, under the sink's name. Writing it is the moment at which a
batch is committed; whatever happens to anybody afterwards, the listed transactions will be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.spark.errors import SinkConflict

TOPIC = "__ottla_sinks"
FORMAT = 1
# Of batch writes before the last one: so many may come again and find that they are done.
TOKENS_KEPT = 200
# The query of a sink that is being released: anybody may have it.
NOBODYS = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction as EndTxn wants it named."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decision:
    """`batch` is Spark's number of the batch; a batch write has a `token` instead.

    `earlier` are tokens of batch writes before this one. `over` are runs of batch writes that can
    decide nothing any more: what they have open is for the writer of this decision to abort."""

    sink: str
    query: str
    batch: int
    rows: int
    transactions: tuple[Prepared, ...]
    token: str = ""
    earlier: tuple[str, ...] = ()
    over: tuple[str, ...] = ()

    def as_value(self) -> bytes:
        return json.dumps(
            {
                "format": FORMAT,
                "query": self.query,
                "batch": self.batch,
                "token": self.token,
                "earlier": self.earlier,
                "over": self.over,
                "rows": self.rows,
                "transactions": [
                    [one.transactional_id, one.producer_id, one.epoch] for one in self.transactions
                ],
            },
            separators=(",", ":"),
        ).encode()


def decision_of(sink: str, value: bytes) -> Decision:
    try:
        given = json.loads(value)
        if given["format"] != FORMAT:
            raise SinkConflict(
                f"the last decision of sink {sink} has format {given['format']}, this version "
                f"writes {FORMAT}: use the version that wrote it"
            )
        return Decision(
            sink=sink,
            query=str(given["query"]),
            batch=int(given["batch"]),
            rows=int(given["rows"]),
            transactions=_transactions(given["transactions"]),
            token=str(given["token"]),
            earlier=tuple(str(one) for one in given.get("earlier", ())),
            over=tuple(str(one) for one in given.get("over", ())),
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise SinkConflict(
            f"the last decision of sink {sink} in {TOPIC} cannot be read ({wrong}): something "
            f"else writes to that topic. Choose another sinkId, or `ottla pipeline reset`"
        ) from wrong


def _transactions(given: Sequence[Sequence[object]]) -> tuple[Prepared, ...]:
    return tuple(
        Prepared(str(transactional_id), int(str(producer_id)), int(str(epoch)))
        for transactional_id, producer_id, epoch in given
    )
