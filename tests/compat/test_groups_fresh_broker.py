"""Goal: the first groups of a fresh broker wait for the offsets topic; nobody is sent away.
Method: many raw connections ask for a coordinator and join at once, before the topic is there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from ottla.testing import Broker
from tests.compat.wire import Wire

CLIENTS = 8


def join(bootstrap: str, number: int) -> set[int]:
    """The codes that one client sees: of FindCoordinator, and of its JoinGroup right after."""
    find: Any = import_module("kio.schema.find_coordinator.v2.request")
    group: Any = import_module("kio.schema.heartbeat.v2.request")
    with Wire(bootstrap) as wire:
        found = wire.call(find.FindCoordinatorRequest(key=f"group-{number}", key_type=0))
        beat = group.HeartbeatRequest(
            group_id=f"group-{number}", generation_id=1, member_id="nobody"
        )
        return {int(found.error_code), int(wire.call(beat).error_code)}


def test_a_coordinator_that_was_named_is_responsible() -> None:
    not_coordinator = 16
    with Broker() as broker, ThreadPoolExecutor(CLIENTS) as clients:
        seen = clients.map(lambda number: join(broker.bootstrap, number), range(CLIENTS))
        assert not_coordinator not in set().union(*seen)
