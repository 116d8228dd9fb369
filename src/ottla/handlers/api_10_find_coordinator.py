"""FindCoordinator 0-6: which broker a group or a transactional id has to talk to.

v1 tells what kind of coordinator is meant, v4 and later ask for many keys. Asking makes the
internal topic of that kind if it is not there; the answer waits for it, so that no client has to
come again.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.shard import Fields
from ottla.handlers.context import Context, GroupDoor, TransactionDoor
from ottla.handlers.group_requests import Answer
from ottla.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_REQUEST,
    NONE,
    message_of,
    name_of,
)

API_KEY = 10
VERSIONS = (0, 6)

GROUP = 0
TRANSACTION = 1
MANY_KEYS_FROM = 4


def handle(context: Context, request: Any) -> Answer:
    many = context.api_version >= MANY_KEYS_FROM
    keys = request.coordinator_keys if many else [request.key]
    services = context.services
    if request.key_type == GROUP:
        door: GroupDoor | TransactionDoor = services.groups
    elif request.key_type == TRANSACTION:
        door = services.transactions
    else:
        return _response(many, [_refused(key, INVALID_REQUEST) for key in keys])
    ready = door.ensure_topic()
    if ready.done:
        return _response(many, _found(context, door, keys, ready))
    answer: Deferred[Fields] = Deferred()
    ready.when_done(
        lambda outcome: answer.resolve(_response(many, _found(context, door, keys, outcome)))
    )
    return answer


def _found(
    context: Context, door: GroupDoor | TransactionDoor, keys: list[str], ready: Deferred[None]
) -> list[Fields]:
    try:
        ready.result()
    except ProtocolError as refused:
        return [_refused(key, refused.code) for key in keys]
    return [_coordinator(context, door, key) for key in keys]


def _coordinator(context: Context, door: GroupDoor | TransactionDoor, key: str) -> Fields:
    services = context.services
    leader = door.leader_of(key)
    endpoint = services.advertised_endpoint(leader, context.listener_name)
    if endpoint is None:
        return _refused(key, COORDINATOR_NOT_AVAILABLE)
    host, port = endpoint
    return {
        "key": key,
        "node_id": leader,
        "host": host,
        "port": port,
        "error_code": NONE,
        "error_message": "",
    }


def _refused(key: str, code: int) -> Fields:
    return {
        "key": key,
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": code,
        "error_message": message_of(code) if code == INVALID_REQUEST else "",
    }


def _response(many: bool, coordinators: list[Fields]) -> Fields:
    if many:
        return {"coordinators": coordinators}
    # Of one coordinator Kafka's message is never empty.
    code = coordinators[0]["error_code"]
    return {**coordinators[0], "error_message": message_of(code) if code else name_of(NONE)}
