"""DescribeCluster 0-2: the brokers, the controller and the cluster's id.

v1 says whether brokers or controllers are meant; there are no endpoints of controllers here. v2
tells fenced brokers when they are asked for.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers import authorized_operations
from ottla.handlers.context import Context
from ottla.protocol.error_codes import (
    MISMATCHED_ENDPOINT_TYPE,
    NONE,
    UNSUPPORTED_ENDPOINT_TYPE,
    message_of,
)

API_KEY = 60
VERSIONS = (0, 2)

BROKERS = 1
CONTROLLERS = 2

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields:
    if request.endpoint_type == CONTROLLERS:
        return _refused(MISMATCHED_ENDPOINT_TYPE)
    if request.endpoint_type != BROKERS:
        return _refused(UNSUPPORTED_ENDPOINT_TYPE)
    image = context.services.image
    operations = authorized_operations.NOT_ASKED_FOR
    if request.include_cluster_authorized_operations:
        operations = authorized_operations.ON_CLUSTER
    return {
        "throttle_time_ms": 0,
        "error_code": NONE,
        "error_message": None,
        "endpoint_type": BROKERS,
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": _brokers(context, include_fenced=request.include_fenced_brokers),
        "cluster_authorized_operations": operations,
    }


def _refused(code: int) -> Fields:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": message_of(code),
        "endpoint_type": BROKERS,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": [],
        "cluster_authorized_operations": authorized_operations.NOT_ASKED_FOR,
    }


def _brokers(context: Context, *, include_fenced: bool) -> list[Fields]:
    brokers = []
    for broker in context.services.image.brokers.values():
        endpoint = context.services.advertised_endpoint(broker.broker_id, context.listener_name)
        if endpoint is None or (broker.fenced and not include_fenced):
            continue
        brokers.append(
            {
                "broker_id": broker.broker_id,
                "host": endpoint[0],
                "port": endpoint[1],
                "rack": broker.rack,
                "is_fenced": broker.fenced,
            }
        )
    return brokers
