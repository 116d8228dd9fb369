"""Whom consumers read from (KIP-392): the selectors of Kafka that are known here, by name."""

from __future__ import annotations

from ottla.metadata.configs.broker_config import BrokerConfig

SELECTOR = "replica.selector.class"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
OF_LEADERS = "org.apache.kafka.common.replica.LeaderSelector"
KNOWN = frozenset({"", OF_LEADERS, RACK_AWARE})


def reads_from_followers(config: BrokerConfig) -> bool:
    return config.get_optional_str(SELECTOR) == RACK_AWARE
