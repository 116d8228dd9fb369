"""min.insync.replicas and who is eligible to lead (KIP-966): what a change of it has to look after.

Who is eligible has everything that was committed, because nothing was since the in-sync set became
smaller than min.insync.replicas. When the setting is lowered, that may end at once: so whoever is
eligible only by the old number loses it in the very commit that brings the new one.

The number is the cluster's (`bootstrap`), for all brokers must agree on it: it can be changed for
all of them or for a topic, but not for one broker, and not be taken away. Kafka says so in the same
words, to a node that is alone as well, and to who replaces all settings of the cluster without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.refusals import InvalidConfig
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.store import Operation
from ottla.metadata.topic_settings import MIN_IN_SYNC, TopicSettings
from ottla.protocol.error_codes import INVALID_CONFIG


def check_min_in_sync(
    named: Collection[str], before: Mapping[str, str], after: Mapping[str, str], *, per_broker: bool
) -> None:
    """`named`: the settings that are asked to be changed. Raises InvalidConfig."""
    # A node that was alone could have one of its own, in earlier versions; it may go.
    is_taken_back = MIN_IN_SYNC in before and MIN_IN_SYNC not in after
    if per_broker and MIN_IN_SYNC in named and not is_taken_back:
        raise InvalidConfig(
            INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if not per_broker and is_taken_back:
        raise InvalidConfig(
            INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )


@dataclass(slots=True)
class MinInSyncAfter:
    """The settings as they will be; `operations` is what follows from them for partitions."""

    image: MetadataImage
    config: BrokerConfig
    topics: dict[str, Mapping[str, str]] = field(default_factory=dict)
    cluster_wide: Mapping[str, str] | None = None

    def operations(self) -> list[Operation]:
        if not self.topics and self.cluster_wide is None:
            return []
        before, after = TopicSettings(self.config), self._settings_after()
        writes = PartitionWrites(self.image)
        for topic, configs in self._touched():
            future = TopicImage(topic.name, topic.topic_id, topic.partitions, configs)
            in_sync_min = after.min_in_sync(future)
            if in_sync_min >= before.min_in_sync(topic):
                continue
            for index, state in topic.partitions.items():
                if state.eligible:
                    may_lead = self.image.may_lead_in(topic, index)
                    change = PartitionChange(state, may_lead, in_sync_min)
                    writes.add(topic, index, change.built())
        return writes.operations()

    def _touched(self) -> Iterator[tuple[TopicImage, Mapping[str, str]]]:
        """Topics whose number may be another one, with the settings they will have."""
        if self.cluster_wide is None:
            for name, configs in self.topics.items():
                yield self.image.topics[name], configs
        else:
            for name, topic in self.image.topics.items():
                yield topic, self.topics.get(name, topic.configs)

    def _settings_after(self) -> TopicSettings:
        if self.cluster_wide is None:
            return TopicSettings(self.config)
        return TopicSettings(self.config.with_dynamic(self.cluster_wide, self.config.per_broker))
