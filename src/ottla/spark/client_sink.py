"""The sink's cluster, by Ottla's client: what stands behind the ports of `sink_cluster`.

One for each set of options in a process: Spark reuses its workers, so connections and what was read
of the decisions live from batch to batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import OttlaError
from ottla.client.errors import ClientError, FencedError, UnknownTopicError
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.compression import NONE as NO_CODEC
from ottla.spark import transaction_flows as flows
from ottla.spark.batch_sender import BatchSender
from ottla.spark.decision_log import DecisionLog
from ottla.spark.decisions import NOBODYS, TOPIC, Decision, Prepared
from ottla.spark.errors import RowError, SinkConflict, SinkLoss
from ottla.spark.record_batches import Envelope, batch_from, batches_of
from ottla.spark.rows_to_records import placed, topics_of
from ottla.spark.sink_options import SinkOptions
from ottla.spark.sink_protocol import batch_prefix, owner_id, run_of, sink_prefix
from ottla.spark.transaction_flows import FencedOff, Forgotten, Producer
from ottla.spark.wire import Wire, producer_settings

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# A decision takes milliseconds; a driver that died in the middle of one holds back the readers of
# other sinks' decisions for so long at most.
DECISION_TIMEOUT_MS = 30_000
# Just below the largest batch that brokers take by default (message.max.bytes).
BATCH_BYTES = 900_000
_TRIES_MAX = 10
# Transactions that are ended at the same time: a batch may have had hundreds of tasks.
AT_ONCE_MAX = 32


class ClientSinkCluster:
    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        settings = producer_settings(options.client)
        self.settings = settings
        self.wire = Wire(settings, settings.delivery_timeout_ms, "sink")
        self._decisions = DecisionLog(self.wire)
        self._told = False

    def decision(self, sink: str) -> Decision | None:
        return self._decisions.newest(sink, settled=False)

    def decisions_of(self, query: str) -> list[Decision]:
        return self._decisions.of_query(query)

    def begin(self, transactional_id: str) -> ClientTransaction:
        return ClientTransaction(self, transactional_id)

    def claim(self, sink: str) -> ClientClaim:
        name = owner_id(sink)
        owner = self.wire.call(
            lambda: flows.init(self.wire, name, DECISION_TIMEOUT_MS), f"claiming {sink}"
        )
        self._tell_guarantee()
        return ClientClaim(self, sink, owner)

    def commit(self, transaction: Prepared) -> None:
        self.wire.shell.call(self._commit(transaction))

    def commit_all(self, transactions: Sequence[Prepared]) -> None:
        for first in range(0, len(transactions), AT_ONCE_MAX):
            self.wire.shell.call(self._commit_some(transactions[first : first + AT_ONCE_MAX]))

    def commit_open(self, transactions: Sequence[Prepared]) -> None:
        if self.wire.prepares():
            self.commit_all(transactions)
            return
        # Brokers forget ids after a while: one that is not known may have been committed long ago.
        found = self._open_like(transactions)
        self.commit_all([one for one in transactions if one.transactional_id in found])

    async def _commit_some(self, transactions: Sequence[Prepared]) -> None:
        """All are over when this is: the first failure is raised then."""
        coming = [self.wire.core.spawn(self._commit(one)) for one in transactions]
        failure: OttlaError | None = None
        for one in coming:
            try:
                await one
            except OttlaError as failed:
                failure = failure or failed
        if failure is not None:
            raise failure

    async def _commit(self, transaction: Prepared) -> None:
        producer = Producer(transaction.producer_id, transaction.epoch)
        name = transaction.transactional_id
        prepares = self.wire.prepares()
        try:
            await self.wire.retried(
                lambda: flows.end(self.wire, name, producer, commit=True, forget=prepares),
                f"committing {name}",
            )
        except Forgotten as gone:
            if not prepares:
                raise SinkLoss(_lost(name)) from gone
            # It was open when it was decided on, and nobody aborts what may still be decided: so it
            # was committed, and nobody needs its id any more.
        except FencedOff as fenced:
            raise SinkLoss(_lost(name)) from fenced

    def abort(self, transactional_id: str) -> None:
        """By taking the id over, which shuts its writer out, and ending what it had open."""
        what = f"aborting {transactional_id}"
        if not self.wire.prepares():
            self.wire.call(
                lambda: flows.init(self.wire, transactional_id, DECISION_TIMEOUT_MS), what
            )
            return
        for _ in range(_TRIES_MAX):
            owner = self.wire.call(lambda: flows.take_over(self.wire, transactional_id), what)
            if self._abort_as(transactional_id, owner):
                return
        raise SinkConflict(f"{what}: others do the same, again and again; start again")

    def _abort_as(self, transactional_id: str, owner: Producer) -> bool:
        try:
            self.wire.call(
                lambda: flows.end(self.wire, transactional_id, owner, commit=False, forget=True),
                f"aborting {transactional_id}",
            )
        except Forgotten:
            return True
        except FencedOff:
            return False  # somebody else does the same at this moment
        return True

    def missing(self, transactions: Sequence[Prepared]) -> list[str]:
        found = self._open_like(transactions)
        names = [one.transactional_id for one in transactions]
        return [name for name in names if name not in found and not self._is_open(name)]

    def _open_like(self, transactions: Sequence[Prepared]) -> set[str]:
        """What is open of the batch that they are of."""
        if not transactions:
            return set()
        return set(self.open_transactions(batch_prefix(transactions[0].transactional_id)))

    def _is_open(self, name: str) -> bool:
        return self.wire.call(lambda: flows.is_open(self.wire, name), f"looking for {name}")

    def open_transactions(self, prefix: str) -> list[str]:
        return self.wire.call(lambda: flows.list_open(self.wire, prefix), "listing transactions")

    def read_settled(self, sink: str) -> Decision | None:
        return self._decisions.newest(sink, settled=True)

    def store(self, sink: str, owner: Producer, value: bytes | None) -> None:
        """In a transaction of the sink's owner. In two steps, each of which may be repeated: when
        the end is asked for, the record is there."""
        what = f"deciding for {sink}"
        name = owner_id(sink)
        self.wire.call(lambda: self._append(sink, owner, value), what)
        self.wire.call(lambda: flows.end(self.wire, name, owner, commit=True, forget=False), what)

    async def _append(self, sink: str, owner: Producer, value: bytes | None) -> None:
        partition = await self._decisions.partition_of(sink)
        data = build_batch(
            [RecordToWrite(time.time_ns() // 1_000_000, sink.encode(), value)],
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
            base_sequence=0,
            transactional=True,
        )
        envelope = Envelope(owner, True, NO_CODEC, None, BATCH_BYTES)
        sender = BatchSender(self.wire, owner_id(sink), envelope)
        await sender.send_all([batch_from(data, TOPIC, partition, 1, 0)])

    def release(self, sink: str) -> bool:
        """The sink has no decision any more, and nothing open; whoever is first may have it."""
        claim = self.claim(sink)
        last = claim.decision()
        self.commit_all(last.transactions if last is not None else ())
        left = self.open_transactions(sink_prefix(sink))
        if left:
            # A driver that lives could decide on them meanwhile: it reads this, and does not.
            runs = tuple(sorted({run_of(name) for name in left}))
            claim.decide(Decision(sink, NOBODYS, -1, 0, (), over=runs))
            for name in left:
                self.abort(name)
            claim = self.claim(sink)  # for one decision each
            found = claim.decision()
            if found is not None and found.query != NOBODYS:
                return True  # whoever was waiting for the sink has it already
        if left or last is not None:
            claim.store(None)
        return last is not None

    def _tell_guarantee(self) -> None:
        if self._told:
            return
        self._told = True
        if not self.wire.prepares():
            log.warning(
                "these brokers cannot prepare transactions: rows are written exactly once unless "
                "the driver is away for more than %d ms between the decision on a batch and its "
                "commit; what is lost then is reported as an error",
                self.options.transaction_timeout_ms,
            )


class ClientClaim:
    def __init__(self, cluster: ClientSinkCluster, sink: str, owner: Producer) -> None:
        self._cluster = cluster
        self._sink = sink
        self._owner = owner

    def decision(self) -> Decision | None:
        return self._cluster.read_settled(self._sink)

    def decide(self, decision: Decision) -> None:
        self.store(decision.as_value())

    def store(self, value: bytes | None) -> None:
        """None: the sink has no decision any more."""
        try:
            self._cluster.store(self._sink, self._owner, value)
        except (FencedOff, FencedError) as failure:
            raise SinkConflict(
                f"another driver has claimed sink {self._sink} meanwhile: is the query running "
                "twice? This one stops here; nothing of its batch was committed"
            ) from failure


class ClientTransaction:
    """Rows of one task; without a transactional id they are visible at once."""

    def __init__(self, cluster: ClientSinkCluster, transactional_id: str | None) -> None:
        self._cluster = cluster
        self._wire = cluster.wire
        self._name = transactional_id
        settings = cluster.settings
        self._producer = self._wire.call(
            lambda: flows.init(
                self._wire, transactional_id, cluster.options.transaction_timeout_ms
            ),
            f"beginning {transactional_id or 'to write'}",
        )
        self._envelope = Envelope(
            self._producer,
            transactional_id is not None,
            cluster.options.codec,
            cluster.options.codec_level(settings),
            cluster.options.batch_bytes or BATCH_BYTES,
        )
        record_bytes_max = cluster.options.record_bytes_max
        self._sender = BatchSender(self._wire, transactional_id, self._envelope, record_bytes_max)
        self._sequences: dict[tuple[str, int], int] = {}
        # Tasks begin with different partitions where rows have no keys.
        self._turn = self._producer.producer_id

    def write(self, batch: pa.RecordBatch) -> None:
        now_ms = time.time_ns() // 1_000_000
        for rows in topics_of(batch, self._cluster.options.topic, now_ms):
            count = self._wire.shell.call(self._partition_count(rows.topic))
            partitions = placed(rows, count, self._turn)
            self._turn += 1
            self._sender.send(batches_of(rows, partitions, self._envelope, self._sequences))

    async def _partition_count(self, topic: str) -> int:
        core = self._wire.core
        patience_ms = self._cluster.settings.max_block_ms
        try:
            info = await core.metadata.topic(topic, core.now_ms + patience_ms)
        except UnknownTopicError as unknown:
            raise RowError(
                f"there is no topic {topic}, and the brokers have made none within {patience_ms} "
                f"ms (kafka.max.block.ms): `ottla topic create {topic}`"
            ) from unknown
        return len(info.partitions)

    def flush(self) -> None:
        self._sender.flush()

    def prepare(self, is_lasting: bool) -> Prepared:
        self._sender.flush()
        assert self._name is not None
        name = self._name
        producer = self._producer
        if is_lasting and self._wire.prepares():
            producer = self._wire.call(
                lambda: flows.prepare(self._wire, name, self._producer), f"preparing {name}"
            )
        return Prepared(name, producer.producer_id, producer.epoch)

    def abort(self) -> None:
        """As far as it comes: whoever calls has failed already, and says so."""
        if self._name is None:
            return
        try:
            self._cluster.abort(self._name)
        except ClientError as failure:
            log.warning("%s is left to its time-out: %s", self._name, failure)


def _lost(name: str) -> str:
    return (
        f"transaction {name} was decided to be committed, but was aborted before that could happen "
        "(on brokers that cannot prepare transactions, transaction.timeout.ms ends them): its rows "
        "are lost. Read them again with a new checkpointLocation and sinkId"
    )
