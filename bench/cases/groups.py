"""Groups: commits, rebalances, the coordinator's load after a restart, the lag of many groups."""

from __future__ import annotations

import time

from bench.brokers import Broker
from bench.case import RELOAD, Case, Figure, Figures
from bench.clients.lag import PREFIX as LAG_PREFIX
from bench.closed_loop import run_closed_loop
from bench.groups import commit_error_position, commit_frame, wait_until_coordinated
from bench.kernel_part import with_kernel_part
from bench.loads import run_load
from bench.side import Side
from bench.sizes import Sizes
from bench.topics import create_topic
from ottla.protocol.api_keys import CONSUMER_GROUP_HEARTBEAT, FIND_COORDINATOR

MEMBERS = 50
REBALANCE_PARTITIONS = 500
COMMIT_CLIENTS = 50
LAG_TOPIC = "lag"
LAG_PARTITIONS = 10
RELOAD_TOPIC = "reload"
RELOAD_PARTITIONS = 100
RELOAD_GROUPS = 200
_CLIENTS_AT_ONCE = 20
_NO_LIMIT_S = 600.0


def commits_1(side: Side, sizes: Sizes) -> Figures:
    return _commits(side, 1, sizes.commit_seconds)


def commits_50(side: Side, sizes: Sizes) -> Figures:
    return _commits(side, COMMIT_CLIENTS, sizes.commit_seconds)


def _commits(side: Side, clients: int, seconds: float) -> Figures:
    return run_load(
        "commits",
        bootstrap=side.broker.bootstrap,
        pid=side.broker.pid,
        topic=_kept_topic(side, "commits", 1),
        clients=clients,
        seconds=seconds,
    )


def rebalance_classic(side: Side, sizes: Sizes) -> Figures:
    return _rebalance(side, "rebalance_classic", sizes.rebalances_classic)


def rebalance_consumer(side: Side, sizes: Sizes) -> Figures:
    return _rebalance(side, "rebalance_consumer", sizes.rebalances_consumer)


def _rebalance(side: Side, load: str, times: int) -> Figures:
    return run_load(
        load,
        bootstrap=side.broker.bootstrap,
        pid=side.broker.pid,
        topic=_kept_topic(side, "rebalance", REBALANCE_PARTITIONS),
        partitions=REBALANCE_PARTITIONS,
        members=MEMBERS,
        times=times,
    )


def _kept_topic(side: Side, name: str, partitions: int) -> str:
    """Nothing is written to it, so all rounds can have the same."""
    side.prepare_once(name, lambda broker: create_topic(broker.bootstrap, name, partitions))
    return name


def coordinator_load(side: Side, sizes: Sizes) -> Figures:
    groups = [f"reload-{number}" for number in range(RELOAD_GROUPS)]

    def fill(broker: Broker) -> None:
        create_topic(broker.bootstrap, RELOAD_TOPIC, RELOAD_PARTITIONS)
        times = sizes.reload_commits // (RELOAD_GROUPS * RELOAD_PARTITIONS)
        _commit_all(broker, groups, RELOAD_TOPIC, RELOAD_PARTITIONS, times)

    broker = side.beside("reload", fill)
    broker.stop()
    begin = time.monotonic()
    started_s = broker.start()
    wait_until_coordinated(broker.bootstrap, groups, RELOAD_TOPIC)
    loaded_s = time.monotonic() - begin
    return {"loaded_s": loaded_s, "after_start_s": loaded_s - started_s}


def lag(side: Side, sizes: Sizes) -> Figures:
    groups = [f"{LAG_PREFIX}{number}" for number in range(sizes.lag_groups)]

    def commit_once(broker: Broker) -> None:
        create_topic(broker.bootstrap, LAG_TOPIC, LAG_PARTITIONS)
        _commit_all(broker, groups, LAG_TOPIC, LAG_PARTITIONS, times=1)

    side.prepare_once("lag", commit_once)
    return run_load(
        "lag",
        bootstrap=side.broker.bootstrap,
        pid=side.broker.pid,
        topic=LAG_TOPIC,
        groups=sizes.lag_groups,
        partitions=LAG_PARTITIONS,
        seconds=sizes.commit_seconds,
    )


def _commit_all(broker: Broker, groups: list[str], topic: str, partitions: int, times: int) -> None:
    """Every group commits all partitions so many times, a few groups at once."""
    wait_until_coordinated(broker.bootstrap, groups, topic)
    error_at = commit_error_position(topic)
    for begin in range(0, len(groups), _CLIENTS_AT_ONCE):
        some = groups[begin : begin + _CLIENTS_AT_ONCE]
        requests = [commit_frame(group, topic, partitions, 1000) for group in some]
        count = times * len(some)
        run_closed_loop(broker.bootstrap, requests, error_at, _NO_LIMIT_S, count)


COMMIT_FIGURES = (
    Figure("commits_per_s", "commits", "1/s", at_least=1.0),
    *with_kernel_part(Figure("cpu_us_per_commit", "broker CPU", "µs/commit", at_most=0.4)),
)


def _rebalance_figures(at_most: float) -> tuple[Figure, ...]:
    return (
        Figure("rebalance_ms", "until all own their share", "ms", at_most=at_most),
        Figure("cpu_ms", "broker CPU", "ms", at_most=0.4),
    )


GROUP_CASES = (
    Case("commits_1", "commits by one client", 4, COMMIT_FIGURES, commits_1, FIND_COORDINATOR),
    Case("commits_50", "commits by 50 clients", 4, COMMIT_FIGURES, commits_50, FIND_COORDINATOR),
    Case(
        "rebalance_classic",
        "50 members over 500 partitions, classic",
        4,
        _rebalance_figures(0.8),
        rebalance_classic,
        needs_api=FIND_COORDINATOR,
    ),
    Case(
        "rebalance_consumer",
        "50 members over 500 partitions, KIP-848",
        4,
        _rebalance_figures(1.05),
        rebalance_consumer,
        needs_api=CONSUMER_GROUP_HEARTBEAT,
    ),
    Case(
        "lag",
        "lag of 1,000 groups",
        4,
        (
            Figure("listing_ms", "one listing", "ms", at_most=0.8),
            Figure("cpu_ms", "broker CPU", "ms"),
        ),
        lag,
        needs_api=FIND_COORDINATOR,
    ),
    Case(
        "coordinator_load",
        "1,000,000 commits loaded after a restart",
        4,
        (
            Figure("loaded_s", "process start to all loaded", "s", at_most=1.1),
            Figure("after_start_s", "first metadata to all loaded", "s"),
        ),
        coordinator_load,
        needs_api=FIND_COORDINATOR,
        block=RELOAD,
    ),
)
