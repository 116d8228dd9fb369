"""A transactional producer as a raw connection: every version, every field, every mistake.

Requests are written with kio and batches with kafka-python: no codec of Ottla takes part.
"""

from __future__ import annotations

import io
import time
from datetime import timedelta
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder
from kio.serial import entity_writer

from tests.compat.confluent import new_name
from tests.compat.group_wire import build, schema
from tests.compat.nodes import wait_until
from tests.compat.wire import Wire, fetch_request
from tests.patience import SECONDS_MAX

CONCURRENT_TRANSACTIONS = 51


def transactional_batch(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, True, producer_id, epoch, sequence, 1 << 24)
    now_ms = int(time.time() * 1000)
    for index, value in enumerate(values):
        builder.append(index, now_ms, None, value, [])
    return bytes(builder.build())


class TransactionWire(Wire):
    """One connection that plays the producer of one transactional id.

    Calls answer with error codes; `producer_id` and `epoch` are what the coordinator gave last.
    """

    def __init__(self, bootstrap: str, name: str | None = None) -> None:
        super().__init__(bootstrap)
        self._bootstrap = bootstrap
        self.name = name or new_name("txn")
        self.producer_id = -1
        self.epoch = -1
        self.kept = (-1, -1)

    def socket_address(self) -> str:
        return self._bootstrap

    def ready(self) -> TransactionWire:
        """Kafka needs some moments between making its topic and serving transactions."""
        self.ready_again()
        seconds = SECONDS_MAX
        wait_until(lambda: self.init() not in (14, 15, 16), seconds, "the coordinator answers")
        return self

    def ready_again(self) -> None:
        """As `ready`, but for a producer that must not begin anew."""
        part = schema("find_coordinator", 3)
        seconds = SECONDS_MAX

        def is_found() -> bool:
            finds = [
                build(part.FindCoordinatorRequest, key=self.name, key_type=kind) for kind in (0, 1)
            ]
            return all(int(self.call(find).error_code) == 0 for find in finds)

        def is_loaded() -> bool:
            return int(self.describe().error_code) not in (14, 15, 16)

        wait_until(is_found, seconds, "coordinators for groups and transactions")
        wait_until(is_loaded, seconds, "the coordinator answers")

    def init(
        self, version: int = 4, *, name: str | None = None, timeout_ms: int = 60_000, **fields: Any
    ) -> int:
        part = schema("init_producer_id", version)
        request = build(
            part.InitProducerIdRequest,
            transactional_id=self.name if name is None else name,
            transaction_timeout=timedelta(milliseconds=timeout_ms),
            **fields,
        )
        answer = self.call(request)
        if int(answer.error_code) == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.kept = (
                getattr(answer, "ongoing_txn_producer_id", -1),
                getattr(answer, "ongoing_txn_producer_epoch", -1),
            )
        return int(answer.error_code)

    def prepare(self, **changed: Any) -> int:
        """Our own use of KIP-939: `kept` is what stays open, and the owner what may end it."""
        owner = self.owner(**changed)
        return self.init(
            6,
            timeout_ms=0,
            producer_id=owner["producer_id"],
            producer_epoch=owner["producer_epoch"],
            enable2_pc=True,
            keep_prepared_txn=True,
        )

    def forget(self, committed: bool, **changed: Any) -> int:
        """EndTxn v5 with our own tag, which kio does not know: written by hand."""
        frame = io.BytesIO()
        part = schema("end_txn", 5)
        request = part.EndTxnRequest(**self.owner(**changed), committed=committed)
        entity_writer(part.EndTxnRequest)(frame, request)
        body = frame.getvalue()[:-1] + b"\x01\x90\x4e\x01\x01"  # one tag, 10000, of one byte
        return int(self.call_body(request, body).error_code)

    def init_again(self) -> int:
        """InitProducerId over an open transaction: asked until its abort is done."""
        codes: list[int] = []

        def answered() -> bool:
            codes.append(self.init())
            return codes[-1] != CONCURRENT_TRANSACTIONS

        wait_until(answered, SECONDS_MAX, "the open transaction is aborted")
        return codes[-1]

    def owner(self, **changed: Any) -> dict[str, Any]:
        """What names the producer in a request, with what a test wants wrong in it."""
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            **changed,
        }

    def add(
        self, topic: str, *partitions: int, version: int = 3, verify: bool = False, **changed: Any
    ) -> list[int]:
        part = schema("add_partitions_to_txn", version)
        topics = (part.AddPartitionsToTxnTopic(name=topic, partitions=partitions),)
        owner = self.owner(**changed)
        if version >= 4:
            one = part.AddPartitionsToTxnTransaction(**owner, verify_only=verify, topics=topics)
            answer = self.call(part.AddPartitionsToTxnRequest(transactions=(one,)))
            assert int(answer.error_code) == 0
            results = answer.results_by_transaction[0].topic_results
        else:
            old = {f"v3_and_below_{name}": value for name, value in owner.items()}
            answer = self.call(part.AddPartitionsToTxnRequest(**old, v3_and_below_topics=topics))
            results = answer.results_by_topic_v3_and_below
        return [int(one.partition_error_code) for one in results[0].results_by_partition]

    def add_offsets(self, group: str, version: int = 3, **changed: Any) -> int:
        part = schema("add_offsets_to_txn", version)
        answer = self.call(part.AddOffsetsToTxnRequest(**self.owner(**changed), group_id=group))
        return int(answer.error_code)

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int = 3,
        metadata: str = "",
        **fields: Any,
    ) -> int:
        part = schema("txn_offset_commit", version)
        partition = build(
            part.TxnOffsetCommitRequestPartition,
            partition_index=0,
            committed_offset=offset,
            committed_metadata=metadata,
        )
        asked = part.TxnOffsetCommitRequestTopic(name=topic, partitions=(partition,))
        request = build(
            part.TxnOffsetCommitRequest,
            **{**self.owner(), "group_id": group, "topics": (asked,), **fields},
        )
        return int(self.call(request).topics[0].partitions[0].error_code)

    def end(self, committed: bool, version: int = 3, *, take: bool = True, **changed: Any) -> int:
        part = schema("end_txn", version)
        answer = self.call(part.EndTxnRequest(**self.owner(**changed), committed=committed))
        code = int(answer.error_code)
        if version >= 5 and code == 0 and take:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return code

    def finish(self, committed: bool, **changed: Any) -> int:
        """EndTxn v5, and again until the markers are written: readers see all of it then.

        The epoch stays that of the transaction, which is how the second time is known as such.
        """
        code = self.end(committed, 5, take=False, **changed)
        return code or self.end_when_ready(committed, 5, take=False, **changed)

    def end_when_ready(self, committed: bool, version: int = 3, **changed: Any) -> int:
        codes: list[int] = []

        def answered() -> bool:
            codes.append(self.end(committed, version, **changed))
            return codes[-1] != CONCURRENT_TRANSACTIONS

        wait_until(answered, SECONDS_MAX, "the markers are written")
        return codes[-1]

    def write(
        self, topic: str, sequence: int, *values: bytes, version: int = 9, **changed: Any
    ) -> int:
        part = schema("produce", version)
        owner = self.owner(**changed)
        records = transactional_batch(
            owner["producer_id"], owner["producer_epoch"], sequence, *(values or (b"x",))
        )
        data = part.PartitionProduceData(index=0, records=records)
        request = part.ProduceRequest(
            transactional_id=owner["transactional_id"],
            acks=-1,
            timeout=timedelta(seconds=10),
            topic_data=(part.TopicProduceData(name=topic, partition_data=(data,)),),
        )
        return int(self.call(request).responses[0].partition_responses[0].error_code)

    def describe(self, name: str | None = None) -> Any:
        part = schema("describe_transactions", 0)
        names = (self.name if name is None else name,)
        return self.call(
            part.DescribeTransactionsRequest(transactional_ids=names)
        ).transaction_states[0]

    def state(self) -> str:
        """Told by ListTransactions: kio cannot read a start time of -1 in a description."""
        found = self.list(producer_id_filters=(self.producer_id,)).transaction_states
        assert [one.transactional_id for one in found] == [self.name]
        return str(found[0].transaction_state)

    def list(self, version: int = 2, **fields: Any) -> Any:
        part = schema("list_transactions", version)
        return self.call(build(part.ListTransactionsRequest, **fields))

    def mark(self, topic: str, committed: bool, version: int = 1, **changed: Any) -> int:
        part = schema("write_txn_markers", version)
        owner = self.owner(**changed)
        marker = build(
            part.WritableTxnMarker,
            producer_id=owner["producer_id"],
            producer_epoch=owner["producer_epoch"],
            transaction_result=committed,
            topics=(part.WritableTxnMarkerTopic(name=topic, partition_indexes=(0,)),),
            coordinator_epoch=changed.get("coordinator_epoch", 0),
            transaction_version=changed.get("transaction_version", 0),
        )
        answer = self.call(part.WriteTxnMarkersRequest(markers=(marker,)))
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    def stable_offset(self, topic: str) -> int:
        answer = self.call(fetch_request(topic, 0)).responses[0].partitions[0]
        return int(answer.last_stable_offset)
