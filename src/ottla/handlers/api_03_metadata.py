"""Metadata 0-13: the brokers, and for each topic its partitions and who leads them.

v0 [] means all topics; from v1 null does, and [] none. v2 cluster id; v4 lets the client forbid
that topics are made; v5 offline replicas; v6 LISTENER_NOT_FOUND; v7 leader epochs; v8 authorized
operations; v9 flexible; v10 topic ids, which may be asked by from v12; v13 an error for the whole.

A topic that does not exist and may be made is ordered from the controller; this answer still says
UNKNOWN_TOPIC_OR_PARTITION, and the client asks again, as with Kafka. The answer is joined from
encoded pieces (metadata_pieces); an answer that refuses the whole request is not.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from ottla.handlers import authorized_operations
from ottla.handlers.auto_create import create_missing
from ottla.handlers.context import Context
from ottla.handlers.metadata_pieces import NOTHING, MetadataPieces
from ottla.handlers.partition_description import (
    Endpoints,
    code_without_topic,
    describe_partition,
    lost_by,
    reachable_brokers,
)
from ottla.handlers.reply import Reply
from ottla.metadata import topic_names
from ottla.metadata.image import TopicImage
from ottla.protocol.error_codes import (
    INVALID_REQUEST,
    LEADER_NOT_AVAILABLE,
    LISTENER_NOT_FOUND,
    NONE,
    REPLICA_NOT_AVAILABLE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.primitives import NULL_UUID

API_KEY = 3
VERSIONS = (0, 13)

# Listeners, versions and choices of one process, brokers inside a test included. A memo: what it
# holds is a pure function of objects that it compares by identity.
KEPT_PIECES_MAX = 256
_kept: dict[tuple[Any, ...], MetadataPieces] = {}

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Reply | Fields:
    version = context.api_version
    topics = request.topics
    by_id = version >= 10 and _names_an_id(topics)
    if _is_invalid(version, topics, by_id):
        return _refused(topics)
    answer = _Answer(context, request)
    if topics is None or (version == 0 and not topics):
        answer.add_all()
    elif by_id:
        answer.add_by_id({topic.topic_id for topic in topics} - {NULL_UUID})
    else:
        missing = answer.add_by_name(dict.fromkeys(topic.name for topic in topics))
        if missing and request.allow_auto_topic_creation:
            create_missing(context, missing)
    body = answer.pieces.join(answer.topics)
    return Reply([body], len(body))


def _names_an_id(topics: list[Any] | None) -> bool:
    return topics is not None and any(topic.topic_id != NULL_UUID for topic in topics)


def _is_invalid(version: int, topics: list[Any] | None, by_id: bool) -> bool:
    """v10 and v11 have the fields to ask by id, but no broker ever answered to them."""
    if by_id:
        return version < 12
    return topics is not None and any(topic.name is None for topic in topics)


def _refused(topics: list[Any]) -> Fields:
    """As Kafka refuses a whole request: each of its topics is told, and nothing else."""
    return {
        **NOTHING,
        "topics": [_failed(topic.name or "", topic.topic_id, INVALID_REQUEST) for topic in topics],
        "error_code": INVALID_REQUEST,
    }


def _failed(
    name: str | None,
    topic_id: uuid.UUID,
    code: int,
    operations: int = authorized_operations.NOT_ASKED_FOR,
) -> Fields:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": operations,
    }


class _Answer:
    """The pieces of one answer: topics that are there, then those that are not."""

    __slots__ = ("_context", "_image", "_operations", "_reachable", "pieces", "topics")

    def __init__(self, context: Context, request: Any) -> None:
        self._context = context
        self._image = context.services.image
        self._operations = authorized_operations.NOT_ASKED_FOR
        if request.include_topic_authorized_operations:
            self._operations = authorized_operations.ON_TOPIC
        self._reachable: Endpoints | None = None
        self.pieces = self._pieces(request)
        self.topics: list[bytes] = []

    def _pieces(self, request: Any) -> MetadataPieces:
        context, image = self._context, self._image
        with_cluster = request.include_cluster_authorized_operations
        key = (
            image.cluster_id,
            context.services.broker_id,
            context.listener_name,
            context.api_version,
            self._operations,
            with_cluster,
        )
        pieces = _kept.get(key)
        if pieces is None or not pieces.matches(image):
            if len(_kept) >= KEPT_PIECES_MAX:
                _kept.clear()
            surroundings = self._surroundings(with_cluster)
            pieces = _kept[key] = MetadataPieces(context.api_version, image, surroundings)
        pieces.forget_deleted(image)
        return pieces

    def _surroundings(self, with_cluster: bool) -> Fields:
        operations = authorized_operations
        return {
            "throttle_time_ms": 0,
            "brokers": [
                {
                    "node_id": broker_id,
                    "host": host,
                    "port": port,
                    "rack": self._image.brokers[broker_id].rack,
                }
                for broker_id, (host, port) in self._reachable_brokers().items()
            ],
            "cluster_id": self._image.cluster_id,
            "controller_id": self._image.controller_id,
            "cluster_authorized_operations": (
                operations.ON_CLUSTER if with_cluster else operations.NOT_ASKED_FOR
            ),
            "error_code": NONE,
        }

    def _reachable_brokers(self) -> Endpoints:
        if self._reachable is None:
            self._reachable = reachable_brokers(self._context)
        return self._reachable

    def add_all(self) -> None:
        for topic in self._image.topics.values():
            self.topics.append(self._piece(topic))

    def add_by_name(self, names: Iterable[str]) -> list[str]:
        """The names of topics that do not exist and could."""
        missing = []
        failed = []
        for name in names:
            topic = self._image.topics.get(name)
            if topic is not None:
                self.topics.append(self._piece(topic))
                continue
            code = code_without_topic(name)
            if code == UNKNOWN_TOPIC_OR_PARTITION:
                missing.append(name)
            told = _failed(name, NULL_UUID, code, self._operations)
            told["is_internal"] = name in topic_names.INTERNAL
            failed.append(self.pieces.encode(told))
        self.topics += failed
        return missing

    def add_by_id(self, topic_ids: set[uuid.UUID]) -> None:
        for topic_id in topic_ids:
            topic = self._image.topic_by_id(topic_id)
            if topic is not None:
                self.topics.append(self._piece(topic))
            else:
                # Kafka tells no operations here: it does not know whose they would be.
                self.topics.append(self.pieces.encode(_failed(None, topic_id, UNKNOWN_TOPIC_ID)))

    def _piece(self, topic: TopicImage) -> bytes:
        if self._context.services.partitions.lost(topic.name):
            # The image may not know of it yet, so that nothing would tell when it is over.
            return self.pieces.encode(self._describe(topic))
        return self.pieces.kept(topic) or self.pieces.keep(topic, self._describe(topic))

    def _describe(self, topic: TopicImage) -> Fields:
        version, reachable = self._context.api_version, self._reachable_brokers()
        partitions = []
        for index, state in topic.partitions.items():
            lost = lost_by(self._context, topic, index)
            described = describe_partition(index, state, self._image, reachable, lost)
            partitions.append(_for_version(version, described))
        return {
            "error_code": NONE,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in topic_names.INTERNAL,
            "partitions": partitions,
            "topic_authorized_operations": self._operations,
        }


def _for_version(version: int, partition: Fields) -> Fields:
    if version >= 6:
        return partition
    if partition["error_code"] == LISTENER_NOT_FOUND:
        partition["error_code"] = LEADER_NOT_AVAILABLE
    if version == 0 and partition["offline_replicas"]:
        # v0 has no place for offline replicas: they are left out, and the client is told so.
        offline = partition["offline_replicas"]
        for nodes in ("replica_nodes", "isr_nodes"):
            partition[nodes] = [node for node in partition[nodes] if node not in offline]
        if partition["error_code"] == NONE:
            partition["error_code"] = REPLICA_NOT_AVAILABLE
    return partition
