"""A raw connection: one socket, frames written and read with kio, batches with kafka-python.

Neither is code of Ottla, so a mistake in our own codecs cannot hide itself here. For what stock
clients refuse to send (acks=2, broken batches) and for what they hide (bytes as stored).
"""

from __future__ import annotations

import io
import socket
import struct
from datetime import timedelta
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from kafka.record.default_records import DefaultRecordBatchBuilder
from kio.serial import entity_reader, entity_writer

from tests.patience import SECONDS_MAX

NO_CODEC, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NO_CODEC, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
BATCH_PREFIX = struct.Struct(">qiibIhi")  # to the last offset delta


class Wire:
    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(",", 1)[0].rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self.correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, request: Any, body: bytes | None = None) -> int:
        """`body`: what to send instead of the request's own."""
        self.correlation_id += 1
        header_class = request.__header_schema__
        header = header_class(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=self.correlation_id,
            client_id="ottla-compat",
        )
        frame = io.BytesIO()
        entity_writer(header_class)(frame, header)
        if body is None:
            entity_writer(type(request))(frame, request)
        else:
            frame.write(body)
        self.send_frame(frame.getvalue())
        return self.correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes | None:
        """The next answer, or None once the broker has closed the connection."""
        try:
            size = self._receive(4)
            return self._receive(struct.unpack(">i", size)[0]) if size else None
        except ConnectionResetError:
            return None

    def receive(self, request: Any, correlation_id: int) -> Any:
        frame = self.receive_frame()
        assert frame is not None, "the broker closed the connection"
        response_class = response_class_of(request)
        header_class = response_class.__header_schema__
        header, header_size = entity_reader(header_class)(frame, 0)
        assert header.correlation_id == correlation_id, "answers come in the order of the requests"
        response, response_size = entity_reader(response_class)(frame, header_size)
        assert header_size + response_size == len(frame), "bytes left over behind the answer"
        return response

    def call(self, request: Any) -> Any:
        return self.receive(request, self.send(request))

    def call_body(self, request: Any, body: bytes) -> Any:
        return self.receive(request, self.send(request, body))

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                return b""
            parts += part
        return bytes(parts)


def response_class_of(request: Any) -> Any:
    name = type(request).__name__.removesuffix("Request") + "Response"
    return getattr(
        import_module(type(request).__module__.removesuffix("request") + "response"), name
    )


def batch_of(
    values: list[bytes],
    *,
    codec: int = NO_CODEC,
    timestamp_ms: int = 1_700_000_000_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """One batch; `producer` is its id, epoch and first sequence."""
    producer_id, producer_epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(
        2, codec, False, producer_id, producer_epoch, sequence, 1 << 24
    )
    for index, value in enumerate(values):
        builder.append(index, timestamp_ms + index, None, value, [])
    return bytes(builder.build())


def produce_request(
    topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, version: int = 9
) -> Any:
    """Produce by topic name, any version from 3 to 12."""
    schema: Any = import_module(f"kio.schema.produce.v{version}.request")
    data = schema.PartitionProduceData(index=partition, records=batch)
    return schema.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=SECONDS_MAX),
        topic_data=(schema.TopicProduceData(name=topic, partition_data=(data,)),),
    )


def produce(wire: Wire, topic: str, batch: bytes, **options: int) -> Any:
    """Sends one batch and returns its partition's answer."""
    return wire.call(produce_request(topic, batch, **options)).responses[0].partition_responses[0]


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, bytes_max: int = 1 << 24, wait_ms: int = 0
) -> Any:
    """A fetch outside of any session."""
    schema: Any = import_module("kio.schema.fetch.v12.request")
    part = schema.FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=bytes_max,
    )
    return schema.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(schema.FetchTopic(topic=topic, partitions=(part,)),),
        forgotten_topics_data=(),
        rack_id="",
    )


def fetch(wire: Wire, topic: str, offset: int, **options: int) -> Any:
    """Fetches at one offset and returns the partition's answer."""
    return wire.call(fetch_request(topic, offset, **options)).responses[0].partitions[0]


def stored_bytes(wire: Wire, topic: str, end_offset: int, *, partition: int = 0) -> bytes:
    """All batches of a partition up to `end_offset`, as the broker serves them."""
    whole, offset = bytearray(), 0
    while offset < end_offset:
        answer = fetch(wire, topic, offset, partition=partition)
        assert int(answer.error_code) == 0, answer
        records = whole_batches(bytes(answer.records or b""))
        assert records, f"nothing at offset {offset} of {end_offset}"
        whole += records
        offset = batches_in(records)[-1].next_offset
    return bytes(whole)


class StoredBatch:
    """The header of one batch as it lies in the log."""

    def __init__(self, data: bytes, position: int) -> None:
        fields = BATCH_PREFIX.unpack_from(data, position)
        self.base_offset, length, self.leader_epoch = fields[:3]
        self.codec = fields[5] & 7
        self.is_control = bool(fields[5] & 32)
        self.size = length + 12
        self.position = position
        self.next_offset = self.base_offset + fields[6] + 1
        self.record_count = struct.unpack_from(">i", data, position + 57)[0]


def batches_in(data: bytes) -> list[StoredBatch]:
    batches, position = [], 0
    while position + 61 <= len(data):
        batch = StoredBatch(data, position)
        if position + batch.size > len(data):
            break
        batches.append(batch)
        position += batch.size
    return batches


def whole_batches(data: bytes) -> bytes:
    """A fetch may end in the middle of a batch; clients drop that part, and so do we."""
    return data[: sum(batch.size for batch in batches_in(data))]
