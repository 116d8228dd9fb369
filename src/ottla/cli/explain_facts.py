"""What the cluster says about one offset, gathered as one JSON document.

`status` says what stands there: a `record`, a `marker` (the end of a transaction), or nothing:
`compacted`, `below_log_start`, `beyond_end`. Reads batches as the leader holds them; writes
nothing. Looks ahead for the marker of a transaction, at most SCAN_BYTES_MAX far.
"""

from __future__ import annotations

import struct
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.cli.admin_door import existing_topic
from ottla.cli.failure import Failure
from ottla.client.admin import Admin
from ottla.client.admin_values import EARLIEST, LATEST
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LOG_APPEND_TIME_MASK,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_MASK,
    Header,
    read_header,
)
from ottla.records.batch_view import RecordView, records_of
from ottla.records.compression import CODEC_NAMES, NONE, decompress

Document = dict[str, Any]

SCAN_BYTES_MAX = 64 << 20
UNPACKED_BYTES_MAX = 256 << 20
_ONE_BATCH = 1
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")
_OUTCOMES = {0: "aborted", 1: "committed"}
_SEQUENCES = 2**31


class Inquiry:
    """About one offset of one partition."""

    def __init__(self, admin: Admin, topic: str, partition: int, offset: int) -> None:
        self._admin = admin
        self._place: TopicPartition = (topic, partition)
        self._offset = offset
        self._names: dict[int, str | None] = {}

    def answer(self) -> Document:
        log = self._log()
        document: Document = {
            "topic": self._place[0],
            "partition": self._place[1],
            "offset": self._offset,
            "status": "beyond_end",
            "log": log,
            "batch": None,
            "record": None,
            "producer": None,
            "transaction": None,
            "held_back_by": [],
            "groups": self._groups(),
        }
        if self._offset < log["log_start_offset"]:
            document["status"] = "below_log_start"
        elif self._offset < log["high_watermark"]:
            self._look_into(document)
            if self._offset >= log["last_stable_offset"]:
                document["held_back_by"] = self._open_before(log["last_stable_offset"])
        document["visible"] = {
            "read_uncommitted": document["status"] == "record",
            "read_committed": _is_visible(document),
        }
        return document

    def _log(self) -> Document:
        topic, partition = self._place
        described = {one.partition: one for one in existing_topic(self._admin, topic).partitions}
        if partition not in described:
            last = len(described) - 1
            raise Failure(f"topic {topic} has the partitions 0 to {last}, and no {partition}")
        place = described[partition]
        if place.leader is None:
            raise Failure(f"{topic}-{partition} has no leader now, who could be asked")
        return {
            "leader": place.leader,
            "leader_epoch": place.leader_epoch,
            "log_start_offset": self._find(EARLIEST, committed=False),
            # In this order: both only grow, so the first is never above the second.
            "last_stable_offset": self._find(LATEST, committed=True),
            "high_watermark": self._find(LATEST, committed=False),
        }

    def _find(self, where: int, *, committed: bool) -> int:
        found = self._admin.list_offsets({self._place: where}, committed=committed)[self._place]
        return 0 if found is None else found.offset

    def _groups(self) -> list[Document]:
        groups = []
        for listed in self._admin.list_groups():
            committed = self._admin.list_group_offsets(listed.group_id, [self._place])
            if self._place in committed:
                position = committed[self._place].offset
                groups.append(
                    {"group": listed.group_id, "committed_offset": position}
                    | {"is_past": position > self._offset}
                )
        return groups

    # ------------------------------------------------------------------------------- the batch

    def _look_into(self, document: Document) -> None:
        held = self._admin.fetch_batches(self._place, self._offset, max_bytes=_ONE_BATCH)
        batch = next((one for one in held.batches if _last(read_header(one)) >= self._offset), None)
        if batch is None or read_header(batch)[BASE_OFFSET] > self._offset:
            # Whole batches go, too; what is left begins behind it.
            document["status"] = "compacted"
            return
        header = read_header(batch)
        document["batch"] = _batch_document(batch, header)
        if header[PRODUCER_ID] >= 0:
            document["producer"] = self._producer(header)
        record = next(
            (one for one in records_of(batch, UNPACKED_BYTES_MAX) if one.offset == self._offset),
            None,
        )
        if record is None:
            document["status"] = "compacted"
            return
        if header[ATTRIBUTES] & CONTROL_MASK:
            document["status"] = "marker"
            document["transaction"] = self._marker_document(header, record)
            return
        document["status"] = "record"
        document["record"] = _record_document(record)
        if header[ATTRIBUTES] & TRANSACTIONAL_MASK:
            document["transaction"] = self._transaction(header, document["log"])

    def _producer(self, header: Header) -> Document:
        sequence = header[BASE_SEQUENCE]
        if sequence >= 0:
            sequence = (sequence + self._offset - header[BASE_OFFSET]) % _SEQUENCES
        return {
            "producer_id": header[PRODUCER_ID],
            "producer_epoch": header[PRODUCER_EPOCH],
            "sequence": sequence if sequence >= 0 else None,
        }

    # ------------------------------------------------------------------------- the transaction

    def _marker_document(self, header: Header, record: RecordView) -> Document:
        outcome, coordinator_epoch = _read_marker(record)
        return {
            "transactional_id": self._name_of(header[PRODUCER_ID]),
            "outcome": outcome,
            "marker_offset": record.offset,
            "coordinator_epoch": coordinator_epoch,
        }

    def _transaction(self, header: Header, log: Document) -> Document:
        marker = self._marker_behind(header, log["high_watermark"])
        if self._offset < log["last_stable_offset"]:
            outcome = "aborted" if self._is_listed_as_aborted(header) else "committed"
        elif marker is not None:
            outcome = marker[1]
        else:
            outcome = "open" if self._is_open(header) else "ended"
        return {
            "transactional_id": self._name_of(header[PRODUCER_ID]),
            "outcome": outcome,
            "marker_offset": None if marker is None else marker[0],
            "coordinator_epoch": None if marker is None else marker[2],
        }

    def _is_open(self, header: Header) -> bool:
        return any(
            one.producer_id == header[PRODUCER_ID]
            and one.transaction_start_offset is not None
            and one.transaction_start_offset <= header[BASE_OFFSET]
            for one in self._admin.describe_producers([self._place])[self._place]
        )

    def _is_listed_as_aborted(self, header: Header) -> bool:
        seen = self._admin.fetch_batches(
            self._place, self._offset, committed=True, max_bytes=_ONE_BATCH
        )
        return any(
            producer_id == header[PRODUCER_ID] and first <= header[BASE_OFFSET]
            for producer_id, first in seen.aborted
        )

    def _marker_behind(self, header: Header, end: int) -> tuple[int, str, int] | None:
        """(offset, outcome, coordinator epoch) of the first marker of the same producer."""
        position, read_bytes = _last(header) + 1, 0
        while position < end and read_bytes < SCAN_BYTES_MAX:
            batches = self._admin.fetch_batches(self._place, position).batches
            if not batches:
                return None
            for batch in batches:
                found = read_header(batch)
                if found[PRODUCER_ID] == header[PRODUCER_ID] and found[ATTRIBUTES] & CONTROL_MASK:
                    (record,) = records_of(batch, UNPACKED_BYTES_MAX)
                    return (record.offset, *_read_marker(record))
                read_bytes += len(batch)
                position = max(position, _last(found) + 1)
        return None

    def _open_before(self, stable: int) -> list[Document]:
        """Transactions that keep the last stable offset where it is."""
        producers = self._admin.describe_producers([self._place])[self._place]
        return [
            {
                "producer_id": one.producer_id,
                "start_offset": one.transaction_start_offset,
                "transactional_id": self._name_of(one.producer_id),
            }
            for one in producers
            if one.transaction_start_offset is not None and one.transaction_start_offset <= stable
        ]

    def _name_of(self, producer_id: int) -> str | None:
        """None where no coordinator knows it any more: expired, forgotten, or given a new id."""
        if producer_id not in self._names:
            listed = self._admin.list_transactions(producer_ids=[producer_id])
            self._names[producer_id] = listed[0].transactional_id if listed else None
        return self._names[producer_id]


