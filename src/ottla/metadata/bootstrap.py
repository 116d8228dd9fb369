"""The first writes into an empty store, and whose store it is.

An empty store under a known cluster id has lost everything: it is refused, never taken for a
cluster without topics.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.metadata import nodes, paths
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.features import FINALIZED
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import ABSENT, Node, Operation, StoreRefused, Write
from ottla.metadata.topic_settings import MIN_IN_SYNC


def decide_cluster_id(
    stored: Node | None, known_cluster_id: str | None, new_cluster_id: str
) -> list[Operation]:
    """What to write so that the store has an id; nothing if it has the right one.

    `stored` is the store's `/cluster/id`, `known_cluster_id` the one that the data directories
    belong to, None for new ones. Raises StoreRefused.
    """
    if stored is None and known_cluster_id is not None:
        raise StoreRefused(
            f"the metadata store is empty, but the data here belongs to cluster {known_cluster_id}"
        )
    if stored is None:
        return [
            Write(paths.CLUSTER_ID, nodes.cluster_id(new_cluster_id), ABSENT),
            Write(paths.FEATURES, nodes.features(FINALIZED), ABSENT),
        ]
    stored_id = nodes.read_cluster_id(paths.CLUSTER_ID, stored.content)
    if known_cluster_id is not None and stored_id != known_cluster_id:
        raise StoreRefused(
            f"the metadata store is that of cluster {stored_id}, "
            f"but the data here belongs to cluster {known_cluster_id}"
        )
    return []


def decide_shared_settings(present: Mapping[str, Node], config: BrokerConfig) -> list[Operation]:
    """min.insync.replicas is one number for all brokers, the first one's.

    Who may lead depends on it (KIP-966): brokers that read it from files that differ would not
    agree on who has everything. Kafka keeps it in the same place.
    """
    path = paths.broker_configs("")
    node = present.get(path)
    shared = {} if node is None else nodes.read_configs(path, node.content)
    if MIN_IN_SYNC in shared:
        return []
    shared = {**shared, MIN_IN_SYNC: str(config.get_int(MIN_IN_SYNC))}
    return [Write(path, nodes.configs(shared), ABSENT if node is None else node.version)]


def ignored_setting(image: MetadataImage, config: BrokerConfig) -> str | None:
    """A line for whoever has set min.insync.replicas for a broker whose cluster has another."""
    shared = image.broker_configs.get("", {}).get(MIN_IN_SYNC)
    own = str(config.get_int(MIN_IN_SYNC))
    if shared is None or shared == own or not config.is_set(MIN_IN_SYNC):
        return None
    return (
        f"{MIN_IN_SYNC}={own} of this broker's own settings is not used: it is one number for the "
        f"cluster, and that is {shared} (ottla config alter --all-brokers changes it)"
    )
