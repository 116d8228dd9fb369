"""The producer's settings: names and defaults of Kafka's ProducerConfig of 4.x."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, Self

from ottla.base.errors import ConfigError
from ottla.client.settings import (
    INT_MAX,
    LONG_MAX,
    ClientSettings,
    at_least,
    ineffective,
    one_of,
)

Partitioner = Callable[[str, bytes | None, bytes | None, list[int]], int]
"""(topic, key, value, partitions that exist) -> partition: `partitioner.class` as a function."""

ROUND_ROBIN = "RoundRobinPartitioner"
_IN_FLIGHT_IDEMPOTENT_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    acks: str = one_of("all", "all", "-1", "0", "1")
    batch_size: int = at_least(16_384, 0)
    buffer_memory: int = at_least(33_554_432, 0, LONG_MAX)
    compression_type: str = one_of("none", "none", "gzip", "snappy", "lz4", "zstd")
    compression_gzip_level: int = at_least(-1, -1, 9)
    compression_lz4_level: int = at_least(9, 1, 17)
    compression_zstd_level: int = at_least(3, -131_072, 22)
    delivery_timeout_ms: int = at_least(120_000, 0, INT_MAX)
    enable_idempotence: bool | None = None
    key_serializer: Callable[[Any], bytes | None] | None = None
    linger_ms: int = at_least(5, 0, LONG_MAX)
    max_block_ms: int = at_least(60_000, 0, LONG_MAX)
    max_in_flight_requests_per_connection: int = at_least(5, 1)
    max_request_size: int = at_least(1_048_576, 0)
    metadata_max_idle_ms: int = at_least(300_000, 5_000, LONG_MAX)
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = at_least(0, 0)
    partitioner_class: Partitioner | str | None = None
    partitioner_ignore_keys: bool = False
    receive_buffer_bytes: int = at_least(32_768, -1)
    retries: int = at_least(INT_MAX, 0, INT_MAX)
    transaction_timeout_ms: int = at_least(60_000, 0)
    transaction_two_phase_commit_enable: bool = False
    transactional_id: str | None = None
    value_serializer: Callable[[Any], bytes | None] | None = None
    config_providers: str = ineffective("")

    @property
    def idempotent(self) -> bool:
        """On unless it is switched off or something else makes it impossible (KIP-679)."""
        return self.enable_idempotence is not False and self._hindrance() is None

    @property
    def acks_code(self) -> int:
        return -1 if self.acks == "all" else int(self.acks)

    def completed(self, given: Set[str]) -> Self:
        """A longer patience with one request alone makes that with a record longer, too."""
        least_ms = self._delivery_least_ms()
        if "delivery_timeout_ms" in given or self.delivery_timeout_ms >= least_ms:
            return self
        return dataclasses.replace(self, delivery_timeout_ms=least_ms)

    def _delivery_least_ms(self) -> int:
        return min(self.linger_ms + self.request_timeout_ms, INT_MAX)

    def validate(self) -> None:
        ClientSettings.validate(self)  # no super(): slots make a new class of this one
        if self.delivery_timeout_ms < self._delivery_least_ms():
            raise ConfigError(
                "delivery.timeout.ms must be at least linger.ms + request.timeout.ms"
                f" ({self._delivery_least_ms()})"
            )
        hindrance = self._hindrance()
        if self.enable_idempotence and hindrance is not None:
            raise ConfigError(f"enable.idempotence=true needs {hindrance}")
        if self.transactional_id is not None:
            if self.transactional_id == "":
                raise ConfigError("transactional.id must not be empty")
            if self.enable_idempotence is False or hindrance is not None:
                raise ConfigError(
                    f"transactional.id needs {hindrance or 'enable.idempotence=true'}"
                )
        elif self.transaction_two_phase_commit_enable:
            raise ConfigError("transaction.two.phase.commit.enable needs a transactional.id")
        own = self.partitioner_class
        if own is not None and not callable(own) and not self.round_robin:
            raise ConfigError(f"partitioner.class={own!r}: {ROUND_ROBIN} or a function")
        if self.compression_gzip_level == 0:
            raise ConfigError("compression.gzip.level=0: 1 to 9, or -1 for the usual, is needed")

    @property
    def round_robin(self) -> bool:
        named = self.partitioner_class
        return isinstance(named, str) and named.rpartition(".")[2] == ROUND_ROBIN

    def _hindrance(self) -> str | None:
        if self.acks_code != -1:
            return "acks=all"
        if self.retries == 0:
            return "retries above 0"
        if self.max_in_flight_requests_per_connection > _IN_FLIGHT_IDEMPOTENT_MAX:
            return "max.in.flight.requests.per.connection of at most 5"
        return None
