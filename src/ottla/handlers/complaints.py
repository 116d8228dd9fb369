"""One line in the log for each peer and minute that asks for what it must not have.

A flood of nonsense must not become a flood of lines; who is refused is told by a code each time.
"""

from __future__ import annotations

import json
import logging

from ottla.handlers.context import Context

log = logging.getLogger("ottla.handlers")

INTERVAL_MS = 60_000
PEERS_MAX = 1_000

_complained_ms: dict[tuple[int, str], int] = {}


def complain(context: Context, reason: str) -> None:
    now_ms = context.services.clock.monotonic_ms()
    key = (context.services.broker_id, context.client_address)
    last_ms = _complained_ms.get(key)
    if last_ms is not None and 0 <= now_ms - last_ms < INTERVAL_MS:
        return
    if len(_complained_ms) >= PEERS_MAX:
        _complained_ms.clear()
    _complained_ms[key] = now_ms
    log.warning("refused %s: %s", context.client_address, json.dumps(reason))
