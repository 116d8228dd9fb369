"""Who leads instead, told with a refusal (KIP-951): the client need not ask for metadata first."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.handlers.context import Context
from ottla.protocol.produce import NodeEndpoint


def leader_of(context: Context, topic: str, index: int) -> tuple[int, int] | None:
    """Broker and epoch, by the newest image. While nobody leads the broker is -1."""
    state = context.services.image.partition(topic, index)
    return None if state is None else (state.leader, state.leader_epoch)


def endpoints_of(context: Context, leaders: Iterable[int]) -> list[NodeEndpoint]:
    """Where the client that asks can reach them."""
    services = context.services
    endpoints = []
    for broker_id in dict.fromkeys(leaders):
        endpoint = services.advertised_endpoint(broker_id, context.listener_name)
        broker = services.image.brokers.get(broker_id)
        if endpoint is not None and broker is not None:
            endpoints.append((broker_id, *endpoint, broker.rack))
    return endpoints
