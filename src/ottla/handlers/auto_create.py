"""Making topics that a client asked for and that are not there (`auto.create.topics.enable`).

The order goes to the controller and nobody waits for it: the client asks again. Internal topics get
the shape that their coordinators need, from the same settings as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.handlers.context import Context
from ottla.metadata import topic_names
from ottla.metadata.configs.alter import validate_topic_configs
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import (
    CreateResult,
    NewTopic,
    TopicDefaults,
    decide_create_topics,
)
from ottla.protocol.error_codes import NONE, TOPIC_ALREADY_EXISTS

log = logging.getLogger("ottla.handlers")

# Internal topic -> the prefix of its broker settings, and its own settings: as they are, or the
# name of the broker setting that holds them.
_OFFSETS_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "offsets.topic.segment.bytes",
}
_TRANSACTION_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "min.insync.replicas": "transaction.state.log.min.isr",
    "segment.bytes": "transaction.state.log.segment.bytes",
    "unclean.leader.election.enable": "false",
}
_SHARE_CONFIGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "min.insync.replicas": "share.coordinator.state.topic.min.isr",
    "retention.ms": "-1",
    "segment.bytes": "share.coordinator.state.topic.segment.bytes",
}
_INTERNAL: dict[str, tuple[str, Mapping[str, str]]] = {
    topic_names.CONSUMER_OFFSETS: ("offsets.topic", _OFFSETS_CONFIGS),
    topic_names.TRANSACTION_STATE: ("transaction.state.log", _TRANSACTION_CONFIGS),
    topic_names.SHARE_GROUP_STATE: ("share.coordinator.state.topic", _SHARE_CONFIGS),
}


def create_missing(context: Context, names: Sequence[str]) -> None:
    services = context.services
    config = services.config
    if not config.get_bool("auto.create.topics.enable"):
        return
    topics = [new_topic(config, name) for name in names]
    defaults = TopicDefaults(
        partition_count=config.get_int("num.partitions"),
        replication_factor=config.get_int("default.replication.factor"),
    )
    ordered = services.controller.submit(
        lambda image: decide_create_topics(
            image,
            topics,
            defaults=defaults,
            check_configs=validate_topic_configs,
            new_uuid=services.new_uuid,
        )
    )
    ordered.when_done(_tell)


def new_topic(config: BrokerConfig, name: str) -> NewTopic:
    if name not in _INTERNAL:
        return NewTopic(name)
    prefix, configs = _INTERNAL[name]
    return NewTopic(
        name,
        partition_count=config.get_int(f"{prefix}.num.partitions"),
        replication_factor=config.get_int(f"{prefix}.replication.factor"),
        configs=[
            (key, str(config.get_int(value)) if value.startswith(prefix) else value)
            for key, value in configs.items()
        ],
    )


def _tell(outcome: Deferred[list[CreateResult]]) -> None:
    """Nobody waits for the outcome, so the log is the only place to say why there is no topic."""
    try:
        results = outcome.result()
    except OttlaError as failure:
        log.warning("topics could not be made on demand: %s", failure)
        return
    for result in results:
        if result.error_code not in (NONE, TOPIC_ALREADY_EXISTS):
            log.info("topic %s is not made on demand: %s", result.name, result.error_message)
