"""Client: producer, consumer and admin for any Kafka-compatible cluster.

The plain API is here, that for asyncio in `ottla.client.aio`. Names load on their first use, so
that importing this costs little: asyncio, numpy and pyarrow come in only where they are needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.admin_values import NewTopic
    from ottla.client.consumer import Consumer
    from ottla.client.consumer_offsets import ListedOffset
    from ottla.client.delivery import RecordMetadata
    from ottla.client.fetch_records import Record
    from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata
    from ottla.client.process_loop import process
    from ottla.client.processing import Output
    from ottla.client.producer import Delivery, Producer
    from ottla.client.transactions import PreparedTransaction

__all__ = [
    "Admin",
    "Consumer",
    "Delivery",
    "GroupMetadata",
    "ListedOffset",
    "NewTopic",
    "OffsetAndMetadata",
    "Output",
    "PreparedTransaction",
    "Producer",
    "Record",
    "RecordMetadata",
    "process",
]

_HOMES = {
    "Admin": "ottla.client.admin",
    "Consumer": "ottla.client.consumer",
    "Delivery": "ottla.client.producer",
    "GroupMetadata": "ottla.client.group_metadata",
    "ListedOffset": "ottla.client.consumer_offsets",
    "NewTopic": "ottla.client.admin_values",
    "OffsetAndMetadata": "ottla.client.group_metadata",
    "Output": "ottla.client.processing",
    "PreparedTransaction": "ottla.client.transactions",
    "Producer": "ottla.client.producer",
    "Record": "ottla.client.fetch_records",
    "RecordMetadata": "ottla.client.delivery",
    "process": "ottla.client.process_loop",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ottla.client' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
