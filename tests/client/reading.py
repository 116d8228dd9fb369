"""Reads a topic back without any of the client's consumer: what is in the log, record by record."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from ottla.client.clock import chance
from ottla.client.core import Core
from ottla.client.errors import error_for
from ottla.client.plain_shell import PlainShell
from ottla.client.settings import AdminSettings, read_settings
from ottla.protocol.api_keys import FETCH, LIST_OFFSETS
from ottla.protocol.error_codes import NONE
from ottla.records.batch_header import ATTRIBUTES, BATCH_LENGTH, CONTROL_MASK, read_header
from ottla.records.batch_view import records_of

PATIENCE_MS = 60_000
PAUSE_MS = 20
LATEST = -1


class Stored(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    batch: int  # the offset at which its batch begins


def stored(
    bootstrap: str, topic: str, *, committed: bool = False, decided: bool = False
) -> list[Stored]:
    """All records of a topic, partition by partition; aborted ones only where not `committed`.

    `decided`: the committed ones, once no transaction is open there. Brokers answer whoever ends
    one before its markers are written, and what is behind it is not to be seen until then.
    """
    core = Core(
        read_settings(AdminSettings, {"bootstrap.servers": bootstrap}, {}),
        chance,
        auto_create=False,
    )
    shell = PlainShell(core, "reader")
    try:
        return shell.call(_read(core, topic, committed or decided, decided), PATIENCE_MS)
    finally:
        shell.close()


def values(
    bootstrap: str, topic: str, *, committed: bool = False, decided: bool = False
) -> list[bytes | None]:
    found = stored(bootstrap, topic, committed=committed, decided=decided)
    return [record.value for record in found]


async def _read(core: Core, topic: str, committed: bool, decided: bool) -> list[Stored]:
    info = await core.metadata.topic(topic, core.now_ms + PATIENCE_MS)
    found: list[Stored] = []
    for partition in info.partitions:
        place = (topic, partition.partition)
        if decided:
            await _until_decided(core, *place)
        found += await core.retry(
            functools.partial(_read_partition, core, *place, committed),
            core.now_ms + PATIENCE_MS,
            "reading back",
        )
    return found


async def _until_decided(core: Core, topic: str, index: int) -> None:
    async def open_records() -> int:
        leader = core.cluster.leader_of(topic, index)
        end = await _end_offset(core, leader, topic, index, committed=False)
        return end - await _end_offset(core, leader, topic, index, committed=True)

    deadline_ms = core.now_ms + PATIENCE_MS
    while await core.retry(open_records, deadline_ms, "reading back") > 0:
        assert core.now_ms < deadline_ms, f"a transaction stays open in {topic}-{index}"
        await core.sleep_until(core.now_ms + PAUSE_MS)


async def _read_partition(core: Core, topic: str, index: int, committed: bool) -> list[Stored]:
    leader = core.cluster.leader_of(topic, index)
    end = await _end_offset(core, leader, topic, index, committed)
    found: list[Stored] = []
    aborted: list[Any] = []
    offset = 0
    while offset < end:
        fields = {
            "replica_id": -1,
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 25,
            "isolation_level": 1 if committed else 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": index,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 25,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await core.request(leader, FETCH, fields, version_max=12)
        one = answer.responses[0].partitions[0]
        _raise_for(core, one.error_code)
        aborted = list(one.aborted_transactions or [])
        begin = offset
        for batch in _batches(one.records or b""):
            records = _records(batch, index, aborted)
            found += [record for record in records if record.offset >= begin]
            header = read_header(batch)
            offset = max(offset, header[0] + header[6] + 1)
    return found


def _batches(data: bytes) -> list[bytes]:
    batches = []
    position = 0
    while position + 12 <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if position + size > len(data):
            break
        batches.append(bytes(data[position : position + size]))
        assert read_header(batches[-1])[BATCH_LENGTH] + 12 == size
        position += size
    return batches


def _records(batch: bytes, partition: int, aborted: list[Any]) -> list[Stored]:
    header = read_header(batch)
    if header[ATTRIBUTES] & CONTROL_MASK:
        _end_of_transaction(header[9], aborted, batch)
        return []
    if header[ATTRIBUTES] & 0x10 and any(
        one.producer_id == header[9] and one.first_offset <= header[0] for one in aborted
    ):
        return []
    return [
        Stored(partition, one.offset, one.timestamp, one.key, one.value, one.headers, header[0])
        for one in records_of(batch, 1 << 30)
    ]


def _end_of_transaction(producer_id: int, aborted: list[Any], batch: bytes) -> None:
    """An abort marker ends the oldest aborted transaction of its producer."""
    for one in sorted(aborted, key=lambda each: int(each.first_offset)):
        if one.producer_id == producer_id and one.first_offset < read_header(batch)[0]:
            aborted.remove(one)
            return


async def _end_offset(core: Core, leader: int, topic: str, index: int, committed: bool) -> int:
    fields = {
        "replica_id": -1,
        "isolation_level": 1 if committed else 0,
        "timeout_ms": 30_000,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": LATEST}
                ],
            }
        ],
    }
    answer = await core.request(leader, LIST_OFFSETS, fields)
    found = answer.topics[0].partitions[0]
    _raise_for(core, found.error_code)
    return int(found.offset)


def _raise_for(core: Core, code: int) -> None:
    """A leader that has not heard of its partition yet is asked again."""
    if code != NONE:
        core.metadata.request_update()
        raise error_for(code, "reading back")
