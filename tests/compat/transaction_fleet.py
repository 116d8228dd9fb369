"""Many transactional producers on one raw connection, each step of all of them sent at once."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kio.serial import entity_writer

from tests.compat.group_wire import build, schema
from tests.compat.transaction_wire import TransactionWire, transactional_batch

AT_ONCE = 100

Owner = tuple[int, int]
"""Producer id and epoch."""


class Fleet(TransactionWire):
    """Steps of all of them are sent before any answer is read; `partitions` are those of topics."""

    def __init__(self, bootstrap: str, partitions: int = 1) -> None:
        super().__init__(bootstrap)
        self._partitions = partitions

    def calls(self, requests: Sequence[tuple[Any, bytes | None]]) -> list[Any]:
        sent = [(request, self.send(request, body)) for request, body in requests]
        return [self.receive(request, number) for request, number in sent]

    def begin(self, topic: str, names: Sequence[str], *, timeout_s: int = 60) -> list[Owner]:
        """A transaction of one record for each id; who their producers are."""
        init = schema("init_producer_id", 5)
        begun = self.calls(
            [
                (
                    build(
                        init.InitProducerIdRequest,
                        transactional_id=name,
                        transaction_timeout=timedelta(seconds=timeout_s),
                    ),
                    None,
                )
                for name in names
            ]
        )
        owners = [(one.producer_id, one.producer_epoch) for one in begun]
        assert [int(one.error_code) for one in begun] == [0] * len(names)
        written = self.calls(
            [(self._produce(topic, *one), None) for one in zip(names, owners, strict=True)]
        )
        codes = {int(one.responses[0].partition_responses[0].error_code) for one in written}
        assert codes == {0}
        return owners

    def begin_many(
        self, topic: str, prefix: str, count: int, *, timeout_s: int = 60
    ) -> dict[str, Owner]:
        begun: dict[str, Owner] = {}
        for names in _portions(prefix, count):
            owners = self.begin(topic, names, timeout_s=timeout_s)
            begun.update(zip(names, owners, strict=True))
        return begun

    def run(
        self, topic: str, names: Sequence[str], *, forgets: bool, committed: bool = True
    ) -> list[Owner]:
        owners = self.begin(topic, names)
        ended = self.calls(
            [
                self._end(name, owner, forgets, committed)
                for name, owner in zip(names, owners, strict=True)
            ]
        )
        assert {int(one.error_code) for one in ended} == {0}
        return owners

    def run_many(
        self, topic: str, prefix: str, count: int, *, forgets: bool, committed: bool = True
    ) -> Owner:
        """The producer of the last of them."""
        owners: list[Owner] = []
        for names in _portions(prefix, count):
            owners = self.run(topic, names, forgets=forgets, committed=committed)
        return owners[-1]

    def _produce(self, topic: str, name: str, owner: Owner) -> Any:
        part = schema("produce", 12)
        records = transactional_batch(*owner, 0, name.encode())
        data = part.PartitionProduceData(index=owner[0] % self._partitions, records=records)
        return part.ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout=timedelta(seconds=60),
            topic_data=(part.TopicProduceData(name=topic, partition_data=(data,)),),
        )

    def _end(
        self, name: str, owner: Owner, forgets: bool, committed: bool
    ) -> tuple[Any, bytes | None]:
        part = schema("end_txn", 5)
        request = part.EndTxnRequest(
            transactional_id=name,
            producer_id=owner[0],
            producer_epoch=owner[1],
            committed=committed,
        )
        frame = io.BytesIO()
        entity_writer(part.EndTxnRequest)(frame, request)
        # One tag of our own, 10000, of one byte.
        return request, frame.getvalue()[:-1] + b"\x01\x90\x4e\x01\x01" if forgets else None


def _portions(prefix: str, count: int) -> list[list[str]]:
    return [
        [f"{prefix}-{number}" for number in range(start, min(start + AT_ONCE, count))]
        for start in range(0, count, AT_ONCE)
    ]
