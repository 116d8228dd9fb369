"""Which replica a consumer should read from (KIP-392): one in its own rack, if that will do.

Only if `replica.selector.class` names Kafka's rack-aware selector, and only the leader chooses: one
of those in sync that have the offset, in the consumer's rack, and of these the one that has most.
"""

from __future__ import annotations

from ottla.handlers.context import Context
from ottla.metadata.configs.replica_selectors import reads_from_followers
from ottla.replication.partition import Partition

NO_PREFERENCE = -1


def preferred_replica(context: Context, partition: Partition, rack: str, offset: int) -> int:
    """Another broker that the consumer should ask; -1 if it may go on asking here."""
    services = context.services
    if not partition.is_leader or not reads_from_followers(services.config):
        return NO_PREFERENCE
    brokers = services.image.brokers
    own = brokers.get(services.broker_id)
    if own is not None and own.rack == rack:
        return NO_PREFERENCE
    best, best_end = NO_PREFERENCE, -1
    for replica, log_start, log_end in partition.in_sync_followers():
        broker = brokers.get(replica)
        if broker is None or broker.fenced or broker.rack != rack:
            continue
        has_it = log_start <= offset <= log_end
        if has_it and services.advertised_endpoint(replica, context.listener_name) is not None:
            if log_end > best_end:
                best, best_end = replica, log_end
    return best
