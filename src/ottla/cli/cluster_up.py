"""`ottla cluster up`: from its options to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.cli.cluster_control import leftovers, no_cluster
from ottla.cli.cluster_files import SOCKET_FILE, STATE_FILE, locked
from ottla.cli.cluster_plan import METRICS_PORT_FIRST, ClusterPlan
from ottla.cli.cluster_supervisor import Supervisor, tell
from ottla.cli.cluster_zookeeper import OwnZooKeeper
from ottla.cli.failure import Failure
from ottla.runtime.zookeeper_server import free_ports

PORT_MAX = 65_535
ATTEMPTS = 5
TAKEN = "cannot listen on"


def up(
    directory: Path,
    *,
    brokers: int,
    host: str,
    port: int,
    zookeeper: str | None,
    racks: Sequence[str],
    overrides: Mapping[str, str],
) -> None:
    """Returns when the cluster has been taken down. Port 0: ports that are free, for each start."""
    directory = directory.resolve()
    with locked(directory):
        if leftovers(directory):
            raise no_cluster(directory)
        (directory / SOCKET_FILE).unlink(missing_ok=True)
        brokers_before = len([one for one in directory.glob("broker-*") if one.is_dir()])
        own = OwnZooKeeper(directory / "zookeeper") if zookeeper is None else None
        try:
            for attempt in range(1, ATTEMPTS + 1):
                if own is not None:
                    own.start()
                    zookeeper = own.connect
                    tell(f"ZooKeeper listens on {zookeeper} (pid {own.pids()[0]})")
                plan = ClusterPlan(
                    directory=directory,
                    host=host,
                    ports=_ports(port, brokers),
                    zookeeper=zookeeper or "",
                    metrics_ports=_metrics_ports(port, brokers),
                    racks=racks,
                    overrides=overrides,
                )
                try:
                    asyncio.run(_supervise(plan, own, brokers_before))
                    return
                except Failure as failure:
                    # Somebody was faster at a port that had been free.
                    if port != 0 or TAKEN not in str(failure) or attempt == ATTEMPTS:
                        raise
        finally:
            if own is not None:
                own.stop()
            for name in (STATE_FILE, SOCKET_FILE):
                (directory / name).unlink(missing_ok=True)


async def _supervise(plan: ClusterPlan, own: OwnZooKeeper | None, brokers_before: int) -> None:
    """One failure of several that start together is enough to say."""
    try:
        await Supervisor(plan, own, brokers_before).run()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _ports(first: int, count: int) -> list[int]:
    if first == 0:
        return free_ports(count)
    if first + count - 1 > PORT_MAX:
        raise Failure(f"there are no {count} ports from {first} on")
    return list(range(first, first + count))


def _metrics_ports(first: int, count: int) -> list[int]:
    if first == 0:
        return [0] * count
    return list(range(METRICS_PORT_FIRST, METRICS_PORT_FIRST + count))
