"""Rows of one topic as record batches, partition by partition, ready but for their producer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ottla.base.ports import Buffer
from ottla.client.columns.encode import Encoder, RecordStretch, cut_by_size
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
)
from ottla.records.batch_view import records_of
from ottla.records.columns import Numbers
from ottla.records.compression import NONE, compress
from ottla.records.crc32c import crc32c, crc32c_extended
from ottla.spark.rows_to_records import TopicRows
from ottla.spark.transaction_flows import Producer


@dataclass(slots=True)
class PartitionBatch:
    """A batch on its way, in two pieces: its records are not copied to stand behind its header.
    `sequence` is that of its first record."""

    topic: str
    partition: int
    count: int
    sequence: int
    header: bytes
    records: Buffer

    @property
    def size(self) -> int:
        return len(self.header) + len(self.records)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all batches of a writer have in common."""

    producer: Producer
    transactional: bool
    codec: int
    level: int | None
    bytes_max: int


def batches_of(
    rows: TopicRows, partitions: Numbers, envelope: Envelope, sequences: dict[tuple[str, int], int]
) -> Iterator[PartitionBatch]:
    """In the order of the rows within each partition; `sequences` moves on with them."""
    order = np.argsort(partitions, kind="stable")
    sorted_partitions = partitions[order]
    is_sorted = bool((order == np.arange(len(order))).all())
    encoder = Encoder(rows.rows, None if is_sorted else order)
    edges = np.flatnonzero(np.diff(sorted_partitions)) + 1
    firsts = [0, *edges.tolist()]
    ends = [*edges.tolist(), len(order)]
    cuts: list[int] = []
    owners: list[int] = []
    for first, end in zip(firsts, ends, strict=True):
        found = cut_by_size(encoder.sizes_max, first, end, envelope.bytes_max)
        cuts += found
        owners += [int(sorted_partitions[first])] * len(found)
    stretches = encoder.encode([*cuts, len(order)])
    for partition, stretch in zip(owners, stretches, strict=True):
        place = (rows.topic, partition)
        sequence = sequences.get(place, 0)
        sequences[place] = _after(sequence, stretch.record_count)
        header, records = _packed(stretch, envelope, sequence)
        yield PartitionBatch(*place, stretch.record_count, sequence, header, records)


def batch_from(
    data: bytes, topic: str, partition: int, count: int, sequence: int
) -> PartitionBatch:
    """Of a batch that is whole."""
    return PartitionBatch(topic, partition, count, sequence, data[:HEADER_SIZE], data[HEADER_SIZE:])


def halves_of(batch: PartitionBatch, envelope: Envelope) -> list[PartitionBatch]:
    """The same records as two batches, for a topic that takes no batch as large as this one."""
    whole = batch.header + bytes(batch.records)
    records = [
        RecordToWrite(one.timestamp, one.key, one.value, one.headers)
        for one in records_of(whole, len(whole) * 100)
    ]
    middle = len(records) // 2
    found = []
    sequence = batch.sequence
    for part in (records[:middle], records[middle:]):
        data = build_batch(
            part,
            codec=envelope.codec,
            producer_id=envelope.producer.producer_id,
            producer_epoch=envelope.producer.epoch,
            base_sequence=sequence,
            transactional=envelope.transactional,
        )
        found.append(batch_from(data, batch.topic, batch.partition, len(part), sequence))
        sequence = _after(sequence, len(part))
    return found


def _packed(stretch: RecordStretch, envelope: Envelope, sequence: int) -> tuple[bytes, Buffer]:
    records: Buffer = stretch.records
    if envelope.codec != NONE:
        records = compress(envelope.codec, records, envelope.level)
    header = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        header,
        0,
        0,
        HEADER_SIZE - LENGTH_END + len(records),
        -1,
        MAGIC_V2,
        0,
        envelope.codec | (TRANSACTIONAL_MASK if envelope.transactional else 0),
        stretch.record_count - 1,
        stretch.base_timestamp,
        stretch.max_timestamp,
        envelope.producer.producer_id,
        envelope.producer.epoch,
        sequence,
        stretch.record_count,
    )
    # Arrow's buffers are as good as `bytes` for it, and a copy would be as dear as all the rest.
    checksum = crc32c_extended(crc32c(header[ATTRIBUTES_POSITION:]), pa.py_buffer(records))
    header[CRC_POSITION : CRC_POSITION + 4] = checksum.to_bytes(4, "big")
    return bytes(header), records


def _after(sequence: int, count: int) -> int:
    """Sequences are 31 bits and begin again at 0."""
    return (sequence + count) & 0x7FFFFFFF
