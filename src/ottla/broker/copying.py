"""Replication put together: who copies from this broker, what it copies, and who is in sync."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from ottla.base.ports import Clock, Random
from ottla.broker.listening import Listening
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.replica_selectors import reads_from_followers
from ottla.metadata.configs.values import parse_list
from ottla.metadata.image import MetadataImage
from ottla.net.peer_client import PeerClient
from ottla.protocol.error_codes import NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID
from ottla.replication.partition import Partition
from ottla.replication.replica_session import ReplicaSessions, Surroundings, no_suspicion
from ottla.replication.throttle import Throttle
from ottla.runtime.doubted_leaders import DoubtedLeaders
from ottla.runtime.flusher import Flusher
from ottla.runtime.in_sync_keeper import InSyncKeeper
from ottla.runtime.in_sync_writer import InSyncWriter
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_upkeep import LogUpkeep
from ottla.runtime.metadata_driver import MetadataDriver
from ottla.runtime.offline_replicas import OfflineReplicas
from ottla.runtime.peers import Address, Peers
from ottla.runtime.replica_fetcher import FetcherServices
from ottla.runtime.replica_fetchers import ReplicaFetchers
from ottla.runtime.timers import LoopTimers

LEADER_RATE = "leader.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_RATE = "follower.replication.throttled.rate"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RECEIVE_BUFFER = "replica.socket.receive.buffer.bytes"


@dataclass(slots=True)
class Foundation:
    """The parts that replication stands on."""

    broker_id: int
    clock: Clock
    timers: LoopTimers
    random: Random
    post: Callable[[Callable[[], None]], None]
    listening: Listening
    replicas: LocalReplicas
    upkeep: LogUpkeep
    flusher: Flusher
    metadata: MetadataDriver
    writer: InSyncWriter
    config: Callable[[], BrokerConfig]
    suspect: Callable[[Partition, int], None] = no_suspicion


class Copying:
    def __init__(self, on: Foundation) -> None:
        self._on = on
        self._leader_throttle = Throttle()
        self._follower_throttle = Throttle()
        self.peers = Peers(self._image, on.listening.inter_broker_name, self._connect)
        self.keeper = InSyncKeeper(
            partitions=on.replicas,
            writer=on.writer,
            clock=on.clock,
            timers=on.timers,
            config=on.config,
            image=self._image,
        )
        self.doubted = DoubtedLeaders(
            metadata=on.metadata,
            clock=on.clock,
            timers=on.timers,
            propose=self.keeper.propose,
        )
        self.sessions = ReplicaSessions(
            Surroundings(
                broker_id=on.broker_id,
                find=self._find,
                may_be_member=self.keeper.may_be_member,
                propose=self.keeper.propose,
                storage_failed=on.replicas.storage_failed,
                throttle=self._leader_throttle,
                doubt=self.doubted.doubt,
                suspect=on.suspect,
            ),
            self._new_session_id,
        )
        self.fetchers = ReplicaFetchers(
            on.broker_id,
            FetcherServices(
                clock=on.clock,
                timers=on.timers,
                peers=self.peers,
                post=on.post,
                save_both_ends=on.upkeep.save_both_ends,
                flush=on.flusher.flush,
                storage_failed=on.replicas.storage_failed,
            ),
            on.config(),
            self._follower_throttle,
            self._broker_epoch,
        )
        self.offline = OfflineReplicas(on.broker_id, on.metadata, on.timers, on.replicas.all_lost)
        on.replicas.copying = self.fetchers
        on.replicas.on_offline = self.offline.tell

    def start(self) -> None:
        self.keeper.start()

    def close(self) -> None:
        self.offline.close()
        self.doubted.close()
        self.keeper.stop()
        self.fetchers.close()
        self.peers.close()

    # -- following the image ----------------------------------------------------------------

    def configure(self, config: BrokerConfig, image: MetadataImage) -> None:
        self.fetchers.configure(config)
        now_ms = self._on.clock.monotonic_ms()
        self._leader_throttle.set_rate(config.get_optional_int(LEADER_RATE), now_ms)
        if self._follower_throttle.set_rate(config.get_optional_int(FOLLOWER_RATE), now_ms):
            self.fetchers.on_throttle_changed()
        self.sessions.set_eager(reads_from_followers(config))
        self._throttle_topics(image)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """This broker has acted on `new`."""
        if new.topics is not old.topics:
            self._throttle_topics(new)
        if new.brokers is not old.brokers:
            self.fetchers.on_registered()
            for broker_id in old.brokers:
                if not new.is_live(broker_id):
                    self.sessions.end(broker_id)
        self.keeper.on_image(old, new)
        self.offline.on_image(new)

    def _throttle_topics(self, image: MetadataImage) -> None:
        self._leader_throttle.set_replicas(_listed(image, LEADER_REPLICAS))
        if self._follower_throttle.set_replicas(_listed(image, FOLLOWER_REPLICAS)):
            self.fetchers.on_throttle_changed()

    # -- what the parts ask -----------------------------------------------------------------

    def _image(self) -> MetadataImage:
        return self._on.metadata.image

    def _broker_epoch(self) -> int:
        broker = self._image().brokers.get(self._on.broker_id)
        return -1 if broker is None else broker.epoch

    def _new_session_id(self) -> int:
        return int.from_bytes(self._on.random.random_bytes(4), "big") >> 1

    def _find(self, topic_id: uuid.UUID, index: int) -> Partition | int:
        name = self._image().topic_names_by_id.get(topic_id)
        if name is None:
            return UNKNOWN_TOPIC_ID
        return self._on.replicas.find(name, index) or NOT_LEADER_OR_FOLLOWER

    def _connect(self, address: Address, purpose: str) -> PeerClient:
        on, config = self._on, self._on.config()
        return PeerClient(
            loop=on.listening.processor.loop,
            timers=on.timers,
            now_ms=on.listening.processor.now_ms,
            address=address,
            client_id=f"broker-{on.broker_id}-{purpose}",
            timeout_ms=lambda: on.config().get_int("replica.socket.timeout.ms"),
            receive_buffer_bytes=(
                config.get_int(RECEIVE_BUFFER) if config.is_set(RECEIVE_BUFFER) else -1
            ),
        )


def _listed(image: MetadataImage, setting: str) -> dict[str, tuple[str, ...]]:
    return {
        topic.name: parse_list(topic.configs[setting])
        for topic in image.topics.values()
        if topic.configs.get(setting)
    }
