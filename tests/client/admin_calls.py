"""What tests ask of a cluster on the side."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client import Admin
from tests.compat.nodes import wait_until

PATIENCE_S = 60


def create_topic(
    bootstrap: str, name: str, partitions: int, settings: Mapping[str, str] | None = None
) -> None:
    """Returns when the brokers know of it, which Kafka's do a moment after the controller."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, partitions, configs=settings)
        wait_until(lambda: is_there(admin, name, partitions), PATIENCE_S, f"topic {name}")


def is_there(admin: Admin, name: str, partitions: int) -> bool:
    listed = {one.name: one.partitions for one in admin.list_topics()}
    found = listed.get(name, [])
    return len(found) == partitions and all(one.leader is not None for one in found)


def committed_offset(bootstrap: str, group: str, topic: str, partition: int) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        place = (topic, partition)
        return admin.list_group_offsets(group, [place], require_stable=True)[place].offset
