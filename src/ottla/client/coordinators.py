"""Which broker coordinates a group or a transactional id: asked once, asked again when told so.

A coordinator's answer NOT_COORDINATOR (or a lost connection) is the caller's to notice: it calls
`forget` and asks again.
"""

from __future__ import annotations

from ottla.client.cluster import Broker
from ottla.client.core import Core
from ottla.client.errors import error_for
from ottla.protocol.api_keys import FIND_COORDINATOR
from ottla.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, NONE, NOT_COORDINATOR

GROUP = 0
TRANSACTION = 1

# Whoever makes an id for each piece of its work asks once for each, and never again.
KNOWN_MAX = 1_000


class Coordinators:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[tuple[int, str], int] = {}

    async def find(self, kind: int, key: str) -> int:
        """The node id. One attempt: errors are raised, those that may pass as retriable."""
        node_id = self._known.get((kind, key))
        if node_id is not None and node_id in self._core.cluster.brokers:
            return node_id
        core = self._core
        fields = {"key": key, "key_type": kind, "coordinator_keys": [key]}
        version_min = 1 if kind == TRANSACTION else None
        answer = await core.request(
            core.least_loaded(), FIND_COORDINATOR, fields, version_min=version_min
        )
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code != NONE:
            raise error_for(found.error_code, f"coordinator of {key}", found.error_message)
        node_id = int(found.node_id)
        known = core.cluster.brokers.get(node_id)
        if known is None or (known.host, known.port) != (found.host, found.port):
            core.cluster.brokers[node_id] = Broker(node_id, found.host, found.port)
        self._known[kind, key] = node_id
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]  # the one that has been known longest
        return node_id

    def forget(self, kind: int, key: str) -> None:
        self._known.pop((kind, key), None)

    @staticmethod
    def is_moved(code: int) -> bool:
        return code in (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE)
