"""What one seed draws: the cluster, its settings, and which faults come when (swarm).

Every concern has a generator of its own, so that a change of one does not shift the others. A
quarter of the seeds draws no fault at all.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

KINDS = (
    "kill",
    "stop",
    "pause",
    "cut",
    "isolate",
    "away",
    "expire",
    "loss",
    "slow",
    "store_loss",
    "power",
    "power_all",
    "kill_all",
    "elect",
    "move",
    "settings",
    "remake",
    "unclean",
)
FAULTS_WINDOW_MS = 7_500
FIRST_FAULT_MS = 300


class Fault(NamedTuple):
    at_ms: float
    kind: str
    seed: int


class Plan:
    """`is_rough`: many faults of many kinds, for bugs that are known to be there."""

    def __init__(self, seed: int, *, is_rough: bool = False) -> None:
        self.seed = seed
        chance = Random(f"{seed}/plan")
        self._is_rough = is_rough
        self.is_quiet = chance.random() < 0.25 and not is_rough
        share = chance.choice((0.3, 0.5) if is_rough else (0.15, 0.3, 0.5))
        kinds = [kind for kind in KINDS if chance.random() < share]
        if not self.is_quiet and not kinds:
            kinds = [chance.choice(KINDS)]
        self.kinds: tuple[str, ...] = () if self.is_quiet else tuple(kinds)
        self.partitions = chance.choice((1, 1, 1, 2))
        self.broker_count = 4 if "move" in self.kinds and chance.random() < 0.5 else 3
        self.replicas = 3 if chance.random() < 0.85 else 2
        self.in_sync_min = chance.choice((1, 2, 2, 2))
        self.is_flushed = chance.random() < 0.3
        if self.has_power_cuts:
            self.is_flushed = chance.random() < 0.7
        self.is_unclean = "unclean" in self.kinds
        self.is_fence_blind = chance.random() < 0.5
        self.is_idempotent = chance.random() < 0.5
        self.produce_ms = chance.choice((60.0, 180.0, 500.0))
        self.timeout_ms = chance.choice((1_500, 9_000))
        self.store_ms = chance.choice((3.0, 3.0, 30.0))
        self.told_ms = chance.choice((3.0, 30.0, 250.0))
        """How long a change takes to those who did not make it."""
        self.network_ms = chance.choice((0.3, 1.0, 5.0))
        self.far_broker = chance.choice((1, 2, 3)) if chance.random() < 0.3 else 0
        """Whose links are slow all the time."""
        self.far_ms = chance.choice((40.0, 150.0))
        self.rates = {broker: chance.choice((1.0, 1.0, 0.95, 1.05)) for broker in range(1, 5)}
        self.window_ms: float = FAULTS_WINDOW_MS
        # These came later than the other kinds, which are drawn as before.
        later = self._rumours(Random(f"{seed}/rumours")) + self._disks(Random(f"{seed}/disks"))
        self.faults = sorted(self._faults(chance) + later)

    @property
    def has_power_cuts(self) -> bool:
        return "power" in self.kinds or "power_all" in self.kinds

    def _faults(self, chance: Random) -> list[Fault]:
        if not self.kinds:
            return []
        count = chance.choice((10, 16) if self._is_rough else (2, 4, 8, 16))
        return sorted(
            Fault(
                chance.uniform(FIRST_FAULT_MS, FAULTS_WINDOW_MS),
                chance.choice(self.kinds),
                chance.getrandbits(32),
            )
            for _ in range(count)
        )

    def _rumours(self, chance: Random) -> list[Fault]:
        """Somebody speaks of epochs that there never were."""
        if self.is_quiet or chance.random() < 0.75:
            return []
        return [
            Fault(
                chance.uniform(FIRST_FAULT_MS, FAULTS_WINDOW_MS), "rumour", chance.getrandbits(32)
            )
            for _ in range(chance.choice((1, 3, 6)))
        ]

    def _disks(self, chance: Random) -> list[Fault]:
        """They fail while the broker lives."""
        if self.is_quiet or chance.random() < 0.75:
            return []
        return [
            Fault(chance.uniform(FIRST_FAULT_MS, FAULTS_WINDOW_MS), "disk", chance.getrandbits(32))
            for _ in range(chance.choice((1, 2, 4)))
        ]

    def settings(self) -> dict[str, str]:
        return {
            "zookeeper.connect": "sim",
            "min.insync.replicas": str(self.in_sync_min),
            "default.replication.factor": str(self.replicas),
            "log.flush.interval.messages": "1" if self.is_flushed else str(2**63 - 1),
            "unclean.leader.election.enable": "true" if self.is_unclean else "false",
            "replica.lag.time.max.ms": "2500",
            "replica.fetch.wait.max.ms": "800",
            "replica.fetch.backoff.ms": "300",
            "replica.high.watermark.checkpoint.interval.ms": "1500",
            "log.index.size.max.bytes": "256",
            "leader.imbalance.check.interval.seconds": "6",
            "log.segment.delete.delay.ms": "1000",
        }
