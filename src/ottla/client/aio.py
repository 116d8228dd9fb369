"""The client for asyncio: the same names with `Async` in front, over the same core."""

from __future__ import annotations

from ottla.client.aio_admin import AsyncAdmin
from ottla.client.aio_consumer import AsyncConsumer
from ottla.client.aio_process_loop import process
from ottla.client.aio_producer import AsyncDelivery, AsyncProducer

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncDelivery", "AsyncProducer", "process"]
