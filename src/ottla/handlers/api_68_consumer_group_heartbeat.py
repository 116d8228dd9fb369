"""ConsumerGroupHeartbeat 0-1: all that a member of a consumer group says and hears (KIP-848).

It joins with epoch 0 and leaves with -1; in between it tells what has changed and is told what it
may read. v1 wants member ids that the client has made, and knows regular expressions.
"""

from __future__ import annotations

from typing import Any

from ottla.coordinator.consumer_groups import heartbeat_refusal
from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context
from ottla.handlers.group_requests import Answer, caller_of, decide
from ottla.metadata.features import GROUP_VERSION, finalized_features
from ottla.protocol.error_codes import UNSUPPORTED_VERSION, message_of

API_KEY = 68
VERSIONS = (0, 1)

CONSUMER = "consumer"
PROTOCOLS_CONFIG = "group.coordinator.rebalance.protocols"


def handle(context: Context, request: Any) -> Answer:
    if not is_enabled(context):
        return _refused(UNSUPPORTED_VERSION)
    caller = caller_of(context)
    return decide(
        context, request.group_id, lambda shard: shard.consumer_heartbeat(request, caller), _refused
    )


def is_enabled(context: Context) -> bool:
    """The protocol can be switched off, for one broker or for the cluster."""
    services = context.services
    if finalized_features(services.image).get(GROUP_VERSION, 0) < 1:
        return False
    return CONSUMER in services.config.get_list(PROTOCOLS_CONFIG)


def _refused(code: int) -> Fields:
    return heartbeat_refusal(code, message_of(code))
