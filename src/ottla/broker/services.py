"""What handlers may ask of this broker, put together from its parts."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError, StorageError
from ottla.base.ports import Clock, Pool, Timers
from ottla.handlers import registry
from ottla.handlers.context import ControllerDoor, GroupDoor, PartitionTable, TransactionDoor
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import decide_producer_id_block
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.partition import Partition
from ottla.replication.replica_session import ReplicaSessions
from ottla.runtime.flusher import Flusher
from ottla.runtime.handler_pool import HandlerPool
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.metadata_driver import MetadataDriver


class ProducerIds:
    """Producer ids out of blocks that the controller hands out; who asks meanwhile waits."""

    def __init__(self, controller: MetadataDriver, broker_id: int) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._next_id = 0
        self._left = 0
        self._waiting: deque[Deferred[int]] = deque()

    def take(self) -> Deferred[int]:
        deferred: Deferred[int] = Deferred()
        self._waiting.append(deferred)
        if self._left:
            self._serve()
        elif len(self._waiting) == 1:
            self._fetch_block()
        return deferred

    def _fetch_block(self) -> None:
        block = self._controller.submit(
            lambda image: decide_producer_id_block(image, self._broker_id)
        )
        block.when_done(self._on_block)

    def _on_block(self, outcome: Deferred[tuple[int, int]]) -> None:
        error = outcome.error()
        if error is None:
            self._next_id, self._left = outcome.result()
            self._serve()
            return
        if isinstance(error, ProtocolError):
            # What Kafka answers while there are no ids to be had; clients ask again.
            error = ProtocolError(COORDINATOR_LOAD_IN_PROGRESS, error.message)
        waiting, self._waiting = self._waiting, deque()
        for deferred in waiting:
            deferred.fail(error)

    def _serve(self) -> None:
        while self._waiting and self._left:
            producer_id = self._next_id
            self._next_id += 1
            self._left -= 1
            self._waiting.popleft().resolve(producer_id)
        if self._waiting:
            self._fetch_block()


class BrokerServices:
    def __init__(
        self,
        *,
        broker_id: int,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        pool: HandlerPool,
        partitions: LocalReplicas,
        controller: MetadataDriver,
        fetch_sessions: FetchSessions,
        replica_sessions: ReplicaSessions,
        inter_broker_listener: str,
        soon: Callable[[Callable[[], None]], object],
        flusher: Flusher,
        new_uuid: Callable[[], uuid.UUID],
        suspect: Callable[[Partition, int], None],
        save_log_starts: Callable[[str], Deferred[None]],
    ) -> None:
        self.broker_id = broker_id
        self.config = config
        self.clock = clock
        self.timers = timers
        self.pool: Pool = pool
        self.partitions: PartitionTable = partitions
        self.controller: ControllerDoor = controller
        self._driver = controller
        self._replicas = partitions
        self.fetch_sessions = fetch_sessions
        self.replica_sessions = replica_sessions
        self.inter_broker_listener = inter_broker_listener
        self.soon = soon
        self._flusher = flusher
        self._producer_ids = ProducerIds(controller, broker_id)
        self.new_uuid = new_uuid
        self.suspect = suspect
        self.save_log_starts = save_log_starts
        self.groups: GroupDoor
        self.transactions: TransactionDoor

    @property
    def image(self) -> MetadataImage:
        return self._driver.image

    def request_flush(self, partition: Partition) -> Deferred[None]:
        log = partition.log
        if log is None:
            failed: Deferred[None] = Deferred()
            failed.fail(StorageError(partition.log_dir, "flush"))
            return failed
        return self._flusher.flush(log)

    def storage_failed(self, failure: StorageError) -> None:
        self._replicas.storage_failed(failure)

    def new_producer_id(self) -> Deferred[int]:
        return self._producer_ids.take()

    def advertised_endpoint(self, broker_id: int, listener_name: str) -> tuple[str, int] | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener_name)

    def supported_apis(self, listener_name: str) -> list[tuple[int, int, int]]:
        return registry.advertised_apis(
            two_phase_commit=self.config.get_bool("transaction.two.phase.commit.enable")
        )
