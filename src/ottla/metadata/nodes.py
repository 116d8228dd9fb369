"""What stands in each node: Kafka's JSON documents, written and read.

Everything read here may be damaged or come from somebody else's hands. A reader takes exactly what
it needs, checks its type, and raises DamagedNode with the path and the reason; nothing else leaves
this module, no KeyError and no half-read value.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.base.errors import OttlaError

JsonObject = dict[str, Any]

# json.loads would first guess the encoding of every node, which costs as much as reading it.
_decode_json = json.JSONDecoder().decode
_INTS = {int}
_NOTHING: JsonObject = {}
_NOBODY: Mapping[uuid.UUID, frozenset[int]] = {}


class DamagedNode(OttlaError):
    """A node whose content cannot be taken. The image stays what it was."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"node {path} is damaged: {reason}")
        self.path = path
        self.reason = reason


class TopicContent(NamedTuple):
    topic_id: uuid.UUID
    replicas: dict[int, tuple[int, ...]]
    adding: dict[int, tuple[int, ...]]
    removing: dict[int, tuple[int, ...]]


class StateContent(NamedTuple):
    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...]
    last_known: tuple[int, ...]
    unclean_epoch: int = -1


class BrokerContent(NamedTuple):
    endpoints: dict[str, tuple[str, int]]
    security_protocols: dict[str, str]
    rack: str | None
    fenced: bool = False
    shutting_down: bool = False
    unclean: bool = False
    offline: Mapping[uuid.UUID, frozenset[int]] = _NOBODY


def encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def decode(path: str, content: bytes) -> JsonObject:
    try:
        value = _decode_json(content.decode())
    except (ValueError, RecursionError) as cause:
        raise DamagedNode(path, "it is not JSON") from cause
    if not isinstance(value, dict):
        raise DamagedNode(path, "it is not a JSON object")
    return value


def topic(
    topic_id: uuid.UUID,
    replicas: Mapping[int, Iterable[int]],
    adding: Mapping[int, Iterable[int]],
    removing: Mapping[int, Iterable[int]],
) -> bytes:
    return encode(
        {
            "version": 3,
            "topic_id": encode_uuid(topic_id),
            "partitions": _partition_lists(replicas),
            "adding_replicas": _partition_lists(adding),
            "removing_replicas": _partition_lists(removing),
        }
    )


def read_topic(path: str, content: bytes) -> TopicContent:
    fields = decode(path, content)
    replicas = _read_partition_lists(path, fields, "partitions")
    if sorted(replicas) != list(range(len(replicas))) or not replicas:
        raise DamagedNode(path, "partitions are not numbered from 0 without a gap")
    for index, ids in replicas.items():
        if not ids or len(set(ids)) != len(ids) or min(ids) < 0:
            raise DamagedNode(path, f"partition {index} has no proper list of replicas")
    adding = _read_partition_lists(path, fields, "adding_replicas")
    removing = _read_partition_lists(path, fields, "removing_replicas")
    for index, ids in (*adding.items(), *removing.items()):
        if not set(ids) <= set(replicas.get(index, ())):
            raise DamagedNode(path, f"partition {index} moves replicas that it does not have")
    return TopicContent(_read_uuid(path, fields, "topic_id"), replicas, adding, removing)


def partition_state(controller_epoch: int, state: StateContent) -> bytes:
    fields: JsonObject = {
        "controller_epoch": controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.in_sync,
    }
    if state.eligible:
        fields["eligible"] = state.eligible
    if state.last_known:
        fields["last_known"] = state.last_known
    if state.unclean_epoch != -1:
        fields["unclean_epoch"] = state.unclean_epoch
    return encode(fields)


def read_partition_state(path: str, content: bytes) -> StateContent:
    fields = decode(path, content)
    return StateContent(
        _read_int(path, fields, "leader"),
        _read_int(path, fields, "leader_epoch"),
        _read_ids(path, fields.get("isr"), "isr"),
        _read_ids(path, fields.get("eligible", ()), "eligible"),
        _read_ids(path, fields.get("last_known", ()), "last_known"),
        _read_int(path, fields, "unclean_epoch") if "unclean_epoch" in fields else -1,
    )


def broker_content(
    endpoints: Mapping[str, tuple[str, int]],
    security_protocols: Mapping[str, str],
    rack: str | None,
    timestamp_ms: int = 0,
    *,
    fenced: bool = False,
    shutting_down: bool = False,
    unclean: bool = False,
    offline: Mapping[uuid.UUID, frozenset[int]] = _NOBODY,
) -> bytes:
    """Endpoints are by listener name; the first is the one that the oldest clients are told."""
    host, port = next(iter(endpoints.values()), (None, -1))
    fields: JsonObject = {
        "version": 5,
        "host": host,
        "port": port,
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "endpoints": [_endpoint_text(name, *address) for name, address in endpoints.items()],
        "listener_security_protocol_map": dict(security_protocols),
        "features": {},
    }
    if rack is not None:
        fields["rack"] = rack
    flags = (("fenced", fenced), ("shutting_down", shutting_down), ("unclean", unclean))
    fields.update((name, True) for name, is_so in flags if is_so)
    if offline:
        fields["offline_replicas"] = {
            encode_uuid(topic_id): sorted(indexes) for topic_id, indexes in offline.items()
        }
    return encode(fields)


