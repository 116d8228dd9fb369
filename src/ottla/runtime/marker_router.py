"""Brings the markers of decided transactions to the leaders of their partitions, wherever they are.

What is led here is written here; what is led elsewhere goes there by WriteTxnMarkers, many in one
request. Never tries again: the coordinator does, for as long as it is one, and then knows better
who leads. Where an answer was lost, the marker may be there: the leader finds that out itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from ottla.base.deferred import Deferred
from ottla.base.ids import TopicPartition
from ottla.coordinator.shard import Transactional
from ottla.metadata.image import MetadataImage
from ottla.protocol.api_keys import WRITE_TXN_MARKERS
from ottla.protocol.error_codes import (
    NETWORK_EXCEPTION,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.runtime.marker_writer import MarkerWriter
from ottla.runtime.peer_batches import PeerBatches
from ottla.runtime.peers import Peers

VERSION = 2

REVOKING_EPOCH = -1
"""Of a marker that ends nothing: the leader shall only ask again before it appends."""


class _Sent(NamedTuple):
    place: TopicPartition
    marker: Transactional
    client_version: int
    answer: Deferred[int]


class MarkerRouter:
    def __init__(
        self,
        broker_id: int,
        image: Callable[[], MetadataImage],
        local: MarkerWriter,
        peers: Peers,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._local = local
        self._remote = PeerBatches(peers, _MarkerPacking())

    def write(
        self,
        topic: str,
        index: int,
        marker: Transactional,
        *,
        client_version: int = 0,
        is_repeated: bool = False,
    ) -> Deferred[int]:
        """0 when the marker is there for good, else an error code."""
        leader = self._leader_of(topic, index)
        if leader == self._broker_id:
            return self._local.write(
                topic, index, marker, client_version=client_version, is_repeated=is_repeated
            )
        return self._send(leader, (topic, index), marker, client_version)

    def revoke(self, topic: str, index: int, producer_id: int) -> Deferred[int]:
        """0 when the partition asks again before it appends anything for this producer."""
        leader = self._leader_of(topic, index)
        if leader == self._broker_id:
            return self._local.revoke(topic, index, producer_id)
        marker = Transactional(producer_id, REVOKING_EPOCH, committed=False)
        return self._send(leader, (topic, index), marker, 0)

    def _leader_of(self, topic: str, index: int) -> int | None:
        state = self._image().partition(topic, index)
        return None if state is None else state.leader

    def _send(
        self, leader: int | None, place: TopicPartition, marker: Transactional, client_version: int
    ) -> Deferred[int]:
        answer: Deferred[int] = Deferred()
        if leader is None:
            answer.resolve(UNKNOWN_TOPIC_OR_PARTITION)
        elif leader < 0:
            answer.resolve(NOT_LEADER_OR_FOLLOWER)
        else:
            self._remote.put(leader, _Sent(place, marker, client_version, answer))
        return answer


class _MarkerPacking:
    api_key = WRITE_TXN_MARKERS
    version = VERSION
    purpose = "markers"

    def key_of(self, sent: _Sent) -> Hashable:
        """The answer names producers and partitions, and nothing else."""
        return sent.marker.producer_id, sent.place

    def pack(self, items: list[_Sent]) -> dict[str, Any]:
        together: dict[tuple[Transactional, int], dict[str, list[int]]] = {}
        for sent in items:
            topics = together.setdefault((sent.marker, sent.client_version), {})
            topics.setdefault(sent.place[0], []).append(sent.place[1])
        return {
            "markers": [
                {
                    "producer_id": marker.producer_id,
                    "producer_epoch": marker.producer_epoch,
                    "transaction_result": bool(marker.committed),
                    "topics": [
                        {"name": name, "partition_indexes": indexes}
                        for name, indexes in topics.items()
                    ],
                    "coordinator_epoch": marker.coordinator_epoch,
                    "transaction_version": client_version,
                }
                for (marker, client_version), topics in together.items()
            ]
        }

    def on_answer(self, items: list[_Sent], answer: Any) -> None:
        codes = {
            (marker.producer_id, (topic.name, one.partition_index)): one.error_code
            for marker in answer.markers
            for topic in marker.topics
            for one in topic.partitions
        }
        for sent in items:
            code = codes.get((sent.marker.producer_id, sent.place), NETWORK_EXCEPTION)
            # Whether a topic is gone is for the coordinator to know: a leader that has not heard
            # of its partition yet would leave the transaction open in it for ever.
            is_unknown = code == UNKNOWN_TOPIC_OR_PARTITION
            sent.answer.resolve(NOT_LEADER_OR_FOLLOWER if is_unknown else code)

    def on_lost(self, items: list[_Sent]) -> None:
        for sent in items:
            sent.answer.resolve(NETWORK_EXCEPTION)
