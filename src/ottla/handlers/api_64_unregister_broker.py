"""UnregisterBroker 0: forgets a broker that is dead and will not come back (`kafka-cluster
unregister`). Its replicas stay where the assignments have them, until they are moved."""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, ask_controller
from ottla.metadata.controller import decide_unregister
from ottla.protocol.error_codes import NONE

API_KEY = 64
VERSIONS = (0, 0)


def handle(context: Context, request: Any) -> Deferred[Fields]:
    return ask_controller(
        context,
        lambda image: decide_unregister(image, request.broker_id),
        lambda _: _answer(NONE, None),
        _answer,
    )


def _answer(code: int, message: str | None) -> Fields:
    return {"throttle_time_ms": 0, "error_code": code, "error_message": message}
