"""Which brokers keep which partition.

Leaders go round the brokers from `start`; the followers of a partition stand at a distance that
grows by one each time the leaders have gone round once, so that the loss of a broker spreads its
load over all others. With racks the brokers are first put in an order that alternates between
them, and a rack gets one more replica only when every rack has as many (KIP-36). The arguments
decide all of it; chance comes in through `start` and `shift`.

Brokers that are not alive are used only when there are too few others, and never to begin with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.metadata.image import BrokerRegistration
from ottla.protocol.error_codes import INVALID_REPLICATION_FACTOR


class Seed(NamedTuple):
    """Where to begin: `start` for the leaders, `shift` for the distance of the followers."""

    start: int
    shift: int

    @staticmethod
    def of(number: int) -> Seed:
        """From any large random number, such as a fresh topic id."""
        return Seed(number & 0xFFFF_FFFF, number >> 32 & 0xFFFF_FFFF)


def place(
    brokers: Iterable[BrokerRegistration],
    replication_factor: int,
    partition_count: int,
    seed: Seed,
    *,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """The replicas of each partition, its preferred leader first."""
    known = sorted(brokers, key=lambda broker: broker.broker_id)
    live = [broker for broker in known if not broker.fenced]
    _check_enough(known, live, replication_factor)
    if replication_factor <= len(live):
        return _stripe(live, replication_factor, partition_count, seed, first_partition)
    fenced = [broker.broker_id for broker in known if broker.fenced]
    missing = replication_factor - len(live)
    placed = _stripe(live, len(live), partition_count, seed, first_partition)
    return [
        replicas + _rotated(fenced, seed.start + first_partition + index)[:missing]
        for index, replicas in enumerate(placed)
    ]


def seed_to_continue(brokers: Iterable[BrokerRegistration], first_leader: int) -> Seed:
    """Goes on where the placement that began with `first_leader` would have gone on."""
    live = [broker for broker in brokers if not broker.fenced]
    live.sort(key=lambda broker: broker.broker_id)
    order, _ = _order(live)
    return Seed(order.index(first_leader) if first_leader in order else 0, 0)


def _check_enough(
    known: Sequence[BrokerRegistration], live: Sequence[BrokerRegistration], wanted: int
) -> None:
    if not live:
        reason = "All brokers are currently fenced."
    elif wanted > len(known):
        reason = (
            f"The target replication factor of {wanted} cannot be reached because only "
            f"{len(known)} broker(s) are registered."
        )
    else:
        return
    message = f"Unable to replicate the partition {wanted} time(s): {reason}"
    raise ProtocolError(INVALID_REPLICATION_FACTOR, message)


def _stripe(
    brokers: Sequence[BrokerRegistration],
    replication_factor: int,
    partition_count: int,
    seed: Seed,
    first_partition: int,
) -> list[tuple[int, ...]]:
    order, racks = _order(brokers)
    count = len(order)
    placed = []
    for index in range(first_partition, first_partition + partition_count):
        position = (index + seed.start) % count
        # The distance changes once per round of leaders, or the same brokers would always meet.
        shift = seed.shift + index // count
        candidates = _candidates(order, position, shift)
        placed.append(_choose(candidates, racks, replication_factor))
    return placed


def _order(brokers: Sequence[BrokerRegistration]) -> tuple[list[int], dict[int, str | None]]:
    """The brokers in turn, and their racks if racks are to be kept apart."""
    if any(broker.rack is None for broker in brokers):
        # A rack only means something when every broker has one.
        return [broker.broker_id for broker in brokers], {}
    return _alternate_racks(brokers), {broker.broker_id: broker.rack for broker in brokers}


def _candidates(order: Sequence[int], position: int, shift: int) -> list[int]:
    """The leader, then every other broker, beginning at the distance that `shift` gives."""
    count = len(order)
    followers = [
        order[(position + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1)
    ]
    return [order[position], *followers]


def _choose(
    candidates: Sequence[int], racks: Mapping[int, str | None], replication_factor: int
) -> tuple[int, ...]:
    """In rounds: each rack gives one broker before any gives the next."""
    chosen: list[int] = []
    remaining = candidates
    while len(chosen) < replication_factor:
        used: set[str | int | None] = set()
        passed = []
        for broker in remaining:
            rack = racks.get(broker, broker)
            if rack in used:
                passed.append(broker)
            else:
                used.add(rack)
                chosen.append(broker)
        remaining = passed
    return tuple(chosen[:replication_factor])


def _alternate_racks(brokers: Sequence[BrokerRegistration]) -> list[int]:
    by_rack: dict[str, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(broker.rack or "", []).append(broker.broker_id)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _rotated(items: Sequence[int], start: int) -> tuple[int, ...]:
    start %= len(items)
    return tuple(items[start:]) + tuple(items[:start])
