"""What the machines of this room want done, and what they are told: plain values, no behaviour.

An `Assignment` is a partition's state as the store has it, in the words of this room, which knows
nothing of metadata. An `InSyncProposal` goes the other way: the leader asks for another in-sync set
by compare-and-set on `partition_epoch`, the version of the state that it has seen.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Assignment(NamedTuple):
    """`partition_epoch` is the version of the stored state: it grows with every write (R2).

    `unclean_epoch` is the leader epoch of the last unclean election, -1 if there never was one.
    While somebody is `eligible` beside the in-sync set, nothing is committed (KIP-966).
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    unclean_epoch: int = -1
    eligible: tuple[int, ...] = ()


class InSyncProposal(NamedTuple):
    """`joining` names (broker id, broker epoch) of those who are new in `in_sync`: the life of a
    broker that caught up, which must still be the same when the set is stored.

    `in_sync` may equal the stored set: then only the version is to grow, so that an earlier
    proposal whose fate is not known can no longer be accepted (R7, Z4).
    """

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[int, ...]
    joining: tuple[tuple[int, int], ...] = ()


class Outcome(Enum):
    """What became of a proposal. None of them changes the set: only a newer state does."""

    STORED = 1
    REFUSED = 2
    UNKNOWN = 3
