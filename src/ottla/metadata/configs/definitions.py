"""Every setting there is: `BROKER` and `TOPIC`, and how the two belong together.

Owns which names mean the same thing and which broker setting is the default of which topic setting.
Facts of Kafka 4.3.1, checked against a recorded table by the tests.
"""

from __future__ import annotations

import re

from ottla.metadata.configs import (
    broker_cluster,
    broker_general,
    broker_groups,
    broker_log,
    broker_network,
    broker_ottla,
    broker_remote,
    broker_security,
    broker_transactions,
    broker_zookeeper,
    topic_definitions,
)
from ottla.metadata.configs.definition import ConfigDefinition, Definitions

BROKER = Definitions(
    "broker",
    (
        *broker_general.DEFINITIONS,
        *broker_network.DEFINITIONS,
        *broker_log.DEFINITIONS,
        *broker_groups.DEFINITIONS,
        *broker_transactions.DEFINITIONS,
        *broker_cluster.DEFINITIONS,
        *broker_security.DEFINITIONS,
        *broker_remote.DEFINITIONS,
        *broker_ottla.DEFINITIONS,
        *broker_zookeeper.DEFINITIONS,
    ),
)
BROKER.set_synonyms("log.retention.ms", "log.retention.minutes", "log.retention.hours")
BROKER.set_synonyms("log.roll.ms", "log.roll.hours")
BROKER.set_synonyms("log.roll.jitter.ms", "log.roll.jitter.hours")
# One way only: the scheduler's interval is a setting of its own as well.
BROKER.by_name["log.flush.interval.ms"].synonyms = (
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
)

TOPIC = Definitions("topic", topic_definitions.DEFINITIONS)

BROKER_DEFAULT_OF_TOPIC = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

# Where our default is not Kafka's: the value that Kafka has, and why ours is another.
_ONE_NODE = "one node without a cluster has one replica to give; in a cluster it is Kafka's"
_FLOOD = "a flood of connections must not take the broker down"
_OWN_PLACE = "Ottla starts without a configuration file"
DIFFERENT_DEFAULTS: dict[str, tuple[str | None, str]] = {
    "broker.id": ("-1", _OWN_PLACE),
    "controller.listener.names": (None, "there is no KRaft controller"),
    "group.initial.rebalance.delay.ms": ("3000", "one node is for people who wait for it"),
    "listeners": ("PLAINTEXT://:9092", "without authentication nobody else should reach it"),
    "log.dir": ("/tmp/kafka-logs", "data must outlive a reboot"),  # noqa: S108
    "max.connection.creation.rate": ("2147483647", _FLOOD),
    "max.connections": ("2147483647", _FLOOD),
    "max.connections.per.ip": ("2147483647", _FLOOD),
    "node.id": (None, _OWN_PLACE),
    "offsets.topic.replication.factor": ("3", _ONE_NODE),
    "process.roles": (None, _OWN_PLACE),
    "share.coordinator.state.topic.min.isr": ("2", _ONE_NODE),
    "share.coordinator.state.topic.replication.factor": ("3", _ONE_NODE),
    "transaction.state.log.min.isr": ("2", _ONE_NODE),
    "transaction.state.log.replication.factor": ("3", _ONE_NODE),
}

IN_A_CLUSTER: dict[str, int] = {
    name: int(kafkas)
    for name, (kafkas, reason) in DIFFERENT_DEFAULTS.items()
    if reason == _ONE_NODE and kafkas is not None
}
"""Defaults of a broker that belongs to a cluster: Kafka's."""

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.(.+)")
# These may carry a SASL mechanism between the listener and the name.
_MECHANISM_SETTINGS = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)


def without_listener(name: str) -> str:
    """`max.connections` of `listener.name.internal.max.connections`; other names as they are."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return name
    for setting in _MECHANISM_SETTINGS:
        if name.endswith("." + setting):
            return setting
    return match[1]


def find_broker_definition(name: str) -> ConfigDefinition | None:
    """The definition of a broker's setting, also where it is set for one listener only."""
    return BROKER.find(name) or BROKER.find(without_listener(name))


def broker_synonyms(name: str) -> tuple[str, ...]:
    """All names that may set what `name` sets, the strongest first."""
    definition = BROKER.find(name)
    if definition is not None:
        return definition.synonyms
    return tuple(dict.fromkeys((name, without_listener(name))))
