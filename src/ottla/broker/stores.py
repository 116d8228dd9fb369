"""Where this broker's metadata is: in its own file, or in a ZooKeeper that a cluster shares."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from ottla.base.errors import ConfigError
from ottla.base.ports import Clock, Pool
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.zookeeper import parse_zookeeper
from ottla.metadata.store import MetadataStore, StoreRefused
from ottla.runtime.embedded_store import ADOPTED_FILE_NAME, EmbeddedStore


@dataclass(slots=True)
class OpenStore:
    """`pool` is where its calls run. In a cluster a broker registers fenced, has peers, and the
    store may be away."""

    store: MetadataStore
    pool: Pool
    is_cluster: bool


def open_store(config: BrokerConfig, directory: str, clock: Clock, pool: Pool) -> OpenStore:
    """May block: it connects. Raises what the stores raise."""
    settings = parse_zookeeper(config)
    if settings is None:
        if os.path.exists(os.path.join(directory, ADOPTED_FILE_NAME)):
            raise StoreRefused(
                f"the metadata of {directory} is in ZooKeeper since `ottla cluster adopt`: set "
                "zookeeper.connect"
            )
        return OpenStore(EmbeddedStore(directory), pool, is_cluster=False)
    # kazoo is loaded by those who need it: a single node starts without.
    from ottla.runtime.zookeeper_store import ZooKeeperStore

    return OpenStore(ZooKeeperStore(settings, clock, directory), pool, is_cluster=True)


def check_identity(config: BrokerConfig) -> None:
    """Two brokers of a cluster that leave their ids to the default would both be broker 0."""
    if config.is_of_cluster() and not config.is_set("node.id"):
        raise ConfigError("node.id must be set in a cluster: every broker needs one of its own")


def rack_of(config: BrokerConfig, *, in_cluster: bool) -> str | None:
    """In a cluster the host's name where nothing is set: replicas never share a machine when there
    is another."""
    rack = config.get_optional_str("broker.rack")
    return socket.gethostname() if rack is None and in_cluster else rack
