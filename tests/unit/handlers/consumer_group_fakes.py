"""A broker for the handlers of consumer groups: one real shard, or a code instead of it."""

from __future__ import annotations

from types import ModuleType
from typing import Any, cast

from ottla.base.deferred import Deferred
from ottla.handlers.context import Context, Services
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from sim.groups.hosted_shard import HostedShard, a_cluster
from tests.unit.handlers.fakes import plain


class OneShard:
    """Every group is here, except those with a code of their own."""

    def __init__(self) -> None:
        self.hosted = HostedShard(image=a_cluster(t=2))
        self.codes: dict[str, int] = {}

    def host_of(self, group_id: str) -> Any:
        return self.codes.get(group_id, self.hosted.host)


class GroupServices:
    def __init__(self, *, features: dict[str, int] | None = None, protocols: str = "") -> None:
        self.groups = OneShard()
        settings = {"group.coordinator.rebalance.protocols": protocols} if protocols else {}
        self.config = BrokerConfig({"node.id": "1", **settings})
        self.image = MetadataImage(features=features or {})

    def ask(self, module: ModuleType, version: int, **fields: Any) -> dict[str, Any]:
        """The answer as a client of this version reads it, as plain values."""
        body = encode_request(module.API_KEY, version, fields)
        request = decode_request(module.API_KEY, version, body)
        context = Context(
            cast(Services, self), version, "test", "PLAINTEXT", 1, client_address="10.1.2.3"
        )
        outcome = module.handle(context, request)
        answer = outcome.result() if isinstance(outcome, Deferred) else outcome
        encoded = encode_response(module.API_KEY, version, {"throttle_time_ms": 0, **answer})
        return cast(dict[str, Any], plain(decode_response(module.API_KEY, version, encoded)))
