"""The consumer's settings: names and defaults of Kafka's ConsumerConfig of 4.x."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from ottla.base.errors import ConfigError
from ottla.client.assignors.registry import assignors_named
from ottla.client.settings import INT_MAX, ClientSettings, at_least, ineffective, kafka_name, one_of

# What has no meaning in a group protocol and is refused there, as by Java's client; and where the
# same is set instead.
_FOREIGN = {
    "consumer": {
        "heartbeat_interval_ms": "the group's consumer.heartbeat.interval.ms on the broker",
        "partition_assignment_strategy": "group.remote.assignor",
        "session_timeout_ms": "the group's consumer.session.timeout.ms on the broker",
    },
    "classic": {"group_remote_assignor": "partition.assignment.strategy"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    allow_auto_create_topics: bool = True
    auto_commit_interval_ms: int = at_least(5_000, 0)
    auto_offset_reset: str = "latest"
    check_crcs: bool = True
    default_api_timeout_ms: int = at_least(60_000, 0)
    enable_auto_commit: bool = True
    exclude_internal_topics: bool = True
    fetch_max_bytes: int = at_least(52_428_800, 0)
    fetch_max_wait_ms: int = at_least(500, 0)
    fetch_min_bytes: int = at_least(1, 0)
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str = one_of("classic", "classic", "consumer")
    group_remote_assignor: str | None = None
    heartbeat_interval_ms: int = at_least(3_000, 0)
    isolation_level: str = one_of("read_uncommitted", "read_uncommitted", "read_committed")
    key_deserializer: Callable[[Any], Any] | None = None
    max_partition_fetch_bytes: int = at_least(1_048_576, 0)
    max_poll_interval_ms: int = at_least(300_000, 1)
    max_poll_records: int = at_least(500, 1, INT_MAX)
    partition_assignment_strategy: tuple[str, ...] = ("range", "cooperative-sticky")
    # Java's default, 64 KiB, makes sixteen reads of what the system takes in two: 0.47 µs of CPU a
    # record of 100 bytes instead of 0.35. -1 leaves it to the system.
    receive_buffer_bytes: int = at_least(-1, -1)
    session_timeout_ms: int = at_least(45_000, 0)
    value_deserializer: Callable[[Any], Any] | None = None
    config_providers: str = ineffective("")

    def validate(self) -> None:
        ClientSettings.validate(self)  # no super(): slots make a new class of this one
        if self.group_id == "":
            raise ConfigError("group.id is empty: leave it out, or name the group")
        if self.group_instance_id == "":
            raise ConfigError("group.instance.id is empty: leave it out, or name the instance")
        if self.group_protocol == "classic":
            assignors_named(self.partition_assignment_strategy)
            if self.heartbeat_interval_ms >= self.session_timeout_ms:
                raise ConfigError(
                    f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below"
                    f" session.timeout.ms ({self.session_timeout_ms}); a third of it is usual"
                )

    def check_given(self, given: Set[str]) -> None:
        for name, instead in _FOREIGN[self.group_protocol].items():
            if name in given:
                raise ConfigError(
                    f"{kafka_name(name)} cannot be set with group.protocol={self.group_protocol};"
                    f" there it is {instead}"
                )
