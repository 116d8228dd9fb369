"""Services whose transactions are those of a `TransactionWorld`, over a given image."""

from __future__ import annotations

from typing import Any

from tests.unit.coordinator.transaction_world import TransactionWorld
from tests.unit.handlers.read_fakes import FakeServices, an_image


def transactional_services(*topics: Any) -> tuple[FakeServices, TransactionWorld]:
    services = FakeServices(an_image(*topics))
    world = TransactionWorld()
    world.clock = services.clock  # type: ignore[assignment]
    world.shard = world.new_shard()
    services.transactions = world  # type: ignore[attr-defined]
    return services, world