def _is_visible(document: Document) -> bool:
    if document["status"] != "record":
        return False
    transaction = document["transaction"]
    return document["offset"] < document["log"]["last_stable_offset"] and (
        transaction is None or transaction["outcome"] == "committed"
    )


def _last(header: Header) -> int:
    return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]


def _read_marker(record: RecordView) -> tuple[str, int]:
    _, kind = _CONTROL_KEY.unpack_from(record.key or bytes(_CONTROL_KEY.size))
    epoch = -1
    if record.value is not None and len(record.value) >= _CONTROL_VALUE.size:
        _, epoch = _CONTROL_VALUE.unpack_from(record.value)
    return _OUTCOMES.get(kind, "unknown"), epoch


def _batch_document(batch: bytes, header: Header) -> Document:
    codec = header[ATTRIBUTES] & CODEC_MASK
    packed = memoryview(batch)[HEADER_SIZE:]
    plain_bytes = len(packed)
    if codec != NONE and packed:
        plain_bytes = len(decompress(codec, packed, UNPACKED_BYTES_MAX))
    by_broker = bool(header[ATTRIBUTES] & LOG_APPEND_TIME_MASK)
    return {
        "base_offset": header[BASE_OFFSET],
        "last_offset": _last(header),
        "record_count": header[RECORD_COUNT],
        "leader_epoch": header[LEADER_EPOCH],
        "size_bytes": len(batch),
        "uncompressed_bytes": HEADER_SIZE + plain_bytes,
        "codec": CODEC_NAMES[codec],
        "timestamp_type": "LogAppendTime" if by_broker else "CreateTime",
        "transactional": bool(header[ATTRIBUTES] & TRANSACTIONAL_MASK),
    }


def _record_document(record: RecordView) -> Document:
    return {
        "timestamp_ms": record.timestamp,
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "key_bytes": None if record.key is None else len(record.key),
        "value_bytes": None if record.value is None else len(record.value),
        "headers": len(record.headers),
    }
