"""Records for the tests of this room."""

from __future__ import annotations

from ottla.cli.model import Headers, ReceivedRecord


def a_record(
    value: bytes | None = b"v",
    *,
    key: bytes | None = b"k",
    topic: str = "orders",
    partition: int = 2,
    offset: int = 41,
    headers: Headers = (("a", b"1"), ("b", None), ("a", b"2")),
    timestamp_ms: int = 1_700_000_000_123,
) -> ReceivedRecord:
    return ReceivedRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        timestamp_type="CreateTime",
        key=key,
        value=value,
        headers=headers,
        leader_epoch=7,
    )
