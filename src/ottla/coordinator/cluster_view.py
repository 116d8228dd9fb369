"""The little that coordinators know of the cluster's metadata; the metadata image satisfies it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Protocol


class PartitionView(Protocol):
    @property
    def replicas(self) -> tuple[int, ...]: ...


class TopicView(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> uuid.UUID: ...
    @property
    def partitions(self) -> Mapping[int, PartitionView]: ...


class BrokerView(Protocol):
    @property
    def rack(self) -> str | None: ...


class ClusterView(Protocol):
    @property
    def topics(self) -> Mapping[str, TopicView]: ...
    @property
    def topic_names_by_id(self) -> Mapping[uuid.UUID, str]: ...
    @property
    def brokers(self) -> Mapping[int, BrokerView]: ...
    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]: ...
