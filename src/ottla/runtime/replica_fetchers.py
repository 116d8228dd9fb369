"""What this broker copies, and from whom: one fetcher for each leader that it follows.

Told by `LocalReplicas` who follows whom; makes and ends fetchers as leaders come and go, and holds
back what a throttle says.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.replication.follower_fetch import FetchLimits, FollowerFetch
from ottla.replication.partition import Partition
from ottla.replication.throttle import Throttle
from ottla.runtime.replica_fetcher import FetcherServices, ReplicaFetcher


class ReplicaFetchers:
    def __init__(
        self,
        broker_id: int,
        services: FetcherServices,
        config: BrokerConfig,
        throttle: Throttle,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._services = services
        self._limits = fetch_limits(config)
        self._throttle = throttle
        self._broker_epoch = broker_epoch
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[Partition, int] = {}
        self._is_closed = False

    def follow(self, partition: Partition) -> None:
        """Copy it from its leader, from now on in its present epoch."""
        if self._is_closed:
            return
        leader_id = partition.leader_id
        if self._leaders.get(partition, leader_id) != leader_id:
            self.unfollow(partition)
        self._leaders[partition] = leader_id
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = ReplicaFetcher(leader_id, self._new_fetch(), self._services)
            self._fetchers[leader_id] = fetcher
        fetcher.add(partition)

    def unfollow(self, partition: Partition) -> None:
        leader_id = self._leaders.pop(partition, None)
        if leader_id is None:
            return
        fetcher = self._fetchers[leader_id]
        fetcher.remove(partition)
        if not len(fetcher.fetch):
            del self._fetchers[leader_id]
            fetcher.close()

    def on_registered(self) -> None:
        """This broker may have begun another life: the old one's fetches are refused."""
        broker_epoch = self._broker_epoch()
        for fetcher in self._fetchers.values():
            # Each by itself: who was made a moment ago may ask in the new life already.
            if fetcher.fetch.broker_epoch != broker_epoch:
                fetcher.start_over(self._new_fetch())

    def configure(self, config: BrokerConfig) -> None:
        limits = fetch_limits(config)
        for fetcher in self._fetchers.values():
            fetcher.fetch.limits = limits
        self._limits = limits

    def on_throttle_changed(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.on_throttle_changed()

    def close(self) -> None:
        self._is_closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leaders.clear()

    def count(self) -> int:
        return len(self._fetchers)

    def lag_max(self) -> int:
        return max((partition.lag() for partition in self._leaders), default=0)

    def _new_fetch(self) -> FollowerFetch:
        return FollowerFetch(self._broker_id, self._broker_epoch(), self._limits, self._pause_ms)

    def _pause_ms(self, partition: Partition, stored: int) -> int:
        throttle = self._throttle
        if not throttle.is_on or self._broker_id in partition.in_sync:
            return 0
        if not throttle.applies(partition.topic, partition.partition, self._broker_id):
            return 0
        now_ms = self._services.clock.monotonic_ms()
        throttle.spend(stored, now_ms)
        return throttle.wait_ms(now_ms)


def fetch_limits(config: BrokerConfig) -> FetchLimits:
    return FetchLimits(
        wait_ms_max=config.get_int("replica.fetch.wait.max.ms"),
        bytes_min=config.get_int("replica.fetch.min.bytes"),
        bytes_max=config.get_int("replica.fetch.response.max.bytes"),
        partition_bytes_max=config.get_int("replica.fetch.max.bytes"),
        backoff_ms=config.get_int("replica.fetch.backoff.ms"),
    )
