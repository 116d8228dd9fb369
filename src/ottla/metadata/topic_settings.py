"""The settings of topics that decide about their partitions: a topic's own, else the brokers'.

They are read off the image that a decision is made on and nothing else: two brokers must come to
the same, whatever stands in the file that each was started with.
"""

from __future__ import annotations

from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.effective import effective_value
from ottla.metadata.image import MetadataImage, TopicImage

MIN_IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class TopicSettings:
    """`config` has what `image.broker_configs` says on top of the broker's own file."""

    __slots__ = ("config",)

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config

    def min_in_sync(self, topic: TopicImage) -> int:
        value = effective_value(self.config, topic.configs, MIN_IN_SYNC)
        return value if isinstance(value, int) else 1

    def is_unclean_allowed(self, topic: TopicImage) -> bool:
        return effective_value(self.config, topic.configs, UNCLEAN) is True


def settings_of(image: MetadataImage, broker_id: int, config: BrokerConfig) -> TopicSettings:
    """With what is set for the cluster and for this broker in `image`."""
    dynamic = image.broker_configs
    cluster_wide, per_broker = dynamic.get("", {}), dynamic.get(str(broker_id), {})
    if config.cluster_wide == cluster_wide and config.per_broker == per_broker:
        return TopicSettings(config)
    return TopicSettings(config.with_dynamic(cluster_wide, per_broker))