def read_broker(path: str, content: bytes) -> BrokerContent:
    fields = decode(path, content)
    texts = fields.get("endpoints")
    if not isinstance(texts, list):
        raise DamagedNode(path, "endpoints is not a list")
    protocols = _read_texts(path, fields.get("listener_security_protocol_map", {}), "protocol map")
    rack = fields.get("rack")
    if rack is not None and not isinstance(rack, str):
        raise DamagedNode(path, "rack is not a text")
    endpoints = dict(_read_endpoint(path, text) for text in texts)
    return BrokerContent(
        endpoints,
        protocols,
        rack,
        _read_flag(path, fields, "fenced"),
        _read_flag(path, fields, "shutting_down"),
        _read_flag(path, fields, "unclean"),
        _read_offline(path, fields),
    )


def _read_offline(path: str, fields: JsonObject) -> Mapping[uuid.UUID, frozenset[int]]:
    lists = fields.get("offline_replicas", _NOTHING)
    if not isinstance(lists, dict):
        raise DamagedNode(path, "offline_replicas is not an object")
    try:
        return {
            decode_uuid(topic_id): frozenset(_read_ids(path, indexes, "offline_replicas"))
            for topic_id, indexes in lists.items()
        }
    except ValueError as cause:
        raise DamagedNode(path, "offline_replicas has a topic that is no id") from cause


def configs(values: Mapping[str, str]) -> bytes:
    return encode({"version": 1, "config": dict(values)})


def read_configs(path: str, content: bytes) -> dict[str, str]:
    return _read_texts(path, decode(path, content).get("config"), "config")


def cluster_id(identifier: str) -> bytes:
    return encode({"version": "1", "id": identifier})


def read_cluster_id(path: str, content: bytes) -> str:
    return _read_text(path, decode(path, content), "id")


def controller(broker_id: int) -> bytes:
    return encode({"version": 1, "brokerid": broker_id, "timestamp": "0"})


def read_controller(path: str, content: bytes) -> int:
    return _read_int(path, decode(path, content), "brokerid")


def controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def read_controller_epoch(path: str, content: bytes) -> int:
    try:
        return int(content)
    except ValueError as cause:
        raise DamagedNode(path, "it is not a number") from cause


def features(levels: Mapping[str, int]) -> bytes:
    finalized = {
        name: {"min_version_level": level, "max_version_level": level}
        for name, level in levels.items()
    }
    return encode({"version": 2, "status": 1, "features": finalized})


def read_features(path: str, content: bytes) -> dict[str, int]:
    finalized = decode(path, content).get("features")
    if not isinstance(finalized, dict):
        raise DamagedNode(path, "features is not an object")
    levels = {}
    for name, range_of_levels in finalized.items():
        if not isinstance(range_of_levels, dict):
            raise DamagedNode(path, f"feature {name} is not an object")
        levels[name] = _read_int(path, range_of_levels, "max_version_level")
    return levels


def producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    return encode(
        {
            "version": 1,
            "broker": broker_id,
            "block_start": str(first),
            "block_end": str(last),
        }
    )


def read_producer_id_block_end(path: str, content: bytes) -> int:
    text = _read_text(path, decode(path, content), "block_end")
    if not is_number(text):
        raise DamagedNode(path, "block_end is not a number")
    return int(text)


def is_number(text: str) -> bool:
    """Digits only, and no more than 64 bits need: Python refuses to read thousands of them."""
    return text.isascii() and text.isdigit() and len(text) < 20


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka writes ids in URL-safe base64 without the padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> uuid.UUID:
    """Raises ValueError."""
    padded = text + "=" * (-len(text) % 4)
    try:
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except binascii.Error as cause:
        raise ValueError(str(cause)) from cause
    return uuid.UUID(bytes=raw)


def _partition_lists(lists: Mapping[int, Iterable[int]]) -> dict[str, list[int]]:
    return {str(index): list(ids) for index, ids in lists.items()}


def _read_partition_lists(path: str, fields: JsonObject, name: str) -> dict[int, tuple[int, ...]]:
    lists = fields.get(name, _NOTHING)
    if not isinstance(lists, dict):
        raise DamagedNode(path, f"{name} is not an object")
    result = {}
    for index, ids in lists.items():
        if not is_number(index):
            raise DamagedNode(path, f"{name} has a partition called {index!r}")
        result[int(index)] = _read_ids(path, ids, name)
    return result


def _read_ids(path: str, ids: Any, name: str) -> tuple[int, ...]:
    if type(ids) not in (list, tuple) or not set(map(type, ids)) <= _INTS:
        raise DamagedNode(path, f"{name} is not a list of numbers")
    return tuple(ids)


def _read_int(path: str, fields: JsonObject, name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise DamagedNode(path, f"{name} is not a number")
    return value


def _read_flag(path: str, fields: JsonObject, name: str) -> bool:
    value = fields.get(name, False)
    if type(value) is not bool:
        raise DamagedNode(path, f"{name} is neither true nor false")
    return value


def _read_text(path: str, fields: JsonObject, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise DamagedNode(path, f"{name} is not a text")
    return value


def _read_texts(path: str, values: Any, name: str) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise DamagedNode(path, f"{name} is not an object of texts")
    return values


def _read_uuid(path: str, fields: JsonObject, name: str) -> uuid.UUID:
    try:
        return decode_uuid(_read_text(path, fields, name))
    except ValueError as cause:
        raise DamagedNode(path, f"{name} is not an id") from cause


def _endpoint_text(listener: str, host: str, port: int) -> str:
    return f"{listener}://[{host}]:{port}" if ":" in host else f"{listener}://{host}:{port}"


def _read_endpoint(path: str, text: Any) -> tuple[str, tuple[str, int]]:
    if isinstance(text, str):
        listener, separator, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if separator and colon and is_number(port):
            return listener, (host.removeprefix("[").removesuffix("]"), int(port))
    raise DamagedNode(path, f"{text!r} is not an endpoint")
