"""What a cluster on this machine needs when it is started with more brokers than it had."""

from __future__ import annotations

from ottla.cli.cluster_plan import MIN_IN_SYNC, ClusterPlan, replication_defaults
from ottla.cli.connection import Connection

ALL_BROKERS = ""


def raise_min_in_sync(plan: ClusterPlan, brokers_before: int) -> str | None:
    """The number is the cluster's and stays what the first broker had: one copy, if it was alone.
    Who has changed it since keeps that. Gives a line that says what was done, if anything was."""
    wanted = plan.settings(plan.broker_ids[0])[MIN_IN_SYNC]
    before = replication_defaults(brokers_before)[MIN_IN_SYNC]
    if brokers_before == 0 or int(wanted) <= int(before):
        return None
    connection = Connection(plan.address(plan.broker_ids[0]), {})
    stored = {one.name: one.value for one in connection.configs("broker", ALL_BROKERS)}
    if stored.get(MIN_IN_SYNC) != before:
        return None
    connection.alter_configs("broker", ALL_BROKERS, {MIN_IN_SYNC: wanted}, [])
    return f"{MIN_IN_SYNC} is {wanted} now, it was {before}: there are brokers enough for it"
