"""Where each node is: Kafka's znode layout, and two places of our own (DESIGN, Metadata)."""

from __future__ import annotations

import re

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
FEATURES = "/feature"
TOPIC_DELETIONS = "/admin/delete_topics"
"""Its version grows with every deletion: see `partition_writes`."""
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

BROKER_IDS = "/brokers/ids/"
BROKER_EPOCHS = "/brokers/epochs/"
TOPICS = "/brokers/topics/"
TOPIC_CONFIGS = "/config/topics/"
BROKER_CONFIGS = "/config/brokers/"
CLIENT_METRICS_CONFIGS = "/config/client-metrics/"
GROUP_CONFIGS = "/config/groups/"

DEFAULT_ENTITY = "<default>"
"""Kafka's name for the settings of all brokers together."""


def broker_id(broker: int) -> str:
    return f"{BROKER_IDS}{broker}"


def broker_epoch(broker: int) -> str:
    return f"{BROKER_EPOCHS}{broker}"


def topic(name: str) -> str:
    return TOPICS + name


def partition_state(name: str, index: int) -> str:
    return f"{TOPICS}{name}/partitions/{index}/state"


def topic_configs(name: str) -> str:
    return TOPIC_CONFIGS + name


def broker_configs(name: str) -> str:
    """`name` is a broker id as text, or empty for the whole cluster."""
    return BROKER_CONFIGS + (name or DEFAULT_ENTITY)


def client_metrics_configs(name: str) -> str:
    return CLIENT_METRICS_CONFIGS + entity(name)


def group_configs(name: str) -> str:
    return GROUP_CONFIGS + entity(name)


_UNSAFE = re.compile(rb"[^a-zA-Z0-9_~-]")
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")


def entity(name: str) -> str:
    """Names that clients choose freely may hold a slash, or be nothing but dots."""
    return _UNSAFE.sub(lambda byte: b"%%%02X" % ord(byte[0]), name.encode()).decode()


def entity_name(last_part: str) -> str:
    """Raises ValueError for what `entity` has never written."""
    return _ESCAPED.sub(lambda digits: bytes([int(digits[1], 16)]), last_part.encode()).decode()
